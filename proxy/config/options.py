"""The frozen options of one proxy, one class a table: made by `proxy.config.parser`, read by all other packages.

Each field is a key, and its annotation the key's declaration (`proxy.config.schema`). What the keys mean is said in
docs/configuration.md, whose types, units and defaults are tested against the declarations.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from msgspec import Meta
from msgspec.structs import replace

from protocol.capture import FRAMES
from proxy.config.principals import DEFAULT_RULES, MappingRules
from proxy.config.schema import (
    LIVE,
    NONE,
    PORT_MAX,
    Address,
    Addresses,
    Host,
    Key,
    Networks,
    Options,
    Port,
    Positive,
    Rate,
    Share,
    keys_of,
    number,
    one_of,
    parse_path,
)
from proxy.system.errors import ConfigError
from proxy.system.hosts import is_host, is_ip, is_loopback
from quotas.definitions.classes import Terms, replication_terms
from quotas.definitions.kinds import WEIGHT_MAX
from quotas.options import Mode, NewConnections, Policy, Scope, UnknownUsers
from quotas.reassignment.batch import BatchLimits
from quotas.replication.replication_quotas import (
    ReplicaList,
    ReplicationOptions,
    ReplicationPolicy,
    parse_replicas,
)
from quotas.sharing.parts import PARTS_MAX

DAY_SECONDS: Final = 86400
WILDCARDS: Final = ("0.0.0.0", "::")
LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


# ----------------------------------------------------------------------------------------------------
# `[cluster.tls]`, `[listeners.tls]`, `[fleet.tls]` and `[admin.tls]`: a table, even an empty one, turns TLS on.
# `proxy.net.tls` reads the files, again when they change.


TlsVersion = Literal["TLSv1.2", "TLSv1.3"]
CERTIFICATES_MAX: Final = 100


class OwnCertificate(Options, frozen=True):
    """The keys that all TLS tables have in common: Sluice's own certificate and private key, versions and ciphers."""

    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: Annotated[str, Key(secret=True)] = ""
    key_password_file: Path | None = None
    enabled_protocols: Annotated[
        tuple[TlsVersion, ...], Key(range=Meta(min_length=1), must='must be "TLSv1.2", "TLSv1.3", or both')
    ] = ("TLSv1.2", "TLSv1.3")
    ciphers: str = ""  # of TLS 1.2, as OpenSSL writes them: Python cannot choose those of TLS 1.3

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file from which the TLS context is made."""
        found: list[object] = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            found += value if isinstance(value, tuple) else (value,)
        return tuple(value for value in found if isinstance(value, Path))

    def settled(self, path: str) -> Self:
        """Check the keys, and fill in `key_file`: by default the private key is in the certificate's file."""
        if self.key_password and self.key_password_file:
            raise ConfigError(f"{path}.key_password_file", "and key_password are both given: give only one")
        if self.cert_file is None and (self.key_file or self.key_password or self.key_password_file):
            raise ConfigError(f"{path}.cert_file", "must be given with a key")
        if self.ciphers and "TLSv1.2" not in self.enabled_protocols:
            problem = "has no effect without TLSv1.2 in enabled_protocols: OpenSSL chooses those of TLS 1.3"
            raise ConfigError(f"{path}.ciphers", problem, self.ciphers)
        return replace(self, key_file=self.key_file or self.cert_file)


class ServerCertificate(OwnCertificate, frozen=True):
    """The keys of TLS for a port: Sluice's own certificate, and which client certificates it trusts."""

    client_ca_file: Path | None = None
    client_auth: Annotated[str, one_of("none", "requested", "required")] = ""  # Kafka's ssl.client.auth

    def settled(self, path: str) -> Self:
        """Check the keys, and fill in `client_auth`: "required" if there is a `client_ca_file`, else "none"."""
        auth = self.client_auth or ("required" if self.client_ca_file else "none")
        if auth != "none" and self.client_ca_file is None:
            raise ConfigError(f"{path}.client_ca_file", f"must be given with client_auth = {auth!r}")
        return replace(super().settled(path), client_auth=auth)


def _rules(value: object) -> object:
    MappingRules(value if isinstance(value, str) else "")
    return value


class PortTls(ServerCertificate, frozen=True):
    """`[admin.tls]`, and the keys of TLS of any port: its certificate, and which certificates of clients it trusts."""

    def settled(self, path: str) -> Self:
        """Check and fill in as `ServerCertificate`; a port also needs a certificate of its own."""
        if self.cert_file is None:
            raise ConfigError(f"{path}.cert_file", "must name the port's certificate, a PEM file")
        return super().settled(path)


class ListenerTls(PortTls, frozen=True):
    """`[listeners.tls]`: a listener's certificate, and which certificates of clients it trusts."""

    more_cert_files: Annotated[
        tuple[Path, ...], Key(range=Meta(max_length=CERTIFICATES_MAX), must="must be a list of paths")
    ] = ()
    principal_mapping_rules: Annotated[str, Key(parse=_rules)] = DEFAULT_RULES


class ClusterTls(OwnCertificate, frozen=True):
    """`[cluster.tls]`: which certificates of brokers Sluice trusts, and its own, if brokers ask for one."""

    ca_file: Path | None = None
    verify_hostname: bool = True


