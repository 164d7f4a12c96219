"""The frozen options of one proxy: made by `proxy.config.parser`, read by all other packages.

Each field carries its key (see `proxy.config.keys`); its name is the key's name. The larger tables have modules of
their own (`*_options`); the small ones are here, with the whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from proxy.config import readers
from proxy.config.capture_options import CaptureOptions
from proxy.config.cluster_options import ClusterOptions
from proxy.config.fleet_options import FleetOptions
from proxy.config.keys import key
from proxy.config.limit_options import LimitOptions
from proxy.config.listener_options import ListenerOptions
from proxy.config.process_options import ProcessOptions
from proxy.config.quota_options import QuotaSettings
from proxy.config.readers import Address, Network
from proxy.config.reassignment_options import ReassignmentSettings
from proxy.config.replication_options import ReplicationSettings

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
