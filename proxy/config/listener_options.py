"""`[[listeners]]`: the ports that clients and followers connect to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from proxy.config import readers
from proxy.config.keys import key
from proxy.config.readers import Address, Network
from proxy.config.tls_options import ListenerTls, read_listener_tls

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