class FleetTls(ServerCertificate, frozen=True):
    """`[fleet.tls]`: this member's certificate, as server and client, and which members' certificates it trusts."""

    ca_file: Path | None = None
    verify_hostname: bool = True

    @property
    def port(self) -> PortTls:
        """The TLS options of this member's port."""
        return PortTls(**self._own, client_ca_file=self.client_ca_file, client_auth=self.client_auth)

    @property
    def client(self) -> ClusterTls:
        """The TLS options of connections to the holder."""
        authority = self.ca_file or self.client_ca_file
        return ClusterTls(**self._own, ca_file=authority, verify_hostname=self.verify_hostname)

    @property
    def _own(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in OwnCertificate.__struct_fields__}


# ----------------------------------------------------------------------------------------------------
# `[cluster]`: the brokers, and how Sluice logs in to them.

SASL_NAMED: Final = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
)  # of Sluice's own login (`kafka_client.connection`)
SASL_WITH_SECRET: Final = (*SASL_NAMED, "OAUTHBEARER")
WITHOUT_GROUPS: Final = "AWS_MSK_IAM"  # aiokafka, which groups and topics need, does not have it


class ClusterOptions(Options, frozen=True):
    """`[cluster]`: the brokers, for Sluice's own connection and for the bootstrap port."""

    REFUSED: ClassVar = {"security_protocol": "it follows from sasl_mechanism and tls"}

    bootstrap: Addresses = ()
    sasl_mechanism: Annotated[str, one_of(*SASL_WITH_SECRET, "GSSAPI", WITHOUT_GROUPS)] = ""
    username: str = ""
    password_file: Path | None = None
    password: Annotated[str, Key(secret=True)] = ""
    tls: ClusterTls | None = None


# ----------------------------------------------------------------------------------------------------
# `[limits]`: the named maximum of everything a client can make grow.


class LimitOptions(Options, frozen=True):
    """`[limits]`: the maximum of each resource that clients can make grow, as connections, bytes and time."""

    connections_max: Annotated[int, number(1, 1_000_000, "connections")] = 20_000
    connections_per_address_max: Annotated[int | None, number(1, 1_000_000, "connections")] = None
    frame_bytes_max: Annotated[int, number(1024, 2**31 - 1, "bytes")] = 100 * 1024**2
    response_bytes_max: Annotated[int, number(1024, 2**31 - 1, "bytes")] = 1024**3
    client_ids_max: Annotated[int, number(1, 10_000_000, "client ids")] = 200_000
    sessions_max: Annotated[int, number(0, 1_000_000, "fetch sessions")] = 20_000
    kept_bytes_max: Annotated[int, number(1024**2, 1024**5, "bytes")] = 256 * 1024**2
    kept_bytes_per_connection_max: Annotated[int, number(64 * 1024, 1024**5, "bytes")] = 64 * 1024**2
    kept_bytes_per_address_max: Annotated[int, number(0, 1024**5, "bytes")] = 0
    pipes_max: Annotated[int, number(0, 65_536, "pipes")] = 64
    metric_series_max: Annotated[int, number(0, 1_000_000, "series")] = 2_000
    handshakes_max: Annotated[int, number(1, 1_000_000, "connections")] = 1_000
    handshake_seconds: Annotated[float, number(0.001, DAY_SECONDS, "seconds")] = 10.0
    connect_seconds: Annotated[float, number(0.001, DAY_SECONDS, "seconds")] = 10.0
    frame_seconds: Annotated[float, number(0.001, DAY_SECONDS, "seconds")] = 60.0
    idle_seconds: Annotated[float, number(0.001, DAY_SECONDS, "seconds")] = 600.0
    drain_seconds: Annotated[float, number(0, DAY_SECONDS, "seconds")] = 20.0


# ----------------------------------------------------------------------------------------------------
# `[[listeners]]`: the ports that clients and followers connect to.

BROKERS_NAMED_MAX: Final = 10  # in one message
_BROKER_ID_MAX: Final = 2**31 - 1  # Kafka's broker ids are INT32
_BROKER_ID_DIGITS_MAX: Final = 10
_SASL_OF_CLIENTS: Final = "clients authenticate with the brokers, through Sluice"
_UPSTREAMS: Final = 'must be a table of broker ids: { 1 = "127.0.0.1:29391" }'


def _upstreams(value: object) -> object:
    """Split `1=127.0.0.1:29391,2=…`, as an environment variable has the table, into broker ids and addresses.

    So the broker's id can be part of a value: Kubernetes expands `$(NODE_ID)` in values, not in names.
    """
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for part in value.split(","):
        broker, _, address = part.partition("=")
        if not address or broker.strip() in found:
            raise ValueError(f"{_UPSTREAMS}, or a text: 1=127.0.0.1:29391,2=127.0.0.1:29392")
        found[broker.strip()] = address.strip()
    return found


ID: Final = "{id}"  # in `broker_host`
_BROKER_HOST: Final = f'must be a host name with {ID} once, as "b{ID}.kafka.example.org"'
_BY_PORT: Final = ("first_broker_port", "broker_id_max", "advertised_first_broker_port")


