"""The frozen options of one proxy: made by `proxy.config.parser`, read by all other packages.

Each field carries its key (see `proxy.config.readers`); its name is the key's name. The larger tables have modules of
their own (`*_options`); the small ones are here, with the whole.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Final

from protocol.capture import FRAMES
from proxy.config import readers
from proxy.config.readers import Address, Network, build, key
from proxy.config.tls import (
    ClusterTls,
    FleetTls,
    ListenerTls,
    read_cluster_tls,
    read_fleet_tls,
    read_listener_tls,
)
from proxy.system.errors import ConfigError
from quotas.options import Mode, NewConnections, Policy, Scope, UnknownUsers
from quotas.reassignment.batch import BatchLimits
from quotas.replication.replication_quotas import (
    ReplicaList,
    ReplicationOptions,
    ReplicationPolicy,
    parse_replicas,
)

DAY_SECONDS: Final = 86400


# ----------------------------------------------------------------------------------------------------
# `[capture]`: the recording of requests, one row each.


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """`[capture]`."""

    directory: Path | None = field(
        default=None, metadata=key(readers.optional_file_path, "path", default="none: no capture")
    )
    rotate_bytes: int = field(
        default=128_000_000, metadata=key(readers.count(10_000, 10**12), "number", unit="bytes")
    )
    rotate_seconds: float = field(
        default=300.0, metadata=key(readers.seconds(1, DAY_SECONDS), "number", unit="seconds")
    )
    max_bytes: int = field(
        default=10_000_000_000, metadata=key(readers.count(10_000, 10**15), "number", unit="bytes")
    )
    frames: str = field(default="off", metadata=key(readers.choice(*FRAMES), '"off", "blank" or "keep"'))
    sample: float = field(default=1.0, metadata=key(readers.share, "number", unit="share of connections"))

    partition_sample: float = field(
        default=0.05, metadata=key(readers.share, "number", unit="share of large requests and responses")
    )

    def check(self) -> None:
        """Check that the bounds are consistent.

        Raises:
            ConfigError: they are not.
        """
        if self.max_bytes < self.rotate_bytes:
            problem = f"must be at least rotate_bytes, {self.rotate_bytes}: one file can be that large"
            raise ConfigError("capture.max_bytes", problem, self.max_bytes)

    def warnings(self) -> Iterator[str]:
        """Yield warnings about keys without effect."""
        if self.directory is None and self != CaptureOptions():
            yield "capture: nothing is captured without capture.directory"


# ----------------------------------------------------------------------------------------------------
# `[cluster]`: the brokers, and how Sluice logs in to them.


SASL_NAMED: Final = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
)  # of Sluice's own login (`kafka_client.connection`)
SASL_WITH_SECRET: Final = (*SASL_NAMED, "OAUTHBEARER")
WITHOUT_GROUPS: Final = "AWS_MSK_IAM"  # aiokafka, which groups and topics need, does not have it
SASL_MECHANISMS: Final = (*SASL_WITH_SECRET, "GSSAPI", WITHOUT_GROUPS)
UNSUPPORTED_KEYS: Final[Mapping[str, str]] = {"security_protocol": "it follows from sasl_mechanism and tls"}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """`[cluster]`: the brokers, for Sluice's own connection and for the bootstrap port."""

    bootstrap: tuple[Address, ...] = field(
        default=(),
        metadata=key(
            readers.addresses, "host:port, or several", default="the upstreams; needed without them"
        ),
    )
    sasl_mechanism: str = field(
        default="",
        metadata=key(
            readers.choice(*SASL_MECHANISMS),
            ", ".join(f'"{name}"' for name in SASL_MECHANISMS[:-1]) + f' or "{SASL_MECHANISMS[-1]}"',
            default="none: no SASL",
        ),
    )
    username: str = field(
        default="", metadata=key(readers.text, "text", default="none; needed with PLAIN and SCRAM")
    )
    password_file: Path | None = field(
        default=None,
        metadata=key(readers.file_path, "path", default="none; needed with PLAIN, SCRAM and OAUTHBEARER"),
    )
    password: str = field(
        default="", repr=False, metadata=key(readers.secret, "text", default="what `password_file` holds")
    )
    tls: ClusterTls | None = field(
        default=None, metadata=key(read_cluster_tls, "table", default="none: plaintext")
    )

    def with_absolute_paths(self, base: Path) -> "ClusterOptions":
        """Make its paths absolute."""
        return replace(
            self,
            password_file=None if self.password_file is None else base / self.password_file,
            tls=self.tls.with_absolute_paths(base) if self.tls else None,
        )

    def check(self, path: str) -> None:
        """Check that mechanism, user name and secret are complete.

        Raises:
            ConfigError: the login cannot work.
        """
        mechanism, has_secret = self.sasl_mechanism, bool(self.password or self.password_file)
        if not mechanism and (self.username or has_secret):
            raise ConfigError(f"{path}.sasl_mechanism", "is needed with a username and password")
        if mechanism in SASL_NAMED and not self.username:
            raise ConfigError(f"{path}.username", f"is needed with {mechanism}")
        if mechanism in SASL_WITH_SECRET and not has_secret:
            raise ConfigError(f"{path}.password_file", f"is needed with {mechanism}")
        if mechanism == WITHOUT_GROUPS and self.tls is None:
            raise ConfigError(f"{path}.tls", f"is needed with {WITHOUT_GROUPS}")


