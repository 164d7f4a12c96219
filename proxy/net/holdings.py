"""What is held by which client address: connections, or connections on their way in; and which address holds most.

An address is an IPv4 address or the /64 that an IPv6 address lies in, since a host has a /64 to itself; IPv4 over IPv6
is the IPv4 address. Which one holds most is known at any time without looking at all of them, so that a newcomer
costs the same however many there are.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Network, ip_address
from itertools import islice
from typing import Final, Generic, TypeVar

__all__ = ["Holdings", "holder"]

_PREFIX_BITS: Final = 64

T = TypeVar("T")


def holder(host: str) -> str:
    """Name the address that a host counts for.

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
    """Things by their holder, in the order in which they came.

    Attributes:
        most: how many the address has that holds most.
    """

    def __init__(self) -> None:
        self._holder_of: dict[T, str] = {}
        self._held: dict[str, dict[T, None]] = {}
        self._with: dict[int, dict[str, None]] = {}  # the addresses that hold so many
        self.most = 0

    def __len__(self) -> int:
        """Count all things."""
        return len(self._holder_of)

    def __contains__(self, item: T) -> bool:
        """Tell whether this is held."""
        return item in self._holder_of

    def __iter__(self) -> Iterator[T]:
        """Give all things."""
        return iter(self._holder_of)

    def add(self, item: T, host: str) -> None:
        """Take something that a host holds, or that another one holds than was thought."""
        self.discard(item)
        address = holder(host)
        self._holder_of[item] = address
        items = self._held.setdefault(address, {})
        items[item] = None
        self._moved(address, len(items) - 1, len(items))

    def discard(self, item: T) -> None:
        """Forget something; harmless where it is not held."""
        address = self._holder_of.pop(item, None)
        if address is None:
            return
        items = self._held[address]
        del items[item]
        if not items:
            del self._held[address]
        self._moved(address, len(items) + 1, len(items))

    def held(self, host: str) -> int:
        """Count what a host's address holds."""
        return len(self._held.get(holder(host), ()))

    def unfair_to(self, host: str) -> bool:
        """Tell whether one thing moved to this host would leave it with no more than the address that holds most."""
        return self.most - 1 > self.held(host)

    def of_most(self, count_max: int) -> list[T]:
        """Give what the address holds that holds most, the first `count_max` that came."""
        if not self.most:
            return []
        address = next(iter(self._with[self.most]))
        return list(islice(self._held[address], count_max))

    def _moved(self, address: str, before: int, now: int) -> None:
        """Note that an address holds another number than before, one more or one less."""
        if before:
            addresses = self._with[before]
            del addresses[address]
            if not addresses:
                del self._with[before]
        if now:
            self._with.setdefault(now, {})[address] = None
        if now > self.most or self.most not in self._with:
            self.most = now