def _broker_host(value: object) -> str:
    """Read the host name of brokers, with `{id}` in place of an id; in lower case, without a dot at the end."""
    if not isinstance(value, str) or value.count(ID) != 1:
        raise ValueError(_BROKER_HOST)
    if is_ip(value.replace(ID, "1")) or not is_host(value.replace(ID, str(_BROKER_ID_MAX))):
        raise ValueError(_BROKER_HOST)
    return value.lower().removesuffix(".")


def broker_in(broker_host: str, name: str) -> int | None:
    """Return the id of the broker that has a host name, by a `broker_host`; None if it is no broker's.

    Case, and one dot at the end, make no difference. An id is written in one way, without leading zeros.

    >>> broker_in("b{id}.example.org", "B12.example.org."), broker_in("b{id}.example.org", "b012.example.org")
    (12, None)
    """
    start, _, end = broker_host.partition(ID)
    found = name.lower().removesuffix(".")
    digits = found[len(start) : len(found) - len(end)]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _BROKER_ID_DIGITS_MAX):
        return None
    broker_id = int(digits)
    return broker_id if found == f"{start}{broker_id}{end}" and broker_id <= _BROKER_ID_MAX else None


class ListenerOptions(Options, frozen=True):
    """`[[listeners]]`: the ports that clients connect to: one for each broker, and a bootstrap port for any.

    With `broker_host` it is one port for all: the name in the client's TLS hello chooses the broker.
    """

    REFUSED: ClassVar = dict.fromkeys(
        ("security_protocol", "sasl_mechanism", "username", "password_file", "password"), _SASL_OF_CLIENTS
    )

    name: str = "clients"
    kind: Literal["clients", "replication"] = "clients"
    bind: Host = "127.0.0.1"
    advertised_host: Host = ""
    broker_host: Annotated[str, Key(parse=_broker_host, words={"": ""})] = ""
    unknown_names: Literal["refuse", "bootstrap"] = "refuse"
    bootstrap_port: Port = 19090
    first_broker_port: Port = 19100
    broker_id_max: Annotated[int, number(0, 65534, "broker id")] = 63
    advertised_bootstrap_port: Port = 0
    advertised_first_broker_port: Port = 0
    upstreams: Annotated[
        Mapping[Annotated[int, number(0, _BROKER_ID_MAX)], Address], Key(parse=_upstreams, must=_UPSTREAMS)
    ] = _EMPTY
    reuse_port: bool = False
    oauth_claim: str = "sub"
    proxy_protocol: bool = False
    proxy_protocol_sources: Networks = ()
    tls: ListenerTls | None = None

    def settled(self, path: str) -> Self:
        """Fill in the advertised host and ports, by default those that are bound."""
        self._check_names(path)
        host = self.advertised_host or self.bind
        if host in WILDCARDS and not self.sidecar:
            problem = "must name the host that clients connect to, since the port is bound on every address"
            raise ConfigError(f"{path}.advertised_host", problem, host)
        return replace(
            self,
            advertised_host=host,
            advertised_bootstrap_port=self.advertised_bootstrap_port or self.bootstrap_port,
            advertised_first_broker_port=self.advertised_first_broker_port or self.first_broker_port,
        )

    def _check_names(self, path: str) -> None:
        """Check the keys that belong to `broker_host`, and those that cannot be with it."""
        if not self.by_name:
            no_effect = "has no effect without broker_host"
            if self.unknown_names != "refuse":
                raise ConfigError(f"{path}.unknown_names", no_effect, self.unknown_names)
            if self.tls is not None and self.tls.more_cert_files:
                raise ConfigError(f"{path}.tls.more_cert_files", no_effect)
            return
        if self.upstreams or self.replicates:
            problem = (
                "cannot be in a sidecar, whose brokers advertise an address of their own: leave upstreams out"
            )
            raise ConfigError(f"{path}.broker_host", problem, self.broker_host)
        if self.tls is None:
            raise ConfigError(
                f"{path}.tls", "must be set with broker_host: clients name the broker in their TLS hello"
            )
        for name in _BY_PORT:
            value = getattr(self, name)
            if value != getattr(_DEFAULTS, name):
                raise ConfigError(
                    f"{path}.{name}", "has no effect with broker_host: all brokers have bootstrap_port", value
                )
        if not self.advertised_host or is_ip(self.advertised_host):
            problem = "must be a host name with broker_host: clients send no IP address in their TLS hello"
            raise ConfigError(f"{path}.advertised_host", problem, self.advertised_host or None)
        broker = self.broker_named(self.advertised_host)
        if broker is not None:
            problem = f"is the name of broker {broker} by broker_host: choose another name"
            raise ConfigError(f"{path}.advertised_host", problem, self.advertised_host)

    @property
    def by_name(self) -> bool:
        """Whether all brokers have one port, and the name in the client's TLS hello chooses among them."""
        return bool(self.broker_host)

    @property
    def replicates(self) -> bool:
        """Whether this is an inter-broker listener, to which brokers connect (KIP-73)."""
        return self.kind == "replication"

    @property
    def sidecar(self) -> bool:
        """Whether the brokers advertise Sluice's address themselves, so that addresses in responses stay unchanged."""
        return bool(self.upstreams)

    @property
    def loopback(self) -> bool:
        """Whether the ports are reachable from this machine only."""
        return is_loopback(self.bind)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers for which a port of their own is bound, whether there is such a broker or not."""
        if self.by_name:
            return ()
        return tuple(self.upstreams) if self.upstreams else tuple(range(self.broker_id_max + 1))

    def broker_port(self, broker_id: int) -> int:
        """Return the port that is bound for a broker."""
        return self.first_broker_port + broker_id

    def advertised_broker(self, broker_id: int) -> Address | None:
        """Return the address of a broker that responses to clients contain; None if the broker has no port."""
        if self.by_name:
            return Address(self.broker_host.replace(ID, str(broker_id)), self.advertised_bootstrap_port)
        if not 0 <= broker_id <= self.broker_id_max:
            return None
        return Address(self.advertised_host, self.advertised_first_broker_port + broker_id)

    def broker_named(self, name: str) -> int | None:
        """Return the id of the broker that has this host name, by `broker_host`; None if it is no broker's."""
        return broker_in(self.broker_host, name)

    def without_port(self, brokers: Iterable[int]) -> list[int]:
        """Return those of the given broker ids that have no port, sorted; empty for a sidecar, and by name."""
        if self.sidecar or self.by_name:
            return []
        return sorted(broker for broker in brokers if broker > self.broker_id_max)

    def port_problem(self, missing: Sequence[int]) -> str:
        """Return a sentence on brokers without a port: what it means to clients, and the remedy.

        Args:
            missing: the ids of these brokers, sorted, at least one.

        >>> ListenerOptions(broker_id_max=3).port_problem([1001])
        'listener "clients" has no port for broker 1001, so clients do not learn of it: write broker_id_max = 1001 \
(now 3) and restart'
        """
        names = ", ".join(map(str, missing[:BROKERS_NAMED_MAX]))
        more = len(missing) - BROKERS_NAMED_MAX
        highest = missing[-1]
        last = max(self.first_broker_port, self.advertised_first_broker_port) + highest
        remedy = f"write broker_id_max = {highest} (now {self.broker_id_max}) and restart"
        if last > PORT_MAX:
            remedy = (
                f"there are ports for ids up to {PORT_MAX - last + highest} alone; give it a lower node.id"
            )
        return (
            f'listener "{self.name}" has no port for broker {names}{f" and {more} more" if more > 0 else ""}, so '
            f"clients do not learn of it: {remedy}"
        )