def read_login(path: str, value: object) -> ClusterOptions:
    """Read a table with the keys of `[cluster]`, whose brokers are named elsewhere."""
    if not isinstance(value, dict):
        raise ConfigError(path, f"must be a table: [{path}]", value)
    refused = {**UNSUPPORTED_KEYS, "bootstrap": f"it is the key {path.rpartition('.')[0]}.bootstrap"}
    known = [one for one in fields(ClusterOptions) if one.name != "bootstrap"]
    return build(ClusterOptions, known, path, value, refused)


# ----------------------------------------------------------------------------------------------------
# `[limits]`: the named maximum of everything a client can make grow.


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """`[limits]`: the named maximum of everything a client can make grow."""

    connections_max: int = field(
        default=20_000, metadata=key(readers.count(1, 1_000_000), "number", unit="connections")
    )
    connections_per_address_max: int | None = field(
        default=None,
        metadata=key(
            readers.count(1, 1_000_000),
            "number",
            unit="connections",
            default="none: a share, once it is full",
        ),
    )
    frame_bytes_max: int = field(
        default=100 * 1024**2, metadata=key(readers.count(1024, 2**31 - 1), "number", unit="bytes")
    )
    response_bytes_max: int = field(
        default=1024**3, metadata=key(readers.count(1024, 2**31 - 1), "number", unit="bytes")
    )
    client_ids_max: int = field(
        default=200_000, metadata=key(readers.count(1, 10_000_000), "number", unit="client ids")
    )
    sessions_max: int = field(
        default=20_000, metadata=key(readers.count(0, 1_000_000), "number", unit="fetch sessions")
    )
    kept_bytes_max: int = field(
        default=256 * 1024**2, metadata=key(readers.count(1024**2, 1024**5), "number", unit="bytes")
    )
    kept_bytes_per_connection_max: int = field(
        default=64 * 1024**2, metadata=key(readers.count(64 * 1024, 1024**5), "number", unit="bytes")
    )
    kept_bytes_per_address_max: int = field(
        default=0, metadata=key(readers.count(0, 1024**5), "number", unit="bytes", default="0: none")
    )
    pipes_max: int = field(default=64, metadata=key(readers.count(0, 65_536), "number", unit="pipes"))
    metric_series_max: int = field(
        default=2_000, metadata=key(readers.count(0, 1_000_000), "number", unit="series")
    )
    handshakes_max: int = field(
        default=1_000, metadata=key(readers.count(1, 1_000_000), "number", unit="connections")
    )
    handshake_seconds: float = field(
        default=10.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    connect_seconds: float = field(
        default=10.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    frame_seconds: float = field(
        default=60.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    idle_seconds: float = field(
        default=600.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds")
    )
    drain_seconds: float = field(
        default=20.0, metadata=key(readers.seconds(0, DAY_SECONDS), "number", unit="seconds")
    )


# ----------------------------------------------------------------------------------------------------
# `[[listeners]]`: the ports that clients and followers connect to.


BROKERS_NAMED_MAX: Final = 10  # in one message


def _no_upstreams() -> Mapping[int, Address]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """`[[listeners]]`: the ports clients connect to, one for each broker and one that reaches any."""

    name: str = field(default="clients", metadata=key(readers.text, "text"))
    kind: str = field(
        default="clients",
        metadata=key(readers.choice("clients", "replication"), '"clients" or "replication"'),
    )
    bind: str = field(default="127.0.0.1", metadata=key(readers.host, "host"))
    advertised_host: str = field(default="", metadata=key(readers.host, "host", default="`bind`"))
    bootstrap_port: int = field(default=19090, metadata=key(readers.port, "port"))
    first_broker_port: int = field(default=19100, metadata=key(readers.port, "port"))
    broker_id_max: int = field(default=63, metadata=key(readers.count(0, 65534), "number", unit="broker id"))
    advertised_bootstrap_port: int = field(
        default=0, metadata=key(readers.port, "port", default="`bootstrap_port`")
    )
    advertised_first_broker_port: int = field(
        default=0, metadata=key(readers.port, "port", default="`first_broker_port`")
    )
    upstreams: Mapping[int, Address] = field(
        default_factory=_no_upstreams,
        metadata=key(readers.upstreams, "table of broker id = host:port", default="none: a gateway"),
    )
    reuse_port: bool = field(default=False, metadata=key(readers.boolean, "true or false"))
    oauth_claim: str = field(default="sub", metadata=key(readers.text, "text"))
    proxy_protocol: bool = field(default=False, metadata=key(readers.boolean, "true or false"))
    proxy_protocol_sources: tuple[Network, ...] = field(
        default=(),
        metadata=key(readers.networks, "network, or several", default="none; needed with `proxy_protocol`"),
    )
    tls: ListenerTls | None = field(
        default=None, metadata=key(read_listener_tls, "table", default="none: plaintext")
    )

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
        try:
            return ip_address(self.bind).is_loopback
        except ValueError:
            return self.bind == "localhost"

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The brokers whose ports are bound at start."""
        return tuple(self.upstreams) if self.upstreams else tuple(range(self.broker_id_max + 1))

    def broker_port(self, broker_id: int) -> int:
        """Return the port that is bound for a broker."""
        return self.first_broker_port + broker_id

    def advertised_broker(self, broker_id: int) -> Address | None:
        """Return the address of a broker that clients see; None if it has no port."""
        if not 0 <= broker_id <= self.broker_id_max:
            return None
        return Address(self.advertised_host, self.advertised_first_broker_port + broker_id)

    def without_port(self, brokers: Iterable[int]) -> list[int]:
        """Return the brokers that clients cannot be led to, in order; a sidecar leads nobody."""
        return [] if self.sidecar else sorted(broker for broker in brokers if broker > self.broker_id_max)

    def port_problem(self, missing: Sequence[int]) -> str:
        """Return what brokers without a port mean to clients, and what to write; `missing` is not empty.

        >>> ListenerOptions(broker_id_max=3).port_problem([1001])
        'listener "clients" has no port for broker 1001, so clients do not learn of it: write broker_id_max = 1001 \
(now 3) and restart'
        """
        names = ", ".join(map(str, missing[:BROKERS_NAMED_MAX]))
        more = len(missing) - BROKERS_NAMED_MAX
        highest = missing[-1]
        last = max(self.first_broker_port, self.advertised_first_broker_port) + highest
        remedy = f"write broker_id_max = {highest} (now {self.broker_id_max}) and restart"
        if last > readers.PORT_MAX:
            remedy = f"there are ports for ids up to {readers.PORT_MAX - last + highest} alone; give it a lower node.id"
        return (
            f'listener "{self.name}" has no port for broker {names}{f" and {more} more" if more > 0 else ""}, so '
            f"clients do not learn of it: {remedy}"
        )


# ----------------------------------------------------------------------------------------------------
# `[process]`: how many processes relay. One per core relays what one per core can; the rest is in
# `proxy.process`.


AUTO: Final = 0  # `workers = "auto"`
WORKERS_MAX: Final = 64
_read_count: Final = readers.count(1, WORKERS_MAX)


def _workers(path: str, value: object) -> int:
    return AUTO if value == "auto" else _read_count(path, value)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """`[process]`."""

    workers: int = field(default=1, metadata=key(_workers, 'number or "auto"', unit="processes"))


# ----------------------------------------------------------------------------------------------------
# `[quotas]`: how client quotas are measured and enforced, and where they are defined.


OLD_SCOPE: Final = "gateway"  # how scope "cluster" was called


def _scope(path: str, value: object) -> str:
    return readers.choice("broker", "cluster")(path, "cluster" if value == OLD_SCOPE else value)


def _no_rates() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """`[quotas]`: how client quotas are measured and enforced, and where they are defined."""

    file: Path | None = field(
        default=None,
        metadata=key(
            readers.optional_file_path, "path", live=True, default="none: nothing but static settings"
        ),
    )
    store: str = field(
        default="file",
        metadata=key(readers.choice("file", "topic", "cluster"), '"file", "topic" or "cluster"'),
    )
    topic: str = field(default="__sluice-quotas", metadata=key(readers.text, "topic"))
    audit_topic: str = field(
        default="__sluice-audit", metadata=key(readers.optional_text, 'topic, or "" for none')
    )
    audit_retention_seconds: int | None = field(
        default=None,
        metadata=key(readers.count(60, 2**31), "number", unit="seconds", default="the brokers' default"),
    )
    alter_principals: tuple[str, ...] = field(
        default=(), metadata=key(readers.principals, "name, or several", live=True, default="none")
    )
    describe_principals: tuple[str, ...] = field(
        default=("*",),
        metadata=key(readers.principals, "name, or several", live=True, default='"*": every principal'),
    )
    policy: Policy = field(
        default="schedule",
        metadata=key(readers.choice("schedule", "kip13"), '"schedule" or "kip13"', live=True),
    )
    mode: Mode = field(
        default="enforce",
        metadata=key(
            readers.choice("enforce", "observe"),
            '"enforce" or "observe"',
            live=True,
            default='`"enforce"`; `"observe"` with `store = "cluster"`',
        ),
    )
    scope: Scope = field(
        default="broker",
        metadata=key(
            _scope,
            '"broker" or "cluster"',
            default='`"cluster"` of a gateway; `"broker"` of sidecars, and with `store = "cluster"`',
        ),
    )
    window_samples: int = field(
        default=11, metadata=key(readers.count(2, 3600), "number", unit="windows", live=True)
    )
    window_seconds: int = field(
        default=1, metadata=key(readers.count(1, 3600), "number", unit="seconds", live=True)
    )
    burst_seconds: float = field(
        default=1.0, metadata=key(readers.seconds(0, 3600), "number", unit="seconds of quota", live=True)
    )
    hold_seconds_max: float = field(
        default=15.0,  # below the request timeouts that clients come with
        metadata=key(
            readers.seconds(0, 3600),
            "number",
            unit="seconds",
            live=True,
            default="15 in `schedule`; always 0 in `kip13`",
        ),
    )
    mute_seconds_max: float = field(
        default=20.0, metadata=key(readers.seconds(0.001, DAY_SECONDS), "number", unit="seconds", live=True)
    )
    new_connections: NewConnections = field(
        default="held",
        metadata=key(readers.choice("held", "as-kafka"), '"held" or "as-kafka"', live=True),
    )
    partition_mutations_rate: float | None = field(
        default=None,
        metadata=key(readers.positive, "number", unit="partitions/s", live=True, default="unlimited"),
    )
    partition_mutations_burst: float | None = field(
        default=None,
        metadata=key(
            readers.positive, "number", unit="partitions", live=True, default="the rate times all windows"
        ),
    )
    charge_validate_only: bool = field(
        default=True, metadata=key(readers.boolean, "true or false", live=True)
    )
    charge_auto_created: bool = field(default=True, metadata=key(readers.boolean, "true or false", live=True))
    unknown_users: UnknownUsers = field(
        default="none",
        metadata=key(readers.choice("none", "default", "refuse"), '"none", "default" or "refuse"', live=True),
    )
    producer_default: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    producer_override: Mapping[str, int] = field(
        default_factory=_no_rates,
        metadata=key(readers.client_rates, "client:rate, …", unit="bytes/s", live=True, default="none"),
    )
    consumer_default: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    consumer_override: Mapping[str, int] = field(
        default_factory=_no_rates,
        metadata=key(readers.client_rates, "client:rate, …", unit="bytes/s", live=True, default="none"),
    )


# ----------------------------------------------------------------------------------------------------
# `[reassignment]`: whether reassignments are executed in small batches, and the limits (KIP-435).
#
# The limits have the names of the proposal's configs. They apply from the next step on, not to a step under
# way.


_COUNT_MAX: Final = 1_000_000
_DAY_SECONDS: Final = 86400
TOPIC: Final = "topic"
_FILE: Final = "file"


def _limit(default: int, unit: str) -> int:
    found: int = field(
        default=default, metadata=key(readers.count(1, _COUNT_MAX), "number", unit=unit, live=True)
    )
    return found


def _cap() -> int | None:
    found: int | None = field(
        default=None,
        metadata=key(readers.count(1, _COUNT_MAX), "number", unit="replicas", live=True, default="unlimited"),
    )
    return found


def _journal(path: str, value: object) -> Path | str | None:
    """Read where the journal is; "file" is the default directory, and a directory called topic is "./topic"."""
    if value == TOPIC:
        return TOPIC
    return None if value == _FILE else readers.optional_file_path(path, value)


@dataclass(frozen=True, slots=True)
class ReassignmentSettings:
    """`[reassignment]`."""

    mode: str = field(default="pass", metadata=key(readers.choice("pass", "batch"), '"pass" or "batch"'))
    journal: Path | str | None = field(
        default=None,
        metadata=key(
            _journal,
            'path, "file" or "topic"',
            default='`reassignment` in `[state] directory`; needed with `mode = "batch"`',
        ),
    )
    journal_topic: str = field(default="__sluice-reassignments", metadata=key(readers.text, "topic"))
    parallel_replica_count: int = _limit(1, "replicas")
    parallel_partition_count: int = _limit(10, "partitions")
    parallel_leader_movements: int = _limit(2, "partitions")
    max_concurrent_replica_movements: int = _limit(20, "replicas")
    max_movements_in_per_broker: int | None = _cap()
    max_movements_out_per_broker: int | None = _cap()
    dead_target_seconds: float = field(
        default=300.0, metadata=key(readers.seconds(0, 7 * _DAY_SECONDS), "number", unit="seconds", live=True)
    )
    moves_max: int = field(
        default=20_000, metadata=key(readers.count(1, _COUNT_MAX), "number", unit="partitions", live=True)
    )

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
        """The directory of a journal on files."""
        return self.journal if isinstance(self.journal, Path) else None

    @property
    def limits(self) -> BatchLimits:
        """The planner's limits."""
        return BatchLimits(
            parallel_replica_count=self.parallel_replica_count,
            parallel_partition_count=self.parallel_partition_count,
            parallel_leader_movements=self.parallel_leader_movements,
            max_concurrent_replica_movements=self.max_concurrent_replica_movements,
            max_movements_in_per_broker=self.max_movements_in_per_broker,
            max_movements_out_per_broker=self.max_movements_out_per_broker,
        )

    def warnings(self) -> Iterator[str]:
        """Yield warnings about keys without effect."""
        if self.journal is not None and not self.batches:
            yield 'reassignment.journal: has no effect with mode = "pass"'


# ----------------------------------------------------------------------------------------------------
# `[replication]`: the throttle of replication between brokers, and the source of its settings (KIP-73).
#
# The keys have the names of Kafka's dynamic configs. A malformed entry of a list is a warning and not an
# error; the other
# entries apply.


TOPICS_MAX: Final = 100_000


def _lists(path: str, value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(
            path, 'must be a table of topics: { "topic-a" = "0:1,1:2", "topic-b" = "*" }', value
        )
    if len(value) > TOPICS_MAX:
        raise ConfigError(path, f"there may be at most {TOPICS_MAX} topics", len(value))
    for topic, text in value.items():
        if not isinstance(text, str):
            raise ConfigError(f"{path}.{topic}", 'must be a string: "0:1,1:2" or "*"', text)
    return MappingProxyType(dict(value))


def _no_lists() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """`[replication]`."""

    throttled: str = field(
        default="cluster",
        metadata=key(
            readers.choice("off", "cluster", "file", "reassignments"),
            '"off", "cluster", "file" or "reassignments"',
            live=True,
        ),
    )
    policy: ReplicationPolicy = field(
        default="schedule",
        metadata=key(readers.choice("kip73", "schedule"), '"kip73" or "schedule"', live=True),
    )
    window_samples: int = field(
        default=11, metadata=key(readers.count(2, 3600), "number", unit="windows", live=True)
    )
    window_seconds: int = field(
        default=1, metadata=key(readers.count(1, 3600), "number", unit="seconds", live=True)
    )
    leader_rate: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    follower_rate: int | None = field(
        default=None, metadata=key(readers.rate, "number", unit="bytes/s", live=True, default="unlimited")
    )
    leader_throttled_replicas: Mapping[str, str] = field(
        default_factory=_no_lists,
        metadata=key(_lists, "table of topic = replicas", live=True, default="none"),
    )
    follower_throttled_replicas: Mapping[str, str] = field(
        default_factory=_no_lists,
        metadata=key(_lists, "table of topic = replicas", live=True, default="none"),
    )

    @property
    def options(self) -> ReplicationOptions:
        """The options of the replication quotas."""
        return ReplicationOptions(
            policy=self.policy, window_samples=self.window_samples, window_seconds=self.window_seconds
        )

    def lists(self) -> tuple[Mapping[str, ReplicaList], Mapping[str, ReplicaList]]:
        """Return the leaders' and the followers' lists."""
        leaders, followers = self.leader_throttled_replicas, self.follower_throttled_replicas
        return (
            {topic: parse_replicas(text)[0] for topic, text in leaders.items()},
            {topic: parse_replicas(text)[0] for topic, text in followers.items()},
        )

    def warnings(self) -> Iterator[str]:
        """Yield warnings about invalid entries of the lists, and about keys without effect."""
        for name in ("leader_throttled_replicas", "follower_throttled_replicas"):
            for topic, text in getattr(self, name).items():
                for problem in parse_replicas(text)[1]:
                    yield f"replication.{name}.{topic}: {problem}; the rest of the list is used"
            if getattr(self, name) and self.throttled != "file":
                yield f'replication.{name}: has no effect with throttled = "{self.throttled}"'
        for name in ("leader_rate", "follower_rate"):
            if getattr(self, name) is not None and self.throttled in ("off", "cluster"):
                yield f'replication.{name}: has no effect with throttled = "{self.throttled}"'


# ----------------------------------------------------------------------------------------------------
# `[fleet]`: the processes that share every client's budget, and how the one is found that leases the shares.
#
# Without `bind` and `holder` the section has no effect, and this process uses the whole of each quota. Shares
# are
# computed in `quotas.sharing`.


MEMBERS_MAX: Final = 256
_NAME_CHARACTERS_MAX: Final = 64
WILDCARDS: Final = ("0.0.0.0", "::")
LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")


def member_name(path: str, value: object) -> str:
    """Read the name of a member."""
    if not isinstance(value, str) or not (value.isascii() and value.isprintable() and value.strip() == value):
        raise ConfigError(path, "must be a name of printable ASCII", value)
    if not 1 <= len(value) <= _NAME_CHARACTERS_MAX:
        raise ConfigError(path, f"must have 1 to {_NAME_CHARACTERS_MAX} characters", value)
    return value


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """`[fleet]`."""

    name: str = field(default="", metadata=key(member_name, "name", default="the host's name"))
    members_max: int = field(
        default=8, metadata=key(readers.count(1, MEMBERS_MAX), "number", unit="members", live=True)
    )
    bind: Address | None = field(
        default=None,
        metadata=key(
            readers.optional_address,
            'host:port, or "" for none',
            default="none; needed without `holder`",
        ),
    )
    advertised: Address | None = field(
        default=None,
        metadata=key(
            readers.address, "host:port", default="`bind`; `name` and its port where it is a wildcard"
        ),
    )
    group: str = field(default="__sluice", metadata=key(readers.text, "text"))
    bootstrap: tuple[Address, ...] = field(
        default=(), metadata=key(readers.addresses, "host:port, or several", default="`cluster.bootstrap`")
    )
    cluster: ClusterOptions | None = field(
        default=None, metadata=key(read_login, "table", default="with `bootstrap`: no SASL, plaintext")
    )
    holder: Address | None = field(
        default=None,
        metadata=key(readers.address, "host:port", default="none: the group chooses it"),
    )
    secret_file: Path | None = field(
        default=None, metadata=key(readers.file_path, "path", default="none: nothing is signed")
    )
    tls: FleetTls | None = field(
        default=None, metadata=key(read_fleet_tls, "table", default="none: plaintext")
    )
    cut_off: str = field(
        default="share", metadata=key(readers.choice("share", "least"), '"share" or "least"')
    )

    @property
    def configured(self) -> bool:
        """Whether this process is a member of a fleet."""
        return self.bind is not None or self.holder is not None

    @property
    def own_name(self) -> str:
        """The name of this member."""
        return self.name or socket.gethostname()[:_NAME_CHARACTERS_MAX] or "sluice"

    @property
    def own_address(self) -> Address | None:
        """The address at which other members reach this one; None: it cannot be the holder."""
        if self.advertised is not None or self.bind is None:
            return self.advertised
        return Address(self.own_name, self.bind.port) if self.bind.host in WILDCARDS else self.bind

    @property
    def holds_by_name(self) -> bool:
        """Whether this member is the holder that `holder` names."""
        return self.bind is not None and self.holder is not None and self.holder == self.own_address

    @property
    def may_hold(self) -> bool:
        """Whether this member may be the holder: it is named, or a group may choose it."""
        return self.holds_by_name or (self.holder is None and self.bind is not None)

    @property
    def has_group(self) -> bool:
        """Whether this member joins a group that chooses the holder."""
        return self.bind is not None and self.holder is None

    def settled(self, base: Path) -> "FleetOptions":
        """Make paths absolute, and complete `cluster`: None, or all that is known of the fleet's own cluster.

        Raises:
            ConfigError: there is a login and no cluster.
        """
        cluster = self.cluster
        if self.bootstrap:
            cluster = replace(cluster or ClusterOptions(), bootstrap=self.bootstrap).with_absolute_paths(base)
        elif cluster is not None:
            raise ConfigError("fleet.bootstrap", "must name the brokers for which [fleet.cluster] is")
        secret = None if self.secret_file is None else base / self.secret_file
        tls = None if self.tls is None else self.tls.with_absolute_paths(base)
        return replace(self, cluster=cluster, secret_file=secret, tls=tls)

    def check(self) -> None:
        """Check the keys against each other.

        Raises:
            ConfigError: the configuration cannot work.
        """
        if self.cluster is not None:
            self.cluster.check("fleet.cluster")
        if not self.configured:
            for name in ("name", "advertised", "tls"):  # the secret also signs records of topics
                if getattr(self, name):
                    raise ConfigError("fleet.bind", f"is needed with fleet.{name}, or fleet.holder")
            return
        if self.advertised is not None and self.bind is None:
            raise ConfigError("fleet.bind", "is needed with fleet.advertised")
        if self.may_hold and self.tls is not None and self.tls.cert_file is None:
            raise ConfigError(
                "fleet.tls.cert_file", "must name the certificate of this member's port, a PEM file"
            )

    def warnings(self, *, windows: bool) -> Iterator[str]:
        """Yield warnings about valid keys that are probably mistakes.

        Args:
            windows: whether followers' quotas are measured in windows (`kip73`).
        """
        if self.configured and windows:
            yield (
                "fleet: with replication.policy kip73 shares hold on an average of all windows only, and a share"
                ' that grows brings what its windows have room for; "schedule" is exact'
            )
        if self.has_group and self.secret_file is None:
            yield (
                "fleet.group: every client that may join it can be the holder, and set what all members may use; "
                "fleet.secret_file prevents that (sluice fleet secret makes one)"
            )
        if not self.may_hold or self.bind is None:
            return
        proven = self.tls is not None and self.tls.client_auth == "required"
        if self.secret_file is None and not proven and self.bind.host not in LOOPBACK_HOSTS:
            yield "fleet.bind: every host that reaches it may take shares; fleet.secret_file prevents that"


LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")
LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1"))


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """`[admin]`: the HTTP port for operators."""

    bind: Address | None = field(
        default=Address("127.0.0.1", 19080),
        metadata=key(readers.optional_address, 'host:port, or "" for none'),
    )
    hosts: tuple[str, ...] = field(
        default=(), metadata=key(readers.hosts, "host, or several", default="none but `bind`'s own")
    )
    actions_from: tuple[Network, ...] = field(
        default=LOOPBACK,
        metadata=key(
            readers.optional_networks,
            'network, or several, or "" for none',
            default="loopback: `127.0.0.0/8`, `::1`",
        ),
    )


@dataclass(frozen=True, slots=True)
class StateOptions:
    """`[state]`: where the broker map survives a restart."""

    directory: Path | None = field(
        default=None, metadata=key(readers.optional_file_path, "path", default="none: nothing is kept")
    )


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`[log]`: structured lines on standard error."""

    level: str = field(
        default="info",
        metadata=key(
            readers.choice(*LOG_LEVELS),
            '"debug", "info", "warning" or "error"',
            live=True,
        ),
    )
    format: str = field(default="text", metadata=key(readers.choice(*LOG_FORMATS), '"text" or "json"'))


@dataclass(frozen=True, slots=True)
class Source:
    """The sources of a configuration, so that it can be read again.

    Args:
        path: the file; None without one.
        environ: the overriding variables only (`SLUICE_ADMIN__BIND`).
        overrides: the command line's settings, as TOML tables. They override the environment.
        quota_text: `[[quota]]` tables from the command line, in the quotas file's format.
    """

    path: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    overrides: Mapping[str, object] = field(default_factory=dict)
    quota_text: str = ""


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. `warnings` are logged at start: valid settings that are probably mistakes."""

    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    listeners: tuple[ListenerOptions, ...] = ()
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    fleet: FleetOptions = field(default_factory=FleetOptions)
    reassignment: ReassignmentSettings = field(default_factory=ReassignmentSettings)
    capture: CaptureOptions = field(default_factory=CaptureOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    process: ProcessOptions = field(default_factory=ProcessOptions)
    admin: AdminOptions = field(default_factory=AdminOptions)
    state: StateOptions = field(default_factory=StateOptions)
    log: LogOptions = field(default_factory=LogOptions)
    source: Source = field(default_factory=Source, compare=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def fleet_cluster(self) -> ClusterOptions:
        """The cluster of what processes share: the fleet's group, and Sluice's own topics."""
        return self.cluster if self.fleet.cluster is None else self.fleet.cluster

    @property
    def keeps_topics(self) -> bool:
        """Whether something is kept in topics of Sluice's own."""
        return self.quotas.store == "topic" or self.reassignment.in_topic

    @property
    def fleet_bootstrap_key(self) -> str:
        """The key that names the brokers of that cluster."""
        return "cluster.bootstrap" if self.fleet.cluster is None else "fleet.bootstrap"

    @property
    def replicates(self) -> bool:
        """Whether brokers replicate through this process."""
        return any(listener.replicates for listener in self.listeners)

    def upstreams(self, *, replicates: bool) -> dict[int, Address]:
        """Return the addresses of the brokers behind the clients' listeners, or behind the replication listeners."""
        return {
            broker: address
            for listener in self.listeners
            if listener.replicates is replicates
            for broker, address in listener.upstreams.items()
        }

    @property
    def bootstrap_behind(self) -> Address | None:
        """The first bootstrap address of `fleet_cluster` that is an upstream too, where a broker advertises Sluice."""
        behind = {address for listener in self.listeners for address in listener.upstreams.values()}
        return next((address for address in self.fleet_cluster.bootstrap if address in behind), None)

    def trusts(self, listener: ListenerOptions) -> bool:
        """Whether unauthenticated clients of this listener may alter quotas: those of this machine may.

        With the PROXY protocol they may not, since the load balancer takes connections from other machines; nor where
        Sluice's own login uses SASL, since clients have users there.
        """
        return listener.loopback and not listener.proxy_protocol and not self.cluster.sasl_mechanism


# ----------------------------------------------------------------------------------------------------
# `[leases]`: what `[fleet]` was called while processes shared followers' quotas only (KIP-73). Pure.
#
# The section is still read. Its keys become those of `[fleet]`, with a warning that names them; a process
# that cannot be
# told to be the holder is none, since two holders would each lease the whole of a quota.


PEERS_MAX: Final = 64


def _names(path: str, value: object) -> tuple[str, ...]:
    parts: list[object] = [part.strip() for part in value.split(",")] if isinstance(value, str) else []
    if isinstance(value, list):
        parts = value
    if not 2 <= len(parts) <= PEERS_MAX:
        raise ConfigError(path, f"must be 2 to {PEERS_MAX} names", value)
    names = tuple(member_name(f"{path}[{index}]", part) for index, part in enumerate(parts))
    if len(set(names)) < len(names):
        raise ConfigError(path, "each peer must have its own name", value)
    return names


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """`[leases]`; `seconds` and the names in `peers` have no equivalent in `[fleet]`."""

    peers: tuple[str, ...] = field(default=(), metadata=key(_names, "name, or several"))
    name: str = field(default="", metadata=key(member_name, "name"))
    holder: Address | None = field(default=None, metadata=key(readers.address, "host:port"))
    bind: Address | None = field(
        default=None, metadata=key(readers.optional_address, 'host:port, or "" for none')
    )
    seconds: float | None = field(default=None, metadata=key(readers.seconds(1, 60), "number"))
    secret_file: Path | None = field(default=None, metadata=key(readers.file_path, "path"))

    def as_fleet(self, fleet: FleetOptions, *, replicates: bool) -> tuple[FleetOptions, list[str]]:
        """Return the options of the fleet that this section stands for, and warnings.

        Args:
            fleet: those of `[fleet]`, which come first if they make this process a member.
            replicates: whether brokers replicate through this process.

        Raises:
            ConfigError: the section could not work before either.
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
