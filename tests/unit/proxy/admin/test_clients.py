"""/clients: which rows there are, in which order, and what they say."""

import re

import pytest

from proxy.admin.clients import ROWS_MAX, TITLES, TOPIC, ClientTable
from proxy.explain.documents import Missing
from quotas.throttles.figures import QuotaView

VIEW = QuotaView("", "a", "Produce", 3000.0, 2000.0, 5000, 2500, 3, 0, 0, 1234.0, broker=1)
FREE = VIEW._replace(byte_rate=500.0, quota=None, debt_bytes=0.0)
MUTATIONS = QuotaView("u", "m", "ControllerMutation", 0.0, 5.0, 60, 5000, 1, 0, 0, 0.0, -22.7)
REQUESTS = QuotaView("u", "r", "Request", 12.5, 10.0, 1_500_000, 7200, 4, 0, 0, 0.0, broker=1)


def body(*views: QuotaView, enforcing: bool = True, again: bool = True) -> str:
    found = ClientTable()
    found.count(views)
    if again and found.at_several_brokers:
        found.add_rates(views)
    return found.page(enforcing).body.decode()


def rows(page: str) -> list[list[str]]:
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", page)]


def test_every_client_has_a_row_with_its_figures() -> None:
    found = rows(body(VIEW, FREE._replace(client_id="b")))
    assert found == [
        ["a", "", "Produce", "1", "3,000 B/s", "3,000 B/s", "2,000 B/s", "1.50", "1,234 B", "2.5", "0.0"],
        ["b", "", "Produce", "1", "500 B/s", "500 B/s", "none", "", "0 B", "2.5", "0.0"],
    ]


def test_rates_are_added_up_over_brokers() -> None:
    found = rows(body(VIEW, VIEW._replace(broker=2, byte_rate=1000.0), FREE._replace(client_id="b")))
    assert [row[3:6] for row in found[:2]] == [
        ["1", "3,000 B/s", "4,000 B/s"],
        ["2", "1,000 B/s", "4,000 B/s"],
    ]


@pytest.mark.parametrize(
    ("view", "cells"),
    [
        (
            MUTATIONS,
            ["ControllerMutation", "all", "", "", "5 partitions/s", "", "22.7 partitions", "5.0", "0.0"],
        ),
        (REQUESTS, ["Request", "1", "12.5 %", "12.5 %", "10.0 %", "1.25", "", "7.2", "0.0"]),
        (
            VIEW._replace(type=TOPIC + "Produce", byte_rate=0.0, broker=-1),
            ["Topic Produce", "all", "", "", "2,000 B/s", "", "1,234 B", "2.5", "0.0"],
        ),
        (
            VIEW._replace(client_id="o", throttle_ms_total=0, would_throttle_ms_total=61_250, broker=-1),
            ["Produce", "all", "3,000 B/s", "3,000 B/s", "2,000 B/s", "1.50", "1,234 B", "0.0", "61.2"],
        ),
    ],
    ids=["mutations", "requests", "topic", "observed, all brokers"],
)
def test_each_kind_of_quota_has_its_unit_and_counts_as_over(view: QuotaView, cells: list[str]) -> None:
    page = body(FREE._replace(byte_rate=1e9), view)
    assert rows(page)[0][2:] == cells
    assert "Over a quota now, and throttled: 1." in page


def test_clients_over_a_quota_come_first_and_then_those_that_move_most() -> None:
    views = [
        FREE._replace(client_id="little"),
        FREE._replace(client_id="much", byte_rate=9000.0),
        VIEW._replace(client_id="twice", byte_rate=4000.0),
        VIEW._replace(client_id="under", byte_rate=1000.0, debt_bytes=0.0),
        REQUESTS._replace(client_id="asks", byte_rate=9.0),
        VIEW._replace(client_id="in debt", byte_rate=1000.0, debt_bytes=1.0),
        VIEW._replace(client_id="thrice", byte_rate=6000.0),
    ]
    order = ["thrice", "twice", "in debt", "much", "under", "little", "asks"]
    assert [row[0] for row in rows(body(*views))] == order


