"""The number of connections, or arriving connections, by client address; and the address with the most.

An address is an IPv4 address, or the /64 of an IPv6 address, since a host usually has a /64 to itself; an IPv4-mapped
address counts as IPv4. The address with the most is known without a search, so that a new connection costs the same
however many there are.

Non-obvious:

- A new connection replaces one of another address only if its own address then has no more than that one. So one
  address may have all connections while no other asks, and a thousand addresses with one connection each do not
  displace each other.
"""

import asyncio
import heapq
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Network, ip_address
from itertools import islice
from typing import Final, Generic, TypeVar

from proxy.system.stats import Stats

_PREFIX_BITS: Final = 64

T = TypeVar("T")


def address_of(host: str) -> str:
    """Return the address under which a host's connections are counted: of an IPv6 host, its /64 network.

    >>> address_of("192.0.2.7"), address_of("::ffff:192.0.2.7"), address_of("2001:db8::1:2:3:4")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
    if ":" not in host:
        return host
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((found, _PREFIX_BITS), strict=False))


class ByAddress(Generic[T]):
    """Connections, or arriving sockets, by client address, in the order of their arrival.

    Attributes:
        largest: the number of items of the address with the most.
    """

    def __init__(self) -> None:
        self._address_by_item: dict[T, str] = {}
        self._items: dict[str, dict[T, None]] = {}
        self._addresses_by_count: dict[int, dict[str, None]] = {}  # the addresses with this number of items
        self.largest = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._address_by_item)

    def __contains__(self, item: T) -> bool:
        """Return whether the item is present."""
        return item in self._address_by_item

    def __iter__(self) -> Iterator[T]:
        """Yield all items."""
        return iter(self._address_by_item)

    def add(self, item: T, host: str) -> None:
        """Add an item under its host's address (`address_of`); an item that is present already is moved to it."""
        self.discard(item)
        address = address_of(host)
        self._address_by_item[item] = address
        items = self._items.setdefault(address, {})
        items[item] = None
        self._update_count(address, len(items) - 1, len(items))

    def discard(self, item: T) -> None:
        """Remove an item; no effect if it is absent."""
        address = self._address_by_item.pop(item, None)
        if address is None:
            return
        items = self._items[address]
        del items[item]
        if not items:
            del self._items[address]
        self._update_count(address, len(items) + 1, len(items))

    def count_of(self, host: str) -> int:
        """Return the number of items of a host's address."""
        return len(self._items.get(address_of(host), ()))

    def can_displace_for(self, host: str) -> bool:
        """Whether an item of the address with the most items may give way to a new one of this host.

        That address must have at least two items more than the host's own address.
        """
        return self.largest - 1 > self.count_of(host)

    def of_largest(self, count_max: int) -> list[T]:
        """Return the oldest items of the address with the most items, at most `count_max`."""
        if not self.largest:
            return []
        address = next(iter(self._addresses_by_count[self.largest]))
        return list(islice(self._items[address], count_max))

    def _update_count(self, address: str, before: int, now: int) -> None:
        """Update `largest` for an address whose number of items has changed by one."""
        if before:
            addresses = self._addresses_by_count[before]
            del addresses[address]
            if not addresses:
                del self._addresses_by_count[before]
        if now:
            self._addresses_by_count.setdefault(now, {})[address] = None
        if now > self.largest or self.largest not in self._addresses_by_count:
            self.largest = now


# Sockets over their address's connection rate: left unread until their delay is over, then closed (KIP-612).
#
# The socket whose delay ends first is closed first. (A broker waits for the socket whose delay ends last, and so
# closes none while new ones arrive; kafka-quotas.md §5.) If there is no room, the first one is closed early. As with a
# broker, the client only sees the close, and reconnects after its reconnect backoff.

WAITING_MAX: Final = 1000  # each takes a descriptor and no memory of the process


class WaitingRoom:
    """Keeps sockets whose address exceeds its connection rate open and unread, and closes them later (KIP-612)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stats: Stats) -> None:
        self._loop = loop
        self._stats = stats
        self._waiting: list[tuple[int, int, socket.socket]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, sock: socket.socket, wait_ms: int, now_ms: int) -> None:
        """Leave a socket open and unread for `wait_ms`, then close it; if there are too many, one is closed early."""
        if len(self._waiting) >= WAITING_MAX:
            self._close_first()
        self._count += 1
        heapq.heappush(self._waiting, (now_ms + wait_ms, self._count, sock))
        self._stats.connections_waiting = len(self._waiting)
        self._set_timer(now_ms)

    def close(self) -> None:
        """Close all sockets."""
        while self._waiting:
            self._close_first()
        self._set_timer(0)

    def _close_due(self, due_ms: int) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][0] <= due_ms:
            self._close_first()
        self._set_timer(due_ms)

    def _close_first(self) -> None:
        sock = heapq.heappop(self._waiting)[2]
        with suppress(OSError):  # the descriptor is released whatever the system reports
            sock.close()
        self._stats.connections_waiting = len(self._waiting)

    def _set_timer(self, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            due_ms = self._waiting[0][0]
            self._timer = self._loop.call_later(max(0, due_ms - now_ms) / 1000, self._close_due, due_ms)
