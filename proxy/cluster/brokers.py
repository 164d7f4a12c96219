"""Which broker listens where. Pure bookkeeping; asking and resolving is the poller's work.

In this order a broker's address comes from `upstreams`, from Sluice's own Metadata connection, from Metadata
answers on their way to clients; the last map is kept on disk, so a restarted proxy serves every broker's port
at once. What cannot be a broker's id, host or port is refused here, wherever it comes from: counted by what is
wrong with it, and logged once.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from proxy.channel.settings import ANY_BROKER
from proxy.config import Address, ListenerOptions
from proxy.errors import shorten
from proxy.hosts import is_host, is_ip
from proxy.logs import event
from proxy.stats import Stats

__all__ = ["BrokerMap"]

_ID_MAX: Final = 2**31 - 1
_PORT_MAX: Final = 65_535
_BROKERS_MAX: Final = 10_000  # far above any cluster; bounds what a broken peer can make us remember
_TARGETS_MAX: Final = 16  # of the brokers known, that are asked one after the other until one answers
_SAID_MAX: Final = 100

logger = logging.getLogger(__name__)


class BrokerMap:
    """Broker ids and their addresses.

    `address_map` may be called in another thread, where a large answer is read: whatever goes through all addresses
    takes a copy of them in one step.

    Attributes:
        changed: set whenever an address was learned; who keeps the map on disk clears it.
    """

    def __init__(self, bootstrap: tuple[Address, ...], stats: Stats) -> None:
        self._bootstrap = bootstrap
        self._stats = stats
        self._addresses: dict[int, Address] = {}
        self._live: tuple[int, ...] = ()
        self._ips: dict[str, str] = {}
        self._turn = 0
        self._said: set[tuple[int, str, int]] = set()  # what was refused, and logged
        self.changed = False

    def learn(self, broker: int, host: str, port: int) -> None:
        """Remember where a broker listens; what can not be is refused, and what was known of it stays."""
        if self._addresses.get(broker) == (host, port):
            return
        wrong = self._wrong(broker, host, port)
        if wrong:
            self._refuse(wrong, broker, host, port)
            return
        self._addresses[broker] = Address(host, port)
        self.changed = True

    def set_live(self, brokers: Iterable[int]) -> None:
        """Remember which brokers are alive: the bootstrap port leads to these, and others make room for them."""
        self._live = tuple(sorted(set(islice(brokers, _BROKERS_MAX))))
        if len(self._addresses) >= _BROKERS_MAX:
            self._addresses = {
                broker: self._addresses[broker] for broker in self._live if broker in self._addresses
            }

    def live(self) -> tuple[int, ...]:
        """Give the brokers that are alive, as far as is known."""
        return self._live

    def resolved(self, host: str, ip: str) -> None:
        """Remember a host's address."""
        self._ips[host] = ip

    def hosts(self) -> list[str]:
        """Give every host name that is not an address already; names may move, so the poller asks for them again.

        What names that are not used any more led to is forgotten.
        """
        addresses = (*self._bootstrap, *self._addresses.values())
        hosts = dict.fromkeys(address.host for address in addresses if not is_ip(address.host))
        self._ips = {host: ip for host, ip in self._ips.items() if host in hosts}
        return list(hosts)

    def addresses(self) -> Mapping[int, Address]:
        """Give the whole map, for the disk."""
        return self._addresses

    def targets(self) -> list[tuple[str, int]]:
        """Give addresses worth asking, until one answers: the configured ones, then those of brokers known.

        Of many brokers a few, others each time: each may take its time not to answer.
        """
        known = list(self._addresses.values())
        if len(known) > _TARGETS_MAX:
            self._turn += 1
            first = self._turn * _TARGETS_MAX % len(known)
            known = (known + known)[first : first + _TARGETS_MAX]
        found = [self._dial(address) for address in (*self._bootstrap, *known)]
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

    def _wrong(self, broker: int, host: str, port: int) -> str:
        """Name what can not be of a broker's address; "" where it can."""
        if not 0 <= broker <= _ID_MAX:
            return "id"
        if not is_host(host):
            return "host"
        if not 0 < port <= _PORT_MAX:
            return "port"
        return "count" if broker not in self._addresses and len(self._addresses) >= _BROKERS_MAX else ""

    def _refuse(self, wrong: str, broker: int, host: str, port: int) -> None:
        self._stats.brokers_refused[wrong] += 1
        said = (broker, host, port)
        if said in self._said or len(self._said) >= _SAID_MAX:
            return
        self._said.add(said)
        event(
            logger,
            logging.WARNING,
            "a broker's address is rejected",
            wrong=wrong,
            broker=shorten(broker),
            host=shorten(host),
            port=shorten(port),
        )

    def _dial(self, address: Address) -> tuple[str, int] | None:
        ip = address.host if is_ip(address.host) else self._ips.get(address.host)
        return (ip, address.port) if ip else None