def test_rows_are_bounded_and_the_same_in_portions() -> None:
    views = [VIEW._replace(client_id=str(n), byte_rate=2001.0 + n) for n in range(1000)]
    found = ClientTable()
    for start in range(0, 1000, 100):
        found.count(views[start : start + 100])
    for start in range(0, 1000, 100):
        found.add_rates(views[start : start + 100])
    page = found.page(True).body.decode()
    assert page == body(*views)
    assert [row[0] for row in rows(page)] == [str(n) for n in range(999, 999 - ROWS_MAX, -1)]
    assert "throttled: 1000. " in page
    assert f"Rows: {ROWS_MAX} of 1000; those over a quota come first" in page


def test_page_says_when_nothing_is_enforced() -> None:
    assert "Over a quota now, and not throttled, since nothing is enforced: 1." in body(VIEW, enforcing=False)


HOSTILE = "\x1b[2J\u202ea<b>"
SHOWN = r"\x1b[2J\u202ea"


def test_control_and_direction_characters_are_written_out_on_both_pages() -> None:
    found = ClientTable()
    found.count([VIEW._replace(client_id=HOSTILE, user=HOSTILE)])
    page = found.page(True, HOSTILE).body.decode()
    assert rows(page)[0][:2] == [f"{SHOWN}&lt;b&gt;"] * 2
    assert f"<strong>{SHOWN}&lt;b&gt;</strong>" in page
    for text in (page, found.text(True, HOSTILE).body.decode()):
        assert SHOWN in text
        assert text.replace("\n", "").isprintable()
    assert rows(body(VIEW._replace(client_id="", user="\udce4")))[0][:2] == ["(empty)", "\\udce4"]
    assert len(body(VIEW._replace(client_id="<script>" + "x" * 5000, user="&" * 5000))) < 3500


def test_missing_workers_are_named_on_top_of_both_pages() -> None:
    part = ClientTable().part()
    assert "missing" not in ClientTable.merge([part, part]).page(True).body.decode()
    found = ClientTable.merge([part], (Missing(1, "silent for 3 s"), Missing(3, "it does not run")))
    said = (
        "workers 1 (silent for 3 s), 3 (it does not run) are missing: clients connected to them are not shown"
    )
    assert found.text(True).body.decode().startswith(f"{said}\n")
    assert f"<h1>Clients</h1><p><strong>{said}</strong></p>" in found.page(True).body.decode()


def test_terminal_gets_a_table_without_escape_sequences() -> None:
    found = ClientTable()
    found.count(
        [VIEW._replace(client_id="\x1b[2Jevil\n", broker=-1), FREE._replace(client_id="café", broker=-1)]
    )
    page = found.text(True)
    assert page.content_type == "text/plain; charset=utf-8"
    lines = page.body.decode().splitlines()
    assert lines[0].startswith("Over a quota now, and throttled: 1. ")
    assert lines[2].split()[:4] == ["Client", "id", "User", "Kind"]
    assert lines[3].startswith(r"\x1b[2Jevil\n        Produce  all     3,000 B/s  3,000 B/s")
    assert lines[4].startswith("café ")
    assert len(lines) == 5


def test_table_without_clients_has_its_titles() -> None:
    assert ClientTable().text(True).body.decode().endswith("Rows: 0.\n\n" + "  ".join(TITLES) + "\n")


def test_client_in_two_processes_is_one_row() -> None:
    parts = []
    for rate in (3000.0, 1000.0):
        table = ClientTable()
        table.count([VIEW._replace(byte_rate=rate, quota=3500.0, debt_bytes=0.0)])
        parts.append(table.part())
    text = ClientTable.merge(parts).text(True).body.decode()
    assert "throttled: 1. " in text  # 4,000 B/s over 3,500, although each alone is not
    assert "Rows: 1." in text
    assert "4,000 B/s" in text
