"""Checks of several keys together: overlapping ports, ports that do not exist, a proxy in front of itself.

A configuration that cannot work is a ConfigError; one that is valid but probably a mistake is a warning, which the
caller logs.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.config.cluster_options import WITHOUT_GROUPS
from proxy.config.listener_options import ListenerOptions
from proxy.config.options import Config
from proxy.config.readers import PORT_MAX, Address
from proxy.errors import ConfigError

EPHEMERAL_FIRST: Final = 32768  # Linux's default ip_local_port_range begins here
_ANY: Final = ("0.0.0.0", "::")
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class PortRange(NamedTuple):
    """Ports that one key claims on one host."""

    host: str
    first: int
    last: int
    path: str

    def overlaps(self, other: "PortRange") -> bool:
        """Whether both claim the same port; a wildcard address overlaps with every host."""
        if self.host != other.host and self.host not in _ANY and other.host not in _ANY:
            return False
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def check(config: Config) -> list[str]:
    """Check the keys against each other.

    Returns: warnings, one line each.

    Raises:
        ConfigError: the configuration cannot work.
    """
    config.cluster.check("cluster")
    _check_names(config)
    for index, listener in enumerate(config.listeners):
        _check_brokers(f"listeners[{index}]", listener)
        _check_sources(f"listeners[{index}]", listener)
        if listener.replicates and not listener.sidecar:
            problem = "must be the addresses that the brokers listen on: they advertise Sluice to each other"
            raise ConfigError(f"listeners[{index}].upstreams", problem)
    config.fleet.check()
    _check_group(config)
    _check_burst(config)
    bound = list(bound_ports(config))
    _check_overlaps(bound, "is bound")
    _check_overlaps(list(_advertised(config)), "is advertised")
    _check_loops(config, bound)
    return [_ephemeral(ports) for ports in bound if ports.last >= EPHEMERAL_FIRST]


def _check_group(config: Config) -> None:
    """A group's brokers are reached at the addresses that they advertise, so these must not be Sluice's."""
    if not config.fleet.has_group:
        return
    if config.fleet_cluster.sasl_mechanism == WITHOUT_GROUPS:
        problem = f"is needed with {WITHOUT_GROUPS}, with which no group can be joined"
        raise ConfigError("fleet.holder", problem)
    if config.bootstrap_behind is not None:
        problem = (
            "with a group that chooses the fleet's holder it must name a listener of the brokers that is not "
            "behind Sluice; or name the holder: fleet.holder"
        )
        raise ConfigError(config.fleet_bootstrap_key, problem, str(config.bootstrap_behind))


def _check_names(config: Config) -> None:
    seen: set[str] = set()
    for index, listener in enumerate(config.listeners):
        if listener.name in seen:
            raise ConfigError(
                f"listeners[{index}].name", "each listener must have its own name", listener.name
            )
        seen.add(listener.name)


def _check_brokers(path: str, listener: ListenerOptions) -> None:
    for key, first in (
        ("first_broker_port", listener.first_broker_port),
        ("advertised_first_broker_port", listener.advertised_first_broker_port),
    ):
        last = first + listener.broker_id_max
        if last > PORT_MAX:
            problem = (
                f"with broker_id_max = {listener.broker_id_max} the last port is {last}, above {PORT_MAX}"
            )
            raise ConfigError(f"{path}.{key}", problem, first)
    for broker_id in listener.upstreams:
        if broker_id > listener.broker_id_max:
            problem = f"is above broker_id_max = {listener.broker_id_max}, and has no port"
            raise ConfigError(f"{path}.upstreams.{broker_id}", problem, broker_id)


def _check_burst(config: Config) -> None:
    quotas = config.quotas
    if quotas.partition_mutations_burst is not None and quotas.partition_mutations_rate is None:
        problem = "needs partition_mutations_rate: without it nothing is limited"
        raise ConfigError("quotas.partition_mutations_burst", problem, quotas.partition_mutations_burst)


def _check_sources(path: str, listener: ListenerOptions) -> None:
    """The PROXY header names the client's address, so the networks that may send it must be configured."""
    if listener.proxy_protocol and not listener.proxy_protocol_sources:
        raise ConfigError(
            f"{path}.proxy_protocol_sources", "must be the networks whose PROXY headers are trusted"
        )
    if listener.proxy_protocol_sources and not listener.proxy_protocol:
        raise ConfigError(f"{path}.proxy_protocol_sources", "has no effect without proxy_protocol = true")


def bound_ports(config: Config) -> Iterator[PortRange]:
    """Return the ports that a process with this configuration binds, by key."""
    for index, listener in enumerate(config.listeners):
        path, bind, first = f"listeners[{index}]", listener.bind, listener.first_broker_port
        if not listener.replicates:  # brokers need no bootstrap port
            yield PortRange(bind, listener.bootstrap_port, listener.bootstrap_port, f"{path}.bootstrap_port")
        if not listener.sidecar:
            yield PortRange(bind, first, first + listener.broker_id_max, f"{path}.first_broker_port")
        for broker_id in listener.upstreams:
            yield PortRange(bind, first + broker_id, first + broker_id, f"{path}.upstreams.{broker_id}")
    if config.admin.bind is not None:
        yield PortRange(config.admin.bind.host, config.admin.bind.port, config.admin.bind.port, "admin.bind")
    fleet = config.fleet.bind if config.fleet.may_hold else None
    if fleet is not None:
        yield PortRange(fleet.host, fleet.port, fleet.port, "fleet.bind")


def _advertised(config: Config) -> Iterator[PortRange]:
    for index, listener in enumerate(config.listeners):
        if listener.sidecar:  # the brokers advertise, not Sluice
            continue
        path, host = f"listeners[{index}]", listener.advertised_host
        port, first = listener.advertised_bootstrap_port, listener.advertised_first_broker_port
        yield PortRange(host, port, port, f"{path}.advertised_bootstrap_port")
        yield PortRange(host, first, first + listener.broker_id_max, f"{path}.advertised_first_broker_port")


def _check_overlaps(ranges: list[PortRange], verb: str) -> None:
    for index, later in enumerate(ranges):
        for earlier in ranges[:index]:
            if later.overlaps(earlier):
                problem = f"port {later} {verb} already by {earlier.path} ({earlier})"
                raise ConfigError(later.path, problem, later.first)


def _check_loops(config: Config, bound: list[PortRange]) -> None:
    """Check that no broker's address is one of Sluice's own ports: it would connect to itself endlessly."""
    targets: list[tuple[str, Address]] = [
        ("cluster.bootstrap", address) for address in config.cluster.bootstrap
    ]
    targets += [("fleet.bootstrap", address) for address in config.fleet.bootstrap]
    for index, listener in enumerate(config.listeners):
        targets += [
            (f"listeners[{index}].upstreams.{n}", address) for n, address in listener.upstreams.items()
        ]
    for path, address in targets:
        for ports in bound:
            if ports.first <= address.port <= ports.last and _reaches(address.host, ports.host):
                raise ConfigError(path, f"is the address of Sluice itself: {ports.path}", str(address))


def _reaches(host: str, bind: str) -> bool:
    return host == bind or (host in _LOOPBACK and bind in (*_ANY, *_LOOPBACK))


def _ephemeral(ports: PortRange) -> str:
    return (
        f"{ports.path}: port {ports} is in the ephemeral range, which begins at {EPHEMERAL_FIRST}: "
        "an outgoing connection may use it when Sluice starts"
    )