_DEFAULTS: Final = ListenerOptions()


# ----------------------------------------------------------------------------------------------------
# `[quotas]`: how client quotas are measured and enforced, and where they are defined.

OLD_SCOPE: Final = "gateway"  # how scope "cluster" was called
_CLIENT_ID_CHARACTERS_MAX: Final = 32767  # a STRING's length is an INT16


def _client_rates(value: object) -> dict[str, object]:
    """Split KIP-13's static overrides, `clientA:4M,clientB:10M`, into client ids and rates.

    The last colon divides, so a client id may hold colons. It cannot hold a comma here: the quotas file can.
    """
    if not isinstance(value, str):
        raise ValueError('must be a string of client ids and rates: "clientA:4M,clientB:10M"')
    found: dict[str, object] = {}
    for part in value.split(",") if value.strip() else ():
        client_id, colon, digits = part.strip().rpartition(":")
        if not colon or not client_id or len(client_id) > _CLIENT_ID_CHARACTERS_MAX:
            raise ValueError(f"{part.strip()!r} is not client id, colon and rate, as clientA:4M")
        if client_id in found:
            raise ValueError(f"client id {client_id!r} is given twice")
        found[client_id] = digits
    return found


_Principals = Annotated[tuple[str, ...], Key(words={"": ()}, must="must be a list of principals' names")]
_Overrides = Annotated[
    Mapping[Annotated[str, Key(parse=str)], Rate], Key(parse=_client_rates, unit="bytes/s")
]


class QuotaSettings(Options, frozen=True):
    """`[quotas]`: how client quotas are measured and enforced, and where they are defined."""

    file: Annotated[Path | None, NONE, LIVE] = None
    store: Literal["file", "topic", "cluster"] = "file"
    topic: str = "__sluice-quotas"
    audit_topic: Annotated[str, Key(words={"": ""})] = "__sluice-audit"
    audit_retention_seconds: Annotated[int | None, number(60, 2**31, "seconds")] = None
    alter_principals: Annotated[_Principals, LIVE] = ()
    describe_principals: Annotated[_Principals, LIVE] = ("*",)
    policy: Annotated[Policy, LIVE] = "schedule"
    mode: Annotated[Mode, LIVE] = "enforce"
    scope: Annotated[Scope, Key(words={OLD_SCOPE: "cluster"})] = "broker"
    window_samples: Annotated[int, LIVE, number(2, 3600, "windows")] = 11
    window_seconds: Annotated[int, LIVE, number(1, 3600, "seconds")] = 1
    burst_seconds: Annotated[float, LIVE, number(0, 3600, "seconds of quota")] = 1.0
    # Below the request timeouts that clients come with.
    hold_seconds_max: Annotated[float, LIVE, number(0, 3600, "seconds")] = 15.0
    mute_seconds_max: Annotated[float, LIVE, number(0.001, DAY_SECONDS, "seconds")] = 20.0
    new_connections: Annotated[NewConnections, LIVE] = "held"
    partition_mutations_rate: Annotated[Positive | None, LIVE, Key(unit="partitions/s")] = None
    partition_mutations_burst: Annotated[Positive | None, LIVE, Key(unit="partitions")] = None
    charge_validate_only: Annotated[bool, LIVE] = True
    charge_auto_created: Annotated[bool, LIVE] = True
    unknown_users: Annotated[UnknownUsers, LIVE] = "none"
    producer_default: Annotated[Rate | None, LIVE] = None
    producer_override: Annotated[_Overrides, LIVE] = _EMPTY
    consumer_default: Annotated[Rate | None, LIVE] = None
    consumer_override: Annotated[_Overrides, LIVE] = _EMPTY


