"""What `sluice top` shows: rows, their order, the filter, warnings, plain text and JSON."""

from datetime import UTC, datetime
from typing import Any

import pytest

from console.top import HEADS, MemberState, Page, choose, document, heading, lines, merge, rows, warnings
from proxy.explain.documents import ClientsDocument, StatusDocument
from proxy.explain.parts import NAMES
from tests.support.documents import read
from tests.support.scripted_member import row, times

AT = datetime(2026, 11, 23, 5, 6, 7, tzinfo=UTC)
RULE = {"kind": "produce", "key": "producer_byte_rate", "entity": "client-id <default>", "value": 2e6}
QUOTA = {"kind": "produce", "entity": "client-id <default>", "value": 2e6, "rate": 1e6}


APART = "these members are no fleet, each has its own budgets: rates are of the member where they are highest"


def client(client_id: str, user: str = "alice", connections: int = 1, **fields: Any) -> dict[str, Any]:
    time = times(**{name: fields.pop(name) for name in NAMES if name in fields})
    return row(client_id, user, connections=connections, time=time, **fields)


def member_state(admin: str, *found: dict[str, Any], member: str = "", **state: Any) -> MemberState:
    status = read(StatusDocument, {"mode": "enforce", "member": member, **state})
    content = {"clients": list(found), "clients_total": len(found)}
    return MemberState(admin, status, read(ClientsDocument, content, member or admin), (), "")


def page_of(*members: MemberState) -> Page:
    return merge(members, AT, 60)


WAITS = client("waits", held=0.6, rule=RULE, quotas=[QUOTA])
SLOW = client("slow", "bob", 5, client=0.8)
IDLE = client("Idle", "carol", 2)


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("waits", ["waits", "slow", "Idle"]),
        ("client", ["Idle", "slow", "waits"]),
        ("user", ["waits", "slow", "Idle"]),
        ("limit", ["waits", "slow", "Idle"]),
        ("connections", ["slow", "Idle", "waits"]),
    ],
)
def test_rows_are_sorted_by_a_column(sort: str, names: list[str]) -> None:
    found = rows(page_of(member_state("a:1", IDLE, SLOW, WAITS)))
    assert [row.client.client_id for row in choose(found, sort).rows] == names
    assert [row.client.client_id for row in choose(found, sort, reverse=True).rows] == names[::-1]


def test_filter_finds_parts_of_client_ids_and_users_in_any_case() -> None:
    found = rows(page_of(member_state("a:1", IDLE, SLOW, WAITS)))
    assert [row.client.client_id for row in choose(found, "waits", "IDL").rows] == ["Idle"]
    assert [row.client.client_id for row in choose(found, "waits", "Bob").rows] == ["slow"]
    assert choose(found, "waits", "[").matching == 0


def test_first_of_many_rows_are_chosen_with_their_number() -> None:
    found = rows(
        page_of(member_state("a:1", *(client(f"c{number}", held=number / 10_000) for number in range(9000))))
    )
    chosen = choose(found, "waits", at_most=3)
    assert [row.client.client_id for row in chosen.rows] == ["c8999", "c8998", "c8997"]
    assert chosen.matching == 9000


def test_plain_table_has_rates_limits_and_reasons() -> None:
    page = page_of(member_state("a:1", WAITS, SLOW))
    heading_line, _, heads, *table = lines(page, choose(rows(page), "waits"))
    assert heading_line == "sluice top  05:06:07  last minute  enforcing  2 clients"
    assert " ".join(heads.split()) == "CLIENT USER WAITS WHY RATE OF LIMIT CONNECTIONS"
    limit = "producer_byte_rate 2.0 MB/s of client-id <default>"
    assert " ".join(table[0].split()) == f"waits alice 60% {limit} 1.0 MB/s of 2.0 MB/s 1"
    assert " ".join(table[1].split()) == "slow bob 0% slow client: reads or sends slowly - 5"


