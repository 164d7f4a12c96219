"""A queue of work for one thread, by client address: bounded, and fair between addresses.

Every item has a weight: its bytes, but at least a minimum, so that small items count too. All rules use the weight:

    bound      of all items, and of one address's where that is asked for
    overload   the newest item of the address with most weight is dropped; of equal ones that of the newcomer
    order      self-clocked fair queueing: an item's tag is the tag of the item served last, or of the address's own
               item before it, whichever is higher, and its weight; the lowest tag is next

So addresses with a permanent backlog are served equal weights: a small item precedes the large ones of other addresses,
and a large one waits for at most its own weight of each of them. An address without items needs no memory. The queue is
pure; threads are the caller's.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class AddressQueue(Generic[T]):
    """Items by address. They are distinguished by hash and equality, and each is in the queue once.

    Args:
        bytes_max: the bound of the weight of all items.
        count_max: the number of items of the lowest weight within that bound.
        address_bytes_max: the bound of one address's weight; 0 for none.

    >>> queue = AddressQueue[str](bytes_max=1000, count_max=10)
    >>> queue.add("192.0.2.1", 600, "large"), queue.add("192.0.2.1", 1, "small")
    ([], [])
    >>> queue.add("192.0.2.2", 350, "other")  # 600 + 100 + 350
    ['small']
    >>> queue.next(), queue.next(), queue.next()
    ('other', 'large', None)
    """

    __slots__ = (
        "_address_bytes_max",
        "_address_of",
        "_by_address",
        "_bytes_max",
        "_item_bytes_min",
        "_virtual",
        "bytes",
    )

    def __init__(self, bytes_max: int, count_max: int, address_bytes_max: int = 0) -> None:
        self._bytes_max = bytes_max
        self._item_bytes_min = bytes_max // count_max
        self._address_bytes_max = address_bytes_max
        self._by_address: dict[str, _AddressItems[T]] = {}  # addresses that have items
        self._address_of: dict[T, str] = {}
        self._virtual = 0  # the tag of the item that was served last
        self.bytes = 0  # the weight of all items

    def __len__(self) -> int:
        """The number of items."""
        return len(self._address_of)

    @property
    def addresses(self) -> int:
        """The number of addresses with items."""
        return len(self._by_address)

    def add(self, address: str, size: int, item: T) -> list[T]:
        """Add an item; returns the items that are dropped for it, which may be the item itself."""
        assert item not in self._address_of, "an item is taken once"
        items_of_address = self._by_address.get(address)
        if items_of_address is None:
            items_of_address = self._by_address[address] = _AddressItems()
        weight = max(size, self._item_bytes_min)
        items_of_address.add(item, weight, self._virtual)
        self._address_of[item] = address
        self.bytes += weight
        dropped = []
        if self._address_bytes_max and items_of_address.bytes > self._address_bytes_max:
            dropped.append(self._drop(items_of_address))
        while self.bytes > self._bytes_max:
            dropped.append(self._drop(self._heaviest(items_of_address)))
        return dropped

    def next(self) -> T | None:
        """Remove and return the next item; None if the queue is empty."""
        if not self._by_address:
            return None
        item, tag = min(
            (items_of_address.first() for items_of_address in self._by_address.values()), key=_tag_of
        )
        self._virtual = tag
        self.discard(item)
        return item

    def discard(self, item: T) -> None:
        """Remove an item; harmless if it is not in the queue."""
        address = self._address_of.pop(item, None)
        if address is None:
            return
        items_of_address = self._by_address[address]
        self.bytes -= items_of_address.remove(item)
        if not items_of_address.items:
            del self._by_address[address]

    def clear(self) -> None:
        """Remove all items."""
        self._by_address.clear()
        self._address_of.clear()
        self.bytes = 0

    def _drop(self, items_of_address: "_AddressItems[T]") -> T:
        item = items_of_address.last()
        self.discard(item)
        return item

    def _heaviest(self, newcomer: "_AddressItems[T]") -> "_AddressItems[T]":
        """Return the address with the most weight; of equal ones the newcomer's."""
        found = newcomer
        for items_of_address in self._by_address.values():
            if items_of_address.bytes > found.bytes:
                found = items_of_address
        return found


class _AddressItems(Generic[T]):
    """The items of one address, in the order in which they came, each with its weight and its tag."""

    __slots__ = ("bytes", "items")

    def __init__(self) -> None:
        self.items: dict[T, tuple[int, int]] = {}
        self.bytes = 0

    def add(self, item: T, weight: int, virtual: int) -> None:
        """Append an item."""
        start = self.items[self.last()][1] if self.items else virtual
        self.items[item] = weight, start + weight
        self.bytes += weight

    def remove(self, item: T) -> int:
        """Remove an item; returns its weight."""
        weight, _ = self.items.pop(item)
        self.bytes -= weight
        return weight

    def first(self) -> tuple[T, int]:
        """Return the oldest item and its tag."""
        item, (_, tag) = next(iter(self.items.items()))
        return item, tag

    def last(self) -> T:
        """Return the newest item."""
        return next(reversed(self.items))


def _tag_of(found: tuple[object, int]) -> int:
    return found[1]
