"""Which broker listens where. Pure bookkeeping; asking and resolving is the poller's work.

In this order a broker's address comes from `upstreams`, from Sluice's own Metadata connection, from Metadata
answers on their way to clients; the last map is kept on disk, so a restarted proxy serves every broker's port
at once.
"""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from proxy.channel.settings import ANY_BROKER
from proxy.config import Address, ListenerOptions
from proxy.stats import Stats

__all__ = ["BrokerMap"]

_PORT_MAX: Final = 65_535
_BROKERS_MAX: Final = 10_000  # far above any cluster; bounds what a broken peer can make us remember


class BrokerMap:
    """Broker ids and their addresses.

    `address_map` may be called in another thread, where a large answer is read: whatever goes through all addresses
    takes a copy of them in one step.

    Attributes:
        changed: set whenever an address was learned; who keeps the map on disk clears it.
        unresolved: host names that the data path has met and the poller has to resolve.
    """

    def __init__(self, bootstrap: tuple[Address, ...], stats: Stats) -> None:
        self._bootstrap = bootstrap
        self._stats = stats
        self._addresses: dict[int, Address] = {}
        self._live: tuple[int, ...] = ()
        self._ips: dict[str, str] = {}
        self._turn = 0
        self.changed = False
        self.unresolved: set[str] = set()
        for address in bootstrap:
            self._note_host(address.host)

    def learn(self, broker: int, host: str, port: int) -> None:
        """Remember where a broker listens; nonsense is nobody's address."""
        if broker < 0 or not host or not 0 < port <= _PORT_MAX or self._addresses.get(broker) == (host, port):
            return
        if broker not in self._addresses and len(self._addresses) >= _BROKERS_MAX:
            return
        self._addresses[broker] = Address(host, port)
        self.changed = True
        self._note_host(host)

    def set_live(self, brokers: Iterable[int]) -> None:
        """Remember which brokers are alive: the bootstrap port leads to these."""
        self._live = tuple(sorted(brokers))

    def live(self) -> tuple[int, ...]:
        """Give the brokers that are alive, as far as is known."""
        return self._live

    def resolved(self, host: str, ip: str) -> None:
        """Remember a host's address."""
        self._ips[host] = ip
        self.unresolved.discard(host)

    def hosts(self) -> set[str]:
        """Give every host name that is not an address already; names may move, so the poller asks for them again."""
        addresses = (*self._bootstrap, *self._addresses.values())
        return {address.host for address in addresses if not _is_ip(address.host)}

    def addresses(self) -> Mapping[int, Address]:
        """Give the whole map, for the disk."""
        return self._addresses

    def targets(self) -> list[tuple[str, int]]:
        """Give every address worth asking for Metadata: the configured ones, then those of brokers known."""
        found = [self._dial(address) for address in (*self._bootstrap, *self._addresses.values())]
        return [target for target in dict.fromkeys(found) if target is not None]

    def upstream(
        self, broker: int, tried: Collection[tuple[str, int]] = ()
    ) -> tuple[int, tuple[str, int] | None]:
        """Give a broker's id and address; for ANY_BROKER the next broker in turn that is not at one of `tried`."""
        if broker != ANY_BROKER:
            address = self._addresses.get(broker)
            return broker, self._dial(address) if address else None
        known = self._live or tuple(sorted(self._addresses))
        self._turn += 1
        for offset in range(len(known)):
            candidate = known[(self._turn + offset) % len(known)]
            target = self._dial(self._addresses[candidate]) if candidate in self._addresses else None
            if target is not None and target not in tried:
                return candidate, target
        targets = [target for target in self.targets() if target not in tried]
        return ANY_BROKER, targets[self._turn % len(targets)] if targets else None

    def host(self, broker: int, target: tuple[str, int]) -> str:
        """Give the name under which a broker is known that is dialled at `target`: its certificate bears it."""
        address = self._addresses.get(broker)
        if address is not None and self._dial(address) == target:
            return address.host
        for address in (*self._addresses.values(), *self._bootstrap):
            if address.port == target[1] and self._dial(address) == target:
                return address.host
        return target[0]

    def address_map(
        self, listener: ListenerOptions, broker: int, host: str, port: int
    ) -> tuple[str, int] | None:
        """Say what a gateway's clients are to see instead of a broker's address; None where it has no port."""
        if broker < 0:
            return host, port  # "no such broker", as in a coordinator that is not there
        self.learn(broker, host, port)
        advertised = listener.advertised_broker(broker)
        if advertised is None:
            self._stats.unnamed_brokers += 1
        return advertised

    def _note_host(self, host: str) -> None:
        if not _is_ip(host) and host not in self._ips:
            self.unresolved.add(host)

    def _dial(self, address: Address) -> tuple[str, int] | None:
        ip = address.host if _is_ip(address.host) else self._ips.get(address.host)
        return (ip, address.port) if ip else None


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
