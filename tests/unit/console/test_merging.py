"""Rows of several members as one list; the history's bounds; what a page's address may ask for."""

from typing import Any

import pytest
from msgspec.structs import replace

from console.board import SECONDS, History
from console.merging import merge_client, merge_clients, merge_rules, one_budget
from console.verdict import verdict
from console.views import ROWS_PER_PAGE, Asked, choose
from proxy.explain.documents import (
    ClientDocument,
    ClientRow,
    ClientsDocument,
    ConnectionRow,
    DemandRow,
    DocumentError,
    Level,
    Quota,
    RuleRow,
    Times,
    Wants,
)
from tests.support.documents import as_json, read
from tests.support.scripted_member import rule, times

IDLE = Times(idle=1.0)
HALF_MUTED = Times(muted=0.5, idle=0.5)


def client(client_id: str, times: Times = IDLE, member: str = "gw-1", rate: float = 1.0) -> ClientRow:
    quotas = (Quota(kind="produce", entity="client-id 'a'", value=10.0, rate=rate),)
    return ClientRow(
        user="",
        client_id=client_id,
        connections=1,
        time=times,
        time_of_all_connections=times,
        quotas=quotas,
        members=(member,),
    )


def listed(*rows: ClientRow) -> ClientsDocument:
    return ClientsDocument(clients_total=len(rows), clients=rows)


def test_client_of_two_members_is_one_row_of_the_member_where_it_waits() -> None:
    one = listed(client("a", rate=3.0))
    other = listed(client("a", HALF_MUTED, "gw-2", rate=4.0))
    (row,) = merge_clients([one, other]).clients
    assert row.time == HALF_MUTED
    assert row.time_of_all_connections == Times(muted=0.25, idle=0.75)  # one connection at each
    assert row.connections == 2
    assert row.quotas[0].rate == 7.0
    assert row.members == ("gw-1", "gw-2")


def test_members_that_are_no_fleet_have_budgets_of_their_own() -> None:
    lists = [listed(client("a", member=name, rate=rate)) for name, rate in (("a:1", 3.0), ("b:1", 4.0))]
    (row,) = merge_clients(lists, shared=False).clients
    assert (row.quotas[0].rate, row.quotas[0].value, row.connections) == (4.0, 10.0, 2)
    rules = [
        [RuleRow(kind="produce", key="producer_byte_rate", entity="client-id 'a'", value=10.0, rate=rate)]
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
    assert history.client(("", "a"), now=0.0, slots=1) == [HALF_MUTED.parts]
    history.add([], [], now=float(SECONDS))
    assert history.client(("", "a"), now=0.0, slots=1) == [None]


def test_history_keeps_the_clients_that_were_seen_last() -> None:
    history = History(clients_max=2)
    for name in ("a", "b", "c"):
        history.add([client(name)], [], now=0.0)
    kept = [history.client(("", name), 0.0, 1) for name in ("a", "b", "c")]
    assert kept == [[None], [IDLE.parts], [IDLE.parts]]


def test_page_beyond_the_last_is_the_last() -> None:
    many = [client(f"{number:03}") for number in range(ROWS_PER_PAGE + 1)]
    chosen = choose(many, Asked(page=9, sort="client", order="asc"), [])
    assert [row.client_id for row in chosen.rows] == [f"{ROWS_PER_PAGE:03}"]
    assert (chosen.page, chosen.pages, chosen.first) == (2, 2, ROWS_PER_PAGE + 1)


def test_address_of_another_sort_begins_at_the_first_page() -> None:
    assert Asked(page=3, q="a b").link(sort="client") == "?q=a+b&sort=client"
    assert Asked(sort="client", order="asc").link(sort="client") == "?sort=client&order=desc"


Document = dict[str, Any]


def connection(peer: str, seconds: float, **parts: float) -> Document:
    own = as_json(ConnectionRow(peer=peer, broker=1, seconds=seconds, in_flight=0))
    return {**own, "time": times(**parts)}


def client_document(
    connections: list[Document], of_all: Document | None = None, total: int | None = None, **fields: Any
) -> Document:
    """Return a /v1/client document; its time is that of the first connection."""
    said = "web of user alice waited."
    own = ClientDocument(user="alice", client_id="web", window_seconds=60, sentence=said)
    return {
        **as_json(own),
        "time": connections[0]["time"] if connections else times(),
        "time_of_all_connections": times() if of_all is None else of_all,
        "connections": connections,
        "connections_total": len(connections) if total is None else total,
        **fields,
    }


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"clients": {}},
        {"clients": [{"client_id": 1}]},
        {"clients": [{"user": "", "client_id": "a", "time": {"held": float("inf")}}]},
        {"clients": [{"user": "", "client_id": "a", "time": {"held": 1.1}}]},
        {"clients": [{"user": "", "client_id": "a", "connections": 1.5}]},
        {"clients": [{"user": "", "client_id": "a" * 40_001}]},
    ],
)
def test_list_that_is_none_is_refused(content: object) -> None:
    with pytest.raises(DocumentError):
        read(ClientsDocument, content)