@pytest.mark.parametrize(("rate", "over"), [(1.98, True), (1.05, False)])
def test_client_over_its_limit_that_does_not_wait_is_said_to_be_over(rate: float, over: bool) -> None:
    quota = {"kind": "request", "entity": "client-id <default>", "value": 1.0, "rate": rate}
    page = page_of(member_state("a:1", client("asks", broker=0.02, quotas=[quota]), IDLE))
    found = rows(page)
    assert found[0].kind == ("over" if over else "calm")
    *_, first, _ = lines(page, choose(found, "limit"))
    why = "over its request quota, and hardly waits" if over else "asks for little"
    limit = f"{rate} % of 1 %{', over' if over else ''}"
    assert " ".join(first.split()) == f"asks alice 0% {why} {limit} 1"


def test_members_are_merged_and_shown() -> None:
    page = page_of(member_state("a:1", WAITS, member="gw-1"), member_state("b:1", WAITS, member="gw-2"))
    table = list(lines(page, choose(rows(page), "waits")))
    assert table[0].endswith("1 client, 2 members")
    assert table[2].split()[-1] == HEADS[-1]
    assert table[3].endswith("2.0 MB/s of 2.0 MB/s            2  gw-1 gw-2")  # one budget for both


def test_members_that_are_no_fleet_have_budgets_of_their_own() -> None:
    page = page_of(member_state("a:1", WAITS), member_state("b:1", WAITS))
    assert list(lines(page, choose(rows(page), "waits")))[4].endswith(
        "1.0 MB/s of 2.0 MB/s            2  a:1 b:1"
    )
    assert list(warnings(page)) == [APART]
    assert not list(warnings(page_of(member_state("a:1", WAITS))))


def test_silent_member_and_missing_enforcement_are_warned_of() -> None:
    silent = MemberState("c:1", None, None, (), "no response within 5 s")
    off = member_state(
        "a:1",
        enforcing=False,
        switched={"enforcing": False, "at": "T", "by": "ops", "reason": "a \x1b[2J test"},
    )
    page = page_of(off, member_state("b:1", mode="observe"), silent)
    assert heading(page).split("  ")[3] == "NOT ENFORCING and observing"
    assert list(warnings(page)) == [
        r"a:1: enforcement is OFF since T by ops: a \x1b[2J test",
        "b:1: quotas are only observed",
        "c:1 does not respond: no response within 5 s",
        APART,
    ]


@pytest.mark.parametrize("name", ["\x1b[2J\x07", "\u202eevil", "a\nb\tc", "\x9b31m"])
def test_names_reach_the_terminal_escaped_and_cut(name: str) -> None:
    page = page_of(
        member_state("a:1", client(name + "x" * 32_000, name, held=0.5, rule=RULE | {"entity": name}))
    )
    table = list(lines(page, choose(rows(page), "waits")))
    assert all(line.isprintable() for line in table)
    assert max(map(len, table)) < 300


def test_json_has_whole_names_and_all_parts() -> None:
    state = member_state("a:1", client("\x1b" * 100, held=0.25), member="gw-1")
    page = page_of(state._replace(missing=("worker 2 (it does not run)",)))
    found = document(page, choose(rows(page), "waits"))
    assert found["at"] == "2026-11-23T05:06:07+00:00"
    lacking = {"problem": "", "missing": ["worker 2 (it does not run)"]}
    member = {"admin": "a:1", "name": "gw-1", "mode": "enforce", "enforcing": True, **lacking}
    assert found["members"] == [member]
    said = "gw-1 lacks worker 2 (it does not run): clients connected there are not shown"
    assert list(warnings(page)) == [said]
    (one,) = found["clients"]
    assert one["client_id"] == "\x1b" * 100
    assert (one["waits"], one["limit"], one["members"]) == (0.25, None, ["gw-1"])
    assert sum(one["time"].values()) == 1
