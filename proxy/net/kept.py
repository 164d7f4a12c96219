"""The ledger of kept bytes: the memory that the process holds for its peers, with one budget (issue 14).

    connection ──► Account ──► address ──► Ledger     incomplete frames, output that a peer does not read,
                                  ▲                   requests and responses that wait for their turn
    fetch sessions, names ────────┘ `shared`          state that outlives connections, with bounds of its own

Over the budget the largest connection of the largest address is closed, until the rest fits; over the bound of a
connection that connection is closed, over the bound of an address its largest connection. Sizes are compared by power
of two (size class), so that neither a change nor a choice examines all connections. Allocated bytes are counted, not
the length of the contents.

Pure: connections are closed by a given function; sockets are unknown here. Not counted are the objects and TLS state
that every connection has, and the kernel's socket buffers and pipes.

Non-obvious:

- Kept bytes are counted where they are kept, by allocation. A pump reports to its connection when a part of a frame or
  of a write remains, a channel is measured each second, tables count themselves; an ordinary frame costs three
  comparisons. Above the budget the ledger closes a connection, within the call that exceeded the
  budget; so a pump counts as its last action.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

CAUSE: Final = "kept_bytes"  # the cause of a closed connection

T = TypeVar("T")


class Account:
    """Counts the bytes that are kept in memory for one connection.

    Attributes:
        bytes: the current number.
        close: closes the connection; called with the cause, and a sentence for the log.
    """

    __slots__ = ("_accounts", "_ledger", "bytes", "close")

    def __init__(
        self, ledger: "Ledger", accounts: "_AddressAccounts", close: Callable[[str, str], None]
    ) -> None:
        self._ledger = ledger
        self._accounts = accounts
        self.bytes = 0
        self.close = close

    def add(self, change: int) -> None:
        """Add a change of the kept bytes; above a bound this closes connections, maybe the account's own."""
        if change:
            before = self.bytes
            self.bytes = after = before + change
            assert after >= 0, "no more is given back than was counted"
            self._ledger.changed(self, self._accounts, before, after)

    def end(self) -> None:
        """End the account, since its connection is closed: subtract all of its bytes."""
        self.add(-self.bytes)
        self._ledger.ended(self._accounts)


class Ledger:
    """Counts the bytes that the process keeps for all connections, and closes connections if they are too many.

    Args:
        bytes_max: the bound of the whole process.
        connection_bytes_max: the bound of one connection.
        address_bytes_max: the bound of all connections of one address; 0 for none.
        shared: returns the bytes in tables of the process, which count against `bytes_max` too.

    >>> closed = []
    >>> def opened(name):
    ...     account = ledger.open("192.0.2.1", lambda cause, why: (closed.append(name), account.end()))
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
        "_by_address",
        "_bytes_max",
        "_connection_bytes_max",
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
        self._by_address: dict[str, _AddressAccounts] = {}  # addresses with connections
        self._sizes = _SizeClasses[_AddressAccounts]()
        self.bytes = 0  # of all connections

    @property
    def total(self) -> int:
        """All kept bytes, tables included."""
        return self.bytes + self._shared()

    @property
    def addresses(self) -> int:
        """The number of addresses with connections."""
        return len(self._by_address)

    def open(self, address: str, close: Callable[[str, str], None]) -> Account:
        """Create the account of a new connection.

        Args:
            address: the client's address, as `address_of` returns it.
            close: closes the connection, and thereby calls the account's `end`.
        """
        accounts = self._by_address.get(address)
        if accounts is None:
            accounts = self._by_address[address] = _AddressAccounts(address)
        accounts.count += 1
        return Account(self, accounts, close)

    def ended(self, accounts: "_AddressAccounts") -> None:
        """Register that a connection of this address has closed (called by its account)."""
        accounts.count -= 1
        if not accounts.count:
            del self._by_address[accounts.address]

    def changed(self, account: Account, accounts: "_AddressAccounts", before: int, after: int) -> None:
        """Count that an account has changed from `before` to `after` bytes, and close connections over a bound."""
        accounts.sizes.move(account, before, after)
        address_before = accounts.bytes
        accounts.bytes = address_after = address_before + after - before
        self._sizes.move(accounts, address_before, address_after)
        self.bytes += after - before
        if after <= before:
            return
        if after > self._connection_bytes_max:
            account.close(CAUSE, f"{after} bytes are kept for the connection")
        elif self._address_bytes_max and address_after > self._address_bytes_max:
            accounts.sizes.largest().close(CAUSE, f"{address_after} bytes are kept for the address")
        self.relieve()

    def relieve(self) -> None:
        """Close the largest connections until the rest is within `bytes_max`.

        The application calls it periodically, since tables grow without a call here.
        """
        while self.bytes and self.total > self._bytes_max:
            worst = self._sizes.largest().sizes.largest()
            kept = self.bytes
            worst.close(
                CAUSE, f"{self.total} bytes are kept by the process, {worst.bytes} of them for the connection"
            )
            assert self.bytes < kept, "a connection that is closed keeps nothing"


class _AddressAccounts:
    """All connections of one address."""

    __slots__ = ("address", "bytes", "count", "sizes")

    def __init__(self, address: str) -> None:
        self.address = address
        self.count = 0
        self.bytes = 0
        self.sizes = _SizeClasses[Account]()


class _SizeClasses(Generic[T]):
    """Items by the power of two of their size, without those of size 0."""

    __slots__ = ("_classes",)

    def __init__(self) -> None:
        self._classes: dict[int, dict[T, None]] = {}

    def move(self, item: T, before: int, after: int) -> None:
        """Move an item to the class of its new size."""
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
        """Return an item of the largest class, the one that has been in it for longest."""
        return next(iter(self._classes[max(self._classes)]))