@pytest.mark.parametrize(
    "fields", [{"connections": [{"seconds": 1}]}, {"rule": {"kind": "new"}}, {"connections_total": "many"}]
)
def test_client_document_that_is_none_is_refused(fields: Document) -> None:
    with pytest.raises(DocumentError):
        read(ClientDocument, {**client_document([]), **fields})


def together(*documents: Document, missing: tuple[str, ...] = ()) -> ClientDocument:
    found = [read(ClientDocument, one, f"gw-{number}") for number, one in enumerate(documents, 1)]
    return merge_client(found, missing)


def merged(*documents: Document, missing: tuple[str, ...] = ()) -> Document:
    found: Document = as_json(together(*documents, missing=missing))
    return found


def test_document_of_one_member_is_as_it_was() -> None:
    one = client_document([connection("a", 60, muted=0.5)])
    found = merged(one, missing=("gw-2",))
    assert found == {
        **one,
        "connections": [{**one["connections"][0], "member": "gw-1"}],
        "members": [{"admin": "gw-1", "connections_total": 1, "time": times(muted=0.5)}],
        "members_missing": ["gw-2"],
        "missing": [],
    }


def test_missing_workers_are_those_of_all_members_with_their_member() -> None:
    late = {"worker": 2, "problem": "no response within 4 s"}
    one = client_document([connection("a", 60, muted=0.5)]) | {"missing": [late]}
    other = client_document([connection("b", 60)]) | {
        "missing": [{"worker": 1, "problem": "it does not run"}]
    }
    assert merged(one, other)["missing"] == [
        {"member": "gw-1", **late},
        {"member": "gw-2", "worker": 1, "problem": "it does not run"},
    ]


def test_client_is_shown_by_the_member_where_it_waits_longest() -> None:
    limit = rule()
    del limit["name"]
    found = merged(
        client_document([connection("a", 60, muted=0.03)], sentence="Here it waits little."),
        client_document([connection("b", 60, held=0.62)] * 12, sentence="Here it waits.", rule=limit),
    )
    assert found["time"] == times(held=0.62)
    assert found["rule"] == limit | {"changes_at": "", "then": None}
    assert found["sentence"] == (
        "Here it waits. It has connections at 2 members: 12 at gw-2 (62% waited), 1 at gw-1 (3%)."
    )
    assert found["connections_total"] == 13
    assert [one["connections_total"] for one in found["members"]] == [1, 12]


def test_members_count_with_the_seconds_of_their_connections() -> None:
    found = merged(
        # 2 connections of 60 s in the window: 120 s, of which 0.5 are muted
        client_document([connection("a", 60, muted=0.5), connection("b", 3600, muted=0.5)], times(muted=0.5)),
        # one is listed of 4, of 10 s each: 40 s, of which 0.1 are muted
        client_document([connection("c", 10, muted=0.1)], times(muted=0.1), total=4),
    )
    # 120 s and 40 s: three quarters of 0.5, and a quarter of 0.1
    assert found["time_of_all_connections"] == times(muted=0.4)


