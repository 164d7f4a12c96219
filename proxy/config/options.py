"""The frozen options of one proxy: made by `proxy.config.parser`, read by all other packages.

Each field carries its key (see `proxy.config.keys`); its name is the key's name. Tables of their own modules are in
`capture_`, `fleet_`, `lease_`, `process_`, `reassignment_`, `replication_` and `tls_options`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Final

from proxy.config import readers
from proxy.config.capture_options import CaptureOptions
from proxy.config.fleet_options import FleetOptions
from proxy.config.keys import key
from proxy.config.lease_options import LeaseOptions
from proxy.config.process_options import ProcessOptions
from proxy.config.readers import Address, Network
from proxy.config.reassignment_options import ReassignmentSettings
from proxy.config.replication_options import ReplicationSettings
from proxy.config.tls_options import ClusterTls, ListenerTls, read_cluster_tls, read_listener_tls
from quotas.options import Mode, NewConnections, Policy, Scope, UnknownUsers

DAY_SECONDS: Final = 86400
SASL_NAMED: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")  # of Sluice's own login (`kafka_client.sasl`)
SASL_WITH_SECRET: Final = (*SASL_NAMED, "OAUTHBEARER")
SASL_MECHANISMS: Final = (*SASL_WITH_SECRET, "GSSAPI", "AWS_MSK_IAM")
OLD_SCOPE: Final = "gateway"  # how scope "cluster" was called
HOLD_SECONDS_SCHEDULE: Final = (
    15.0  # the default of `schedule`: below the request timeouts that clients come with
)


def _scope(path: str, value: object) -> str:
    return readers.choice("broker", "cluster")(path, "cluster" if value == OLD_SCOPE else value)


def _no_rates() -> Mapping[str, int]:
    return MappingProxyType({})


def _no_upstreams() -> Mapping[int, Address]:
    return MappingProxyType({})


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
        default="kip13", metadata=key(readers.choice("kip13", "schedule"), '"kip13" or "schedule"', live=True)
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
        metadata=key(_scope, '"broker" or "cluster"'),
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
        default=0.0,
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


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """`[admin]`: the read-only HTTP port."""

    bind: Address | None = field(
        default=Address("127.0.0.1", 19080),
        metadata=key(readers.optional_address, 'host:port, or "" for none'),
    )
    hosts: tuple[str, ...] = field(
        default=(), metadata=key(readers.hosts, "host, or several", default="none but `bind`'s own")
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
            readers.choice("debug", "info", "warning", "error"),
            '"debug", "info", "warning" or "error"',
            live=True,
        ),
    )
    format: str = field(default="text", metadata=key(readers.choice("text", "json"), '"text" or "json"'))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration was read, so that it can be read again.

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
    leases: LeaseOptions = field(default_factory=LeaseOptions)
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
    def replicates(self) -> bool:
        """Whether brokers replicate through this process."""
        return any(listener.replicates for listener in self.listeners)

    def trusts(self, listener: ListenerOptions) -> bool:
        """Whether unauthenticated clients of this listener may alter quotas: those of this machine may.

        With the PROXY protocol they may not, since the load balancer takes connections from other machines.
        """
        return listener.loopback and not listener.proxy_protocol and not self.cluster.sasl_mechanism
