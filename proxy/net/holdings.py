"""The number of connections, or arriving connections, by client address; and the address with the most.

An address is an IPv4 address, or the /64 of an IPv6 address, since a host usually has a /64 to itself; an IPv4-mapped
address counts as IPv4. The address with the most is known without a search, so that a new connection costs the same
however many there are.

Non-obvious:

- A new connection replaces one of another address only if its own address then has no more than that one. So one
  address may have all connections while no other asks, and a thousand addresses with one connection each do not
  displace each other.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Network, ip_address
from itertools import islice
from typing import Final, Generic, TypeVar

__all__ = ["Holdings", "holder"]

_PREFIX_BITS: Final = 64

T = TypeVar("T")


def holder(host: str) -> str:
    """Return the address that a host counts for.

    >>> holder("192.0.2.7"), holder("::ffff:192.0.2.7"), holder("2001:db8::1:2:3:4")
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


class Holdings(Generic[T]):
    """Items by address, in the order of their arrival.

    Attributes:
        most: the number of items of the address with the most.
    """

    def __init__(self) -> None:
        self._holder_of: dict[T, str] = {}
        self._held: dict[str, dict[T, None]] = {}
        self._with: dict[int, dict[str, None]] = {}  # the addresses with this number of items
        self.most = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._holder_of)

    def __contains__(self, item: T) -> bool:
        """Return whether the item is present."""
        return item in self._holder_of

    def __iter__(self) -> Iterator[T]:
        """Yield all items."""
        return iter(self._holder_of)

    def add(self, item: T, host: str) -> None:
        """Add an item of a host, or move it to another host."""
        self.discard(item)
        address = holder(host)
        self._holder_of[item] = address
        items = self._held.setdefault(address, {})
        items[item] = None
        self._moved(address, len(items) - 1, len(items))

    def discard(self, item: T) -> None:
        """Remove an item; no effect if it is absent."""
        address = self._holder_of.pop(item, None)
        if address is None:
            return
        items = self._held[address]
        del items[item]
        if not items:
            del self._held[address]
        self._moved(address, len(items) + 1, len(items))

    def held(self, host: str) -> int:
        """Return the number of items of a host's address."""
        return len(self._held.get(holder(host), ()))

    def unfair_to(self, host: str) -> bool:
        """Return whether the address with the most has at least two items more than this host."""
        return self.most - 1 > self.held(host)

    def of_most(self, count_max: int) -> list[T]:
        """Return the first `count_max` items of the address with the most."""
        if not self.most:
            return []
        address = next(iter(self._with[self.most]))
        return list(islice(self._held[address], count_max))

    def _moved(self, address: str, before: int, now: int) -> None:
        """Update the number of an address, by one more or one less."""
        if before:
            addresses = self._with[before]
            del addresses[address]
            if not addresses:
                del self._with[before]
        if now:
            self._with.setdefault(now, {})[address] = None
        if now > self.most or self.most not in self._with:
            self.most = now