def test_waits_are_parts_of_all_members_time() -> None:
    wait = {"kind": "produce", "key": "producer_byte_rate", "name": "", "part": 0.4}
    other = {"kind": "request", "key": "request_percentage", "name": "", "part": 0.6}
    found = merged(
        client_document([connection("a", 60, muted=0.4)], waits=[wait]),
        client_document([connection("b", 20, muted=0.8)], waits=[{**wait, "part": 0.2}, other]),
    )
    # 60 s and 20 s: 0.75 * 0.4 + 0.25 * 0.2, and 0.25 * 0.6
    assert found["waits"] == [{**wait, "part": 0.35}, {**other, "part": 0.15}]


def test_neighbours_of_the_same_rule_are_added_up_and_others_left_out() -> None:
    def at(muted: float, key: str, **rates: float) -> Document:
        rows = [{"user": "", "client_id": name, "rate": rate} for name, rate in rates.items()]
        return client_document([connection("a", 60, muted=muted)], rule=rule(key), neighbours=rows)

    found = merged(
        at(0.6, "producer_byte_rate", web=3.0, batch=1.0),
        at(0.5, "producer_byte_rate", batch=4.0),
        at(0.4, "request_percentage", web=90.0),
    )
    assert [(one["client_id"], one["rate"]) for one in found["neighbours"]] == [("batch", 5.0), ("web", 3.0)]


def test_brokers_are_weighted_by_connections() -> None:
    def at(connections: int, waited: float, ms: float | None) -> Document:
        one = {"broker": 2, "connections": connections, "waited": waited, "at_broker": 0.2}
        return client_document([connection("a", 60)], brokers=[{**one, "ms_per_request": ms}])

    found = merged(at(3, 0.4, 10.0), at(1, 0.8, 2.0), at(4, 0.5, None))
    # (3 * 0.4 + 1 * 0.8) / 4 = 0.5; (3 * 10 + 1 * 2) / 4 = 8
    expected = {"broker": 2, "connections": 8, "waited": 0.5, "at_broker": 0.2, "ms_per_request": 8.0}
    assert found["brokers"] == [expected]


def test_connections_are_the_longest_waiting_of_all_members() -> None:
    rows = [connection(f"a{number}", 60, muted=number / 1000) for number in range(99, -1, -1)]
    found = merged(
        client_document(rows), client_document([connection("b", 60, muted=0.0505), connection("c", 60)])
    )
    assert found["connections_total"] == 102
    assert len(found["connections"]) == 100
    assert [one["peer"] for one in found["connections"][48:51]] == ["a51", "b", "a50"]
    assert [one["member"] for one in found["connections"][48:51]] == ["gw-1", "gw-2", "gw-1"]


def test_sentence_names_five_members() -> None:
    many = [client_document([connection("a", 60, muted=(9 - number) / 10)]) for number in range(7)]
    assert merged(*many)["sentence"].endswith(
        "It has connections at 7 members: 1 at gw-1 (90% waited), 1 at gw-2 (80%), 1 at gw-3 (70%), "
        "1 at gw-4 (60%), 1 at gw-5 (50%), 2 at 2 others."
    )


def test_client_whose_connections_have_ended_is_merged() -> None:
    found = merged(client_document([], times(muted=0.2)), client_document([], times(muted=0.4)))
    assert found["time_of_all_connections"] == times(muted=0.3)
    assert found["connections"] == []


def test_connection_keeps_its_particulars_and_lines_for_people_name_its_member() -> None:
    particulars = {"library": "librdkafka 2.3.0", "batch_bytes": 20_480, "in_flight": 5}
    one = {**connection("a", 60, muted=0.5), **particulars, "waits_until": "2026-11-23T10:40:01.250Z"}
    other = connection("b\x1b", 60)
    documents = client_document([one]), client_document([other])
    assert merged(*documents)["connections"] == [{**one, "member": "gw-1"}, {**other, "member": "gw-2"}]
    assert list(verdict(together(*documents)))[-3:] == [
        "connections: 2",
        "  a  broker 1  muted 50%  librdkafka 2.3.0  at gw-1",
        "  b\\x1b  broker 1  idle  at gw-2",
    ]


