"""The ledger of kept bytes: what the process holds in memory for its peers, against one budget (issue 14).

    connection ──► Account ──► address ──► Ledger     frames that are not all here, writes that a peer does not take,
                                  ▲                   requests and answers that wait for their turn
    fetch sessions, names ────────┘ `shared`          what outlives a connection, bounded where it is kept

Over the budget the connection that keeps most is closed, of the address that keeps most, until the rest fits again;
over its own bound a connection is closed by itself, over an address's bound that address's largest connection. Largest
means of the largest size class: sizes are compared by their power of two, so that neither a change nor a choice looks
at all connections. What is accounted for is allocation, not length.

It is pure: it closes by a function that it was given, and knows no socket. Not counted is what every connection has,
idle or not (its objects, its TLS state), and what the kernel holds in socket buffers and pipes.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["CAUSE", "Account", "Ledger"]

CAUSE: Final = "kept_bytes"  # of a connection's end

T = TypeVar("T")


class Account:
    """What one connection keeps.

    Attributes:
        bytes: counted now.
        close: ends the connection and is told why.
    """

    __slots__ = ("_ledger", "_party", "bytes", "close")

    def __init__(self, ledger: "Ledger", party: "_Party", close: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._party = party
        self.bytes = 0
        self.close = close

    def add(self, change: int) -> None:
        """Count more bytes, or fewer; this may close connections, the account's own among them."""
        if change:
            before = self.bytes
            self.bytes = after = before + change
            assert after >= 0, "no more is given back than was counted"
            self._ledger.changed(self, self._party, before, after)

    def end(self) -> None:
        """The connection is closed: nothing is kept for it any more, and nothing will be."""
        self.add(-self.bytes)
        self._ledger.ended(self._party)


class Ledger:
    """All accounts of one process.

    Args:
        bytes_max: the budget.
        connection_bytes_max: of one connection.
        address_bytes_max: of all connections of one address together; 0 for no bound.
        shared: gives the bytes that are kept in tables of the process, which count against the budget too.

    >>> closed = []
    >>> def opened(name):
    ...     account = ledger.open("192.0.2.1", lambda why: (closed.append(name), account.end()))
    ...     return account
    >>> ledger = Ledger(1000, 900, 0, lambda: 100)
    >>> small, large = opened("small"), opened("large")
    >>> small.add(100)
    >>> large.add(800)  # with the 100 bytes of tables all that may be kept
    >>> closed, ledger.total
    ([], 1000)
    >>> small.add(100)
    >>> closed, ledger.total
    (['large'], 300)
    """

    __slots__ = (
        "_address_bytes_max",
        "_bytes_max",
        "_connection_bytes_max",
        "_parties",
        "_shared",
        "_sizes",
        "bytes",
    )

    def __init__(
        self,
        bytes_max: int,
        connection_bytes_max: int,
        address_bytes_max: int,
        shared: Callable[[], int] = int,
    ) -> None:
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._address_bytes_max = address_bytes_max
        self._shared = shared
        self._parties: dict[str, _Party] = {}  # addresses of which anything is kept
        self._sizes = _SizeClasses[_Party]()
        self.bytes = 0  # of all connections

    @property
    def total(self) -> int:
        """All that is kept, tables included."""
        return self.bytes + self._shared()

    def open(self, address: str, close: Callable[[str], None]) -> Account:
        """Make the account of a new connection; `close` has to lead to the account's `end`."""
        party = self._parties.get(address)
        if party is None:
            party = self._parties[address] = _Party(address)
        party.accounts += 1
        return Account(self, party, close)

    def ended(self, party: "_Party") -> None:
        """One of an address's connections is closed (called by its account)."""
        party.accounts -= 1
        if not party.accounts:
            del self._parties[party.address]

    def changed(self, account: Account, party: "_Party", before: int, after: int) -> None:
        """Take note of an account's change, and close what is too much (called by the account)."""
        party.sizes.move(account, before, after)
        party_before = party.bytes
        party.bytes = party_after = party_before + after - before
        self._sizes.move(party, party_before, party_after)
        self.bytes += after - before
        if after <= before:
            return
        if after > self._connection_bytes_max:
            account.close(f"{after} bytes are kept for the connection")
        elif self._address_bytes_max and party_after > self._address_bytes_max:
            party.sizes.largest().close(f"{party_after} bytes are kept for the address")
        self.relieve()

    def relieve(self) -> None:
        """Close connections while more is kept than may be; to be called now and then too, since tables grow."""
        while self.bytes and self.total > self._bytes_max:
            worst = self._sizes.largest().sizes.largest()
            kept = self.bytes
            worst.close(
                f"{self.total} bytes are kept by the process, {worst.bytes} of them for the connection"
            )
            assert self.bytes < kept, "a connection that is closed keeps nothing"


class _Party:
    """All connections of one address."""

    __slots__ = ("accounts", "address", "bytes", "sizes")

    def __init__(self, address: str) -> None:
        self.address = address
        self.accounts = 0
        self.bytes = 0
        self.sizes = _SizeClasses[Account]()


class _SizeClasses(Generic[T]):
    """Things by the power of two of their size; those of size 0 are not in it."""

    __slots__ = ("_classes",)

    def __init__(self) -> None:
        self._classes: dict[int, dict[T, None]] = {}

    def move(self, item: T, before: int, after: int) -> None:
        """Take note of another size."""
        old, new = before.bit_length(), after.bit_length()
        if old == new:
            return
        if old:
            items = self._classes[old]
            del items[item]
            if not items:
                del self._classes[old]
        if new:
            self._classes.setdefault(new, {})[item] = None

    def largest(self) -> T:
        """One of the largest: what has been in their class for longest."""
        return next(iter(self._classes[max(self._classes)]))
