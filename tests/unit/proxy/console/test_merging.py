"""Rows of several members as one list; the history's bounds; what a page's address may ask for."""

import pytest

from console.board import SECONDS, History
from console.documents import Client, ClientList, DocumentError, Quota, RuleRow, clients
from console.merging import merge_clients, merge_rules, one_budget
from console.views import ROWS_PER_PAGE, Asked, choose

IDLE = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
HALF_MUTED = (0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5)


def client(
    client_id: str, times: tuple[float, ...] = IDLE, member: str = "gw-1", rate: float = 1.0
) -> Client:
    quotas = (Quota("produce", "client-id 'a'", 10.0, rate, None),)
    return Client("", client_id, 1, times, times, None, quotas, (member,))


def test_client_of_two_members_is_one_row_of_the_member_where_it_waits() -> None:
    one = ClientList(1, (client("a", rate=3.0),))
    other = ClientList(1, (client("a", HALF_MUTED, "gw-2", rate=4.0),))
    (row,) = merge_clients([one, other]).clients
    assert row.times == HALF_MUTED
    assert row.all_times == (0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 0.75)  # one connection at each
    assert row.connections == 2
    assert row.quotas[0].rate == 7.0
    assert row.members == ("gw-1", "gw-2")


def test_members_that_are_no_fleet_have_budgets_of_their_own() -> None:
    lists = [
        ClientList(1, (client("a", member=name, rate=rate),)) for name, rate in (("a:1", 3.0), ("b:1", 4.0))
    ]
    (row,) = merge_clients(lists, shared=False).clients
    assert (row.quotas[0].rate, row.quotas[0].value, row.connections) == (4.0, 10.0, 2)
    rules = [
        [RuleRow("produce", "producer_byte_rate", "client-id 'a'", 10.0, "", "", True, 1, 0, rate)]
        for rate in (3.0, 4.0)
    ]
    assert [one.rate for one in merge_rules(rules, shared=False)] == [4.0]
    assert [one.rate for one in merge_rules(rules)] == [7.0]
    assert one_budget(["gw-1", "gw-2"])
    assert one_budget([""])
    assert not one_budget(["gw-1", ""])


def test_history_forgets_clients_that_were_long_not_seen() -> None:
    history = History()
    history.add([client("a", HALF_MUTED)], [], now=0.0)
    history.add([client("b")], [], now=SECONDS - 1.0)
    assert history.client(("", "a"), now=0.0, slots=1) == [HALF_MUTED]
    history.add([], [], now=float(SECONDS))
    assert history.client(("", "a"), now=0.0, slots=1) == [None]


def test_history_keeps_the_clients_that_were_seen_last() -> None:
    history = History(clients_max=2)
    for name in ("a", "b", "c"):
        history.add([client(name)], [], now=0.0)
    assert [history.client(("", name), 0.0, 1) for name in ("a", "b", "c")] == [[None], [IDLE], [IDLE]]


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"clients": {}},
        {"clients": ["a"]},
        {"clients": [{"client_id": 1}]},
        {"clients": [{"connections": "1"}]},
        {"clients": [{"time": {"held": 1e999}}]},
        {"clients": [{"connections": 10**400}]},
    ],
)
def test_document_that_is_none_is_refused(content: object) -> None:
    with pytest.raises(DocumentError):
        clients(content, "gw-1")


def test_page_beyond_the_last_is_the_last() -> None:
    many = [client(f"{number:03}") for number in range(ROWS_PER_PAGE + 1)]
    chosen = choose(many, Asked(page=9, sort="client", order="asc"), [])
    assert [row.client_id for row in chosen.rows] == [f"{ROWS_PER_PAGE:03}"]
    assert (chosen.page, chosen.pages, chosen.first) == (2, 2, ROWS_PER_PAGE + 1)


def test_address_of_another_sort_begins_at_the_first_page() -> None:
    assert Asked(page=3, q="a b").link(sort="client") == "?q=a+b&sort=client"
    assert Asked(sort="client", order="asc").link(sort="client") == "?sort=client&order=desc"