def test_what_the_clients_library_says_is_what_it_has_said_last_to_any_member() -> None:
    def said(kind: str, ms: float, ago: float) -> Document:
        return {"kind": kind, "average_ms": ms, "longest_ms": 4 * ms, "seconds_ago": ago}

    found = together(
        client_document(
            [connection("a", 60)], telemetry=[said("produce", 10.0, 299.0), said("fetch", 5.0, 3.0)]
        ),
        client_document([connection("a", 60)], telemetry=[said("produce", 118.2, 12.0)]),
    )
    assert list(verdict(found))[1:4] == [
        "Its own client library says of its Fetch requests: throttled 5.0 ms on average, 20 ms at most, 3.0 s ago.",
        (
            "Its own client library says of its Produce requests: throttled 118 ms on average, 473 ms at most, "
            "12.0 s ago."
        ),
        "",
    ]


def test_lines_for_people_say_what_a_class_had_of_a_capacity() -> None:
    found = together(client_document([connection("a", 60)]))
    level = Level(
        binds="capacity", entity="group 'web'", capacity=8e6, rate=2e6, has=1e6, lent=5e5, spare=1e6
    )
    had = "borrowed 500.0 kB/s of 1.0 MB/s that others left, ceiling 8.0 MB/s"
    for rate, own in ((2e6, "1.0 MB/s of its 2.0 MB/s"), (0.0, "1.0 MB/s, which is not promised")):
        found.level = replace(level, rate=rate, ceiling=8e6)
        assert f"  group 'web' had {own}, {had}" in list(verdict(found))


def asking(muted: float, taken: float, most: float | None, **fields: Any) -> Document:
    """A member's document of a client that waits for a limit of 2 MB/s."""
    demand = {"producer_byte_rate": {"taken": taken, "highest": taken, "most": most}}
    wants = None
    if most is not None:
        waits = {"1": round(60 * muted, 1), "2": 0.0}
        wants = {"rate": most, "at_least": False, "assumed": "it waits", "wait_seconds_per_minute": waits}
    own: Document = {"rule": rule() if muted else None, "wants": wants if muted else None, "demand": demand}
    return client_document([connection("a", 60, muted=muted)], **own, **fields)


def test_what_a_client_asks_for_is_added_up() -> None:
    """4.0 MB/s and 2.5 MB/s at two members where it waits, and 0.5 MB/s at a third where it does not."""
    found = together(asking(0.5, 2e6, 4e6), asking(0.6, 1e6, 2.5e6), asking(0.0, 5e5, 5e5))
    assert found.wants == Wants(rate=7e6, assumed="it waits", wait_seconds_per_minute={"1": 36.0, "2": 0.0})
    assert found.demand["producer_byte_rate"] == DemandRow(taken=3.5e6, highest=3.5e6, most=7e6)
    assert found.sentence.endswith("At all of them together it asks for at most about 7.0 MB/s.")
    assert "asks for at most about 7.0 MB/s, if it waits" in "\n".join(verdict(found))


@pytest.mark.parametrize(
    ("taken", "wants", "sentence", "line"),
    [
        (
            9e5,
            None,
            "How much it asks for at all of them together is not known.",
            "how much it asks for is not known, nor what it would wait with another limit",
        ),
        (
            2.5e6,
            Wants(rate=3.5e6, at_least=True, assumed="it waits"),
            "It took up to 3.5 MB/s in that time; how much it asks for at all of them together is not known.",
            "took up to 3.5 MB/s; how much more it asks for is not known",
        ),
    ],
)
def test_what_one_member_does_not_know_is_not_stated(
    taken: float, wants: Wants | None, sentence: str, line: str
) -> None:
    """A lower bound of 1.9 MB/s says nothing under a limit of 2 MB/s; 3.5 MB/s do."""
    found = together(asking(0.5, 1e6, 2e6), asking(0.95, taken, None))
    assert found.wants == wants
    assert sentence in found.sentence
    lines = "\n".join(verdict(found))
    assert line in lines
    assert "times the limit" not in lines


def test_member_of_a_version_without_demand_knows_nothing_of_it() -> None:
    old = asking(0.4, 1e6, 2e6)
    del old["demand"]
    found = merged(asking(0.5, 1e6, 2e6), old)
    assert found["wants"] is None
