"""The ledger of kept bytes: who is counted, who is closed, and that closing gives everything back."""

import pytest

from proxy.net.kept import CAUSE, Account, Ledger


class Peers:
    """Accounts by name; a closed one is noted and ends."""

    def __init__(self, total: int, connection: int = 1000, address: int = 0, tables: int = 0) -> None:
        self.tables = tables
        self.ledger = Ledger(total, connection, address, lambda: self.tables)
        self.closed: list[str] = []
        self.why: list[str] = []

    def open(self, name: str, address: str = "192.0.2.1") -> Account:
        """Open an account."""

        def close(cause: str, why: str) -> None:
            assert cause == CAUSE
            self.closed.append(name)
            self.why.append(why)
            account.end()

        account = self.ledger.open(address, close)
        return account


def test_nothing_is_closed_while_all_fits() -> None:
    peers = Peers(1000)
    for name in ("a", "b"):
        peers.open(name).add(500)
    assert (peers.closed, peers.ledger.bytes) == ([], 1000)


def test_connection_that_keeps_most_is_closed_over_the_budget() -> None:
    peers = Peers(1000)
    small, large = peers.open("small"), peers.open("large")
    small.add(300)
    large.add(700)
    small.add(1)
    assert (peers.closed, peers.ledger.bytes) == (["large"], 301)


def test_address_that_keeps_most_pays_though_others_connection_is_larger() -> None:
    peers = Peers(1000)
    honest = peers.open("honest", "192.0.2.1")
    many = [peers.open(f"many{number}", "192.0.2.2") for number in range(8)]
    honest.add(400)
    for account in many:
        account.add(75)  # 400 + 8 x 75 = 1000
    many[0].add(1)
    assert (len(peers.closed), "honest" in peers.closed, peers.ledger.bytes) == (1, False, 1001 - 76)


def test_connections_are_closed_until_the_budget_is_met() -> None:
    peers = Peers(1000)
    accounts = [peers.open(str(number)) for number in range(10)]
    for account in accounts:
        account.add(100)
    accounts[9].add(20)
    accounts[8].add(900)
    assert peers.ledger.bytes <= 1000
    assert peers.ledger.bytes == sum(account.bytes for account in accounts)


def test_connection_over_its_own_bound_is_closed() -> None:
    peers = Peers(1000, connection=100)
    peers.open("a").add(101)
    assert (peers.closed, peers.ledger.bytes) == (["a"], 0)


def test_address_over_its_bound_loses_its_largest_connection() -> None:
    peers = Peers(1000, address=300)
    small, large, other = peers.open("small"), peers.open("large"), peers.open("other", "192.0.2.2")
    other.add(300)
    large.add(200)
    small.add(101)
    assert (peers.closed, peers.ledger.bytes) == (["large"], 401)


def test_tables_count_against_the_budget_at_the_next_look() -> None:
    peers = Peers(1000, tables=400)
    peers.open("a").add(500)
    peers.tables = 600
    assert (peers.closed, peers.ledger.total) == ([], 1100)
    peers.ledger.relieve()
    assert (peers.closed, peers.ledger.total) == (["a"], 600)


def test_tables_over_the_budget_alone_close_no_connection() -> None:
    peers = Peers(1000, tables=2000)
    peers.ledger.relieve()
    assert peers.ledger.total == 2000


def test_returned_bytes_are_room_for_others() -> None:
    peers = Peers(1000)
    first, second = peers.open("first"), peers.open("second")
    first.add(900)
    first.add(-900)
    second.add(1000)
    assert (peers.closed, peers.ledger.bytes) == ([], 1000)


def test_closed_connections_leave_nothing() -> None:
    peers = Peers(1000)
    for round_number in range(3):
        accounts = [peers.open(str(number), f"192.0.2.{number}") for number in range(5)]
        for account in accounts:
            account.add(100 + round_number)
        for account in accounts:
            account.end()
    assert (peers.ledger.bytes, peers.ledger.addresses) == (0, 0)
    peers.open("new", "192.0.2.9").add(1001)
    assert peers.closed == ["new"], "no closed connection is taken for the largest one"


def test_cause_says_how_much_there_is() -> None:
    peers = Peers(100)
    peers.open("a").add(101)
    assert peers.why == ["101 bytes are kept by the process, 101 of them for the connection"]


@pytest.mark.parametrize("size", [1, 2, 3, 1023, 1024, 1025])
def test_sizes_at_the_edge_of_a_class_are_found_again(size: int) -> None:
    peers = Peers(1 << 20, connection=1 << 20)
    account = peers.open("a")
    for change in (size, 1, -1, -size, size):
        account.add(change)
    assert peers.ledger.bytes == size