# ----------------------------------------------------------------------------------------------------
# `[replication]`: the throttle of replication between brokers, and the source of its settings (KIP-73). The keys have
# the names of Kafka's dynamic configs. A malformed entry of a list is a warning and not an error; the others apply.

TOPICS_MAX: Final = 100_000


def _replicas(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError('must be a string: "0:1,1:2" or "*"')
    return value


_ReplicaLists = Annotated[
    Mapping[str, Annotated[str, Key(parse=_replicas)]],
    LIVE,
    Key(
        range=Meta(max_length=TOPICS_MAX),
        must=f'must be a table of at most {TOPICS_MAX} topics: {{ "topic-a" = "0:1,1:2", "topic-b" = "*" }}',
    ),
]


_WEIGHT: Final = Key(
    range=Meta(gt=0, le=WEIGHT_MAX), must=f"must be greater than 0 and at most {WEIGHT_MAX:.0f}"
)


class ReplicationSettings(Options, frozen=True):
    """`[replication]`: which replicas are throttled (KIP-73), and to which rates."""

    throttled: Annotated[Literal["off", "cluster", "file", "reassignments"], LIVE] = "cluster"
    policy: Annotated[ReplicationPolicy, LIVE, one_of("kip73", "schedule")] = "schedule"
    window_samples: Annotated[int, LIVE, number(2, 3600, "windows")] = 11
    window_seconds: Annotated[int, LIVE, number(1, 3600, "seconds")] = 1
    leader_rate: Annotated[Rate | None, LIVE] = None
    follower_rate: Annotated[Rate | None, LIVE] = None
    leader_rate_ceiling: Annotated[Rate | None, LIVE] = None
    follower_rate_ceiling: Annotated[Rate | None, LIVE] = None
    weight: Annotated[float, LIVE, _WEIGHT] = 1.0
    leader_throttled_replicas: _ReplicaLists = _EMPTY
    follower_throttled_replicas: _ReplicaLists = _EMPTY

    @property
    def options(self) -> ReplicationOptions:
        """The policy and the window of the replication quotas, for their engine."""
        return ReplicationOptions(
            policy=self.policy, window_samples=self.window_samples, window_seconds=self.window_seconds
        )

    def terms(self) -> Mapping[str, Terms]:
        """Return the terms on which replication shares capacities, by quota key; none without ceilings."""
        if self.throttled in ("off", "cluster") or self.policy != "schedule":
            return {}
        return replication_terms(
            self._terms(self.leader_rate, self.leader_rate_ceiling),
            self._terms(self.follower_rate, self.follower_rate_ceiling),
        )

    def _terms(self, rate: float | None, ceiling: float | None) -> Terms | None:
        if not rate or ceiling is None:
            return None
        return Terms(rate, max(rate, ceiling), self.weight)

    def lists(self) -> tuple[Mapping[str, ReplicaList], Mapping[str, ReplicaList]]:
        """Return `leader_throttled_replicas` and `follower_throttled_replicas`, parsed, by topic."""
        leaders, followers = self.leader_throttled_replicas, self.follower_throttled_replicas
        return (
            {topic: parse_replicas(text)[0] for topic, text in leaders.items()},
            {topic: parse_replicas(text)[0] for topic, text in followers.items()},
        )


# ----------------------------------------------------------------------------------------------------
# `[fleet]`: the processes that share every client's budget, and how the one is found that leases the shares. Without
# `bind` and `holder` the section has no effect, and this process uses the whole of each quota. Shares are computed in
# `quotas.sharing`.

MEMBERS_MAX: Final = 256
_NAME_CHARACTERS_MAX: Final = 64


def _member_name(value: object) -> str:
    if not isinstance(value, str) or not (value.isascii() and value.isprintable() and value.strip() == value):
        raise ValueError("must be a name of printable ASCII")
    if not 1 <= len(value) <= _NAME_CHARACTERS_MAX:
        raise ValueError(f"must have 1 to {_NAME_CHARACTERS_MAX} characters")
    return value


_NO_BOOTSTRAP: Final = MappingProxyType({"bootstrap": "it is the key fleet.bootstrap"})
MemberName = Annotated[str, Key(parse=_member_name)]


class FleetOptions(Options, frozen=True):
    """`[fleet]`: whether and how this process shares the quotas with other processes (members).

    One of them, the holder, leases shares of each quota to all.
    """

    name: MemberName = ""
    members_max: Annotated[int, LIVE, number(1, MEMBERS_MAX, "members")] = 8
    bind: Annotated[Address | None, NONE] = None
    advertised: Address | None = None
    group: str = "__sluice"
    parts: Annotated[int, number(1, PARTS_MAX, "parts")] = 1
    bootstrap: Addresses = ()
    cluster: Annotated[ClusterOptions | None, Key(refused=_NO_BOOTSTRAP)] = None
    holder: Address | None = None
    secret_file: Path | None = None
    tls: FleetTls | None = None
    cut_off: Literal["share", "least"] = "share"

    @property
    def configured(self) -> bool:
        """Whether this process is a member of a fleet."""
        return self.bind is not None or self.holder is not None

    @property
    def own_name(self) -> str:
        """The name of this member: the key `name`, by default the host's name."""
        return self.name or socket.gethostname()[:_NAME_CHARACTERS_MAX] or "sluice"

    @property
    def own_address(self) -> Address | None:
        """The address at which other members reach this one; None: it cannot be the holder."""
        if self.advertised is not None or self.bind is None:
            return self.advertised
        return Address(self.own_name, self.bind.port) if self.bind.host in WILDCARDS else self.bind

    @property
    def holds_by_name(self) -> bool:
        """Whether `holder` names this member: it has this member's own address."""
        return self.bind is not None and self.holder is not None and self.holder == self.own_address

    @property
    def may_hold(self) -> bool:
        """Whether this member can be the holder: `holder` names it, or the Kafka group can choose it."""
        return self.holds_by_name or (self.holder is None and self.bind is not None)

    @property
    def has_group(self) -> bool:
        """Whether this member joins the Kafka group that chooses the holder."""
        return self.bind is not None and self.holder is None

    def settled(self, path: str) -> Self:
        """Fill in `cluster` with `bootstrap`; without `bootstrap` it is None: `[cluster]` applies to the fleet too."""
        if self.bootstrap:
            return replace(self, cluster=replace(self.cluster or ClusterOptions(), bootstrap=self.bootstrap))
        if self.cluster is not None:
            raise ConfigError(f"{path}.bootstrap", "must name the brokers for which [fleet.cluster] is")
        return self


# ----------------------------------------------------------------------------------------------------
# `[reassignment]`: whether reassignments are executed in small batches, and the limits (KIP-435). The limits have the
# names of the proposal's configs. They apply from the next step on, not to a step under way.

TOPIC: Final = "topic"
_COUNT_MAX: Final = 1_000_000
_Cap = Annotated[int | None, LIVE, number(1, _COUNT_MAX, "replicas")]


def _journal(value: object) -> str:
    """Return a directory as text; one that is named "topic" becomes "./topic"."""
    found = str(parse_path(value))
    return f"./{found}" if found == TOPIC else found


class ReassignmentSettings(Options, frozen=True):
    """`[reassignment]`: whether reassignments are executed in small batches, and the limits of a batch (KIP-435).

    `journal` is a directory, "topic", or empty for the default directory.
    """

    mode: Literal["pass", "batch"] = "pass"
    journal: Annotated[str, Key(parse=_journal, words={TOPIC: TOPIC, "file": "", "": ""})] = ""
    journal_topic: str = "__sluice-reassignments"
    parallel_replica_count: Annotated[int, LIVE, number(1, _COUNT_MAX, "replicas")] = 1
    parallel_partition_count: Annotated[int, LIVE, number(1, _COUNT_MAX, "partitions")] = 10
    parallel_leader_movements: Annotated[int, LIVE, number(1, _COUNT_MAX, "partitions")] = 2
    max_concurrent_replica_movements: Annotated[int, LIVE, number(1, _COUNT_MAX, "replicas")] = 20
    max_movements_in_per_broker: _Cap = None
    max_movements_out_per_broker: _Cap = None
    dead_target_seconds: Annotated[float, LIVE, number(0, 7 * DAY_SECONDS, "seconds")] = 300.0
    moves_max: Annotated[int, LIVE, number(1, _COUNT_MAX, "partitions")] = 20_000

    @property
    def batches(self) -> bool:
        """Whether reassignments are executed in batches."""
        return self.mode == "batch"

    @property
    def in_topic(self) -> bool:
        """Whether there is a journal, and it is in a topic."""
        return self.batches and self.journal == TOPIC

    @property
    def directory(self) -> Path | None:
        """The directory of a journal in a file; None for a journal in a topic, or without one."""
        return Path(self.journal) if self.journal and self.journal != TOPIC else None

    @property
    def limits(self) -> BatchLimits:
        """The limits of a batch: how many replicas and partitions move at a time."""
        return BatchLimits(
            parallel_replica_count=self.parallel_replica_count,
            parallel_partition_count=self.parallel_partition_count,
            parallel_leader_movements=self.parallel_leader_movements,
            max_concurrent_replica_movements=self.max_concurrent_replica_movements,
            max_movements_in_per_broker=self.max_movements_in_per_broker,
            max_movements_out_per_broker=self.max_movements_out_per_broker,
        )


# ----------------------------------------------------------------------------------------------------
# The small tables


class CaptureOptions(Options, frozen=True):
    """`[capture]`: the recording of requests in Parquet files, one row for each request."""

    directory: Annotated[Path | None, NONE] = None
    rotate_bytes: Annotated[int, number(10_000, 10**12, "bytes")] = 128_000_000
    rotate_seconds: Annotated[float, number(1, DAY_SECONDS, "seconds")] = 300.0
    max_bytes: Annotated[int, number(10_000, 10**15, "bytes")] = 10_000_000_000
    frames: Annotated[str, one_of(*FRAMES)] = "off"
    sample: Annotated[Share, Key(unit="share of connections")] = 1.0
    partition_sample: Annotated[Share, Key(unit="share of large requests and responses")] = 0.05


AUTO: Final = 0  # `workers = "auto"`
WORKERS_MAX: Final = 64


class ProcessOptions(Options, frozen=True):
    """`[process]`: how many worker processes relay traffic; AUTO (0) for one on each core."""

    workers: Annotated[int, number(1, WORKERS_MAX, "processes"), Key(words={"auto": AUTO})] = 1


class AdminOptions(Options, frozen=True):
    """`[admin]`: the HTTP port for operators, and what its clients have to show."""

    bind: Annotated[Address | None, NONE] = Address("127.0.0.1", 19080)
    hosts: Annotated[tuple[Host, ...], Key(words={"": ()}, must="must be a list of host names")] = ()
    actions_from: Annotated[Networks, Key(words={"": ()})] = (ip_network("127.0.0.0/8"), ip_network("::1"))
    token_file: Annotated[Path | None, NONE] = None
    tls: PortTls | None = None

    @property
    def scheme(self) -> str:
        """The scheme of the port's URLs: "https" with TLS, else "http"."""
        return "http" if self.tls is None else "https"


class StateOptions(Options, frozen=True):
    """`[state]`: the directory of files that survive a restart, such as brokers' addresses; None to keep none."""

    directory: Annotated[Path | None, NONE] = None


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
LOG_LEVELS: Final = get_args(LogLevel)
LOG_FORMATS: Final = get_args(LogFormat)


class LogOptions(Options, frozen=True):
    """`[log]`: the level and the format of the lines on standard error."""

    level: Annotated[LogLevel, LIVE] = "info"
    format: LogFormat = "text"


# ----------------------------------------------------------------------------------------------------
# The whole


class Source(Options, frozen=True):
    """What a configuration was read from, so that it can be read again.

    Args:
        path: the file; None without one.
        environ: the overriding variables only (`SLUICE_ADMIN__BIND`).
        overrides: the command line's settings, as TOML tables. They override the environment.
        quota_text: `[[quota]]` tables from the command line, in the quotas file's format.
    """

    path: Path | None = None
    environ: Mapping[str, str] = _EMPTY
    overrides: Mapping[str, Any] = _EMPTY
    quota_text: str = ""


class Config(Options, frozen=True):
    """The whole configuration; its fields are the tables.

    Args:
        source: what it was read from.
        warnings: sentences, logged at start, about valid settings that are probably mistakes.
    """

    cluster: ClusterOptions = ClusterOptions()
    listeners: tuple[ListenerOptions, ...] = ()
    quotas: QuotaSettings = QuotaSettings()
    replication: ReplicationSettings = ReplicationSettings()
    fleet: FleetOptions = FleetOptions()
    reassignment: ReassignmentSettings = ReassignmentSettings()
    capture: CaptureOptions = CaptureOptions()
    limits: LimitOptions = LimitOptions()
    process: ProcessOptions = ProcessOptions()
    admin: AdminOptions = AdminOptions()
    state: StateOptions = StateOptions()
    log: LogOptions = LogOptions()
    source: Source = Source()
    warnings: tuple[str, ...] = ()

    @property
    def fleet_cluster(self) -> ClusterOptions:
        """The cluster that has the fleet's Kafka group and Sluice's own topics: `[fleet.cluster]`, else `[cluster]`."""
        return self.cluster if self.fleet.cluster is None else self.fleet.cluster

    @property
    def keeps_topics(self) -> bool:
        """Whether quotas or the journal are kept in topics of Sluice's own."""
        return self.quotas.store == "topic" or self.reassignment.in_topic

    @property
    def fleet_bootstrap_key(self) -> str:
        """The key that names the brokers of `fleet_cluster`."""
        return "cluster.bootstrap" if self.fleet.cluster is None else "fleet.bootstrap"

    @property
    def replicates(self) -> bool:
        """Whether followers fetch from leaders through this process (KIP-73)."""
        return any(listener.replicates for listener in self.listeners)

    def upstreams(self, *, replicates: bool) -> dict[int, Address]:
        """Return the addresses of brokers, by id, that the listeners' `upstreams` name.

        Args:
            replicates: True for the listeners for replication, False for those for clients.
        """
        return {
            broker: address
            for listener in self.listeners
            if listener.replicates is replicates
            for broker, address in listener.upstreams.items()
        }

    @property
    def bootstrap_behind(self) -> Address | None:
        """The first bootstrap address of `fleet_cluster` that is also an upstream of a listener; None without one.

        Such a broker advertises Sluice's address to Sluice too, which would then connect to itself.
        """
        behind = {address for listener in self.listeners for address in listener.upstreams.values()}
        return next((address for address in self.fleet_cluster.bootstrap if address in behind), None)

    def trusts(self, listener: ListenerOptions) -> bool:
        """Whether clients of this listener may alter quotas without a permission: only this machine can reach it.

        False with the PROXY protocol, since the load balancer accepts other machines' connections. False also if
        Sluice's own login uses SASL, since clients then have users, who can have permissions.
        """
        return listener.loopback and not listener.proxy_protocol and not self.cluster.sasl_mechanism


TABLES: Final = tuple(name for name in keys_of(Config) if name not in ("source", "warnings"))
SECTIONS: Final[Mapping[str, type[Options]]] = {
    name: keys_of(Config)[name].type for name in TABLES if name != "listeners"
}


# ----------------------------------------------------------------------------------------------------
# `[leases]`: what `[fleet]` was called while processes shared followers' quotas only (KIP-73). It is still read: its
# keys become those of `[fleet]`, with a warning that names them. A process that cannot be told to be the holder is
# none, since two holders would each lease the whole of a quota.

PEERS_MAX: Final = 64


class LeaseOptions(Options, frozen=True):
    """`[leases]`, as earlier releases called `[fleet]`; still read, with a warning.

    `seconds`, and the names in `peers`, have no equivalent in `[fleet]`.
    """

    peers: Annotated[
        tuple[MemberName, ...],
        Key(range=Meta(min_length=2, max_length=PEERS_MAX), must=f"must be 2 to {PEERS_MAX} names"),
    ] = ()
    name: MemberName = ""
    holder: Address | None = None
    bind: Annotated[Address | None, NONE] = None
    seconds: Annotated[float | None, number(1, 60)] = None
    secret_file: Path | None = None

    def settled(self, path: str) -> Self:
        """Check that `peers` has no name twice."""
        if len(set(self.peers)) < len(self.peers):
            raise ConfigError(f"{path}.peers", "each peer must have its own name", list(self.peers))
        return self

    def as_fleet(self, fleet: FleetOptions, *, replicates: bool) -> tuple[FleetOptions, list[str]]:
        """Return the options of `[fleet]` that have the same meaning as this section, and warnings.

        Args:
            fleet: the options of `[fleet]`; if they make this process a member, they apply, and this section does not.
            replicates: whether brokers replicate through this process.

        Raises:
            ConfigError: the section is invalid, as it was in earlier releases.
        """
        self._check(replicates=replicates)
        if not self.peers:
            return fleet, []
        if fleet.configured:
            return fleet, ["leases: has no effect with [fleet], which shares followers' quotas too"]
        if not replicates and self.bind is None:
            problem = 'has no effect without a listener of kind "replication", and without leases.bind'
            return fleet, [f"leases: {problem}"]
        found = replace(
            fleet,
            name=self.name,
            members_max=len(self.peers),
            bind=self.bind,
            holder=self.holder,
            secret_file=self.secret_file,
        )
        if self.holder is None:
            found = replace(found, holder=found.own_address)
        elif self._holds(self.holder):
            found = replace(found, advertised=self.holder)
        return found, list(self._warnings(found))

    def _check(self, *, replicates: bool) -> None:
        if not self.peers:
            for name in ("name", "holder", "bind", "secret_file"):
                if getattr(self, name):
                    raise ConfigError("leases.peers", f"is needed with leases.{name}")
            return
        if replicates and not self.name:
            raise ConfigError("leases.name", "must be this process's name in leases.peers")
        if replicates and self.holder is None:
            raise ConfigError("leases.holder", "must be the lease holder's address, its leases.bind")
        if self.name and self.name not in self.peers:
            raise ConfigError("leases.name", "is not one of leases.peers", self.name)

    def _holds(self, holder: Address) -> bool:
        """Whether the holder's address is certainly this process's; names are not resolved."""
        bind = self.bind
        if bind is None or bind.port != holder.port:
            return False
        host = socket.gethostname()
        if holder.host in LOOPBACK_HOSTS and bind.host in (*WILDCARDS, *LOOPBACK_HOSTS):
            return True
        return holder.host in (bind.host, self.name, host, host.partition(".")[0])

    def _warnings(self, fleet: FleetOptions) -> Iterator[str]:
        keys: Mapping[str, object] = {
            "name": fleet.name,
            "members_max": fleet.members_max,
            "bind": fleet.bind if fleet.holds_by_name else None,
            "advertised": None if fleet.advertised == fleet.bind else fleet.advertised,
            "holder": fleet.holder,
            "secret_file": fleet.secret_file,
        }
        written = ", ".join(
            f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"'
            for name, value in keys.items()
            if value
        )
        yield f"leases: is replaced by [fleet], which shares clients' quotas too; write there {written}"
        if self.seconds is not None:
            yield "leases.seconds: has no equivalent: leases of a fleet last 15 s"
        if self.bind is not None and not fleet.holds_by_name:
            yield (
                f"leases.bind: has no effect: leases.holder, {fleet.holder}, is not known to be this process; if it "
                f'is, write [fleet] with advertised = "{fleet.holder}"'
            )
