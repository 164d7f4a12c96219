"""The ring of events: ids, bounds by kind, and what a reader is told of events that are gone."""

import json
import logging
from collections import Counter
from typing import Any

import pytest

from proxy.events import Event, Events, kinds
from proxy.events.ring import BURST, KIND_BYTES_MAX, KIND_EVENTS_MAX, PER_SECOND, Portion, Ring
from proxy.system.logs import AUDIT

SECOND_MS = 1000
OPS = kinds.By("User:ops", "10.0.0.4")


def read(portion: Portion) -> list[dict[str, Any]]:
    return [json.loads(text) for text in portion.events]


def ids(portion: Portion) -> list[int]:
    return [found["id"] for found in read(portion)]


def filled(ring: Ring, event: Event, count: int, now_ms: int = 0) -> int:
    """Add events as slowly as the ring takes them; returns the time of the last."""
    for _ in range(count):
        now_ms += SECOND_MS // PER_SECOND
        assert ring.add(event, now_ms / SECOND_MS, now_ms)
    return now_ms


def test_event_has_id_time_kind_text_and_its_fields() -> None:
    ring = Ring()
    ring.add(kinds.BrokerBack(2), 1.25, 0)
    assert ring.after(0, 10).events == [
        '{"id": 1, "at": "1970-01-01T00:00:01.250Z", "kind": "broker_back", "text": "Broker 2 is back.", "broker": 2}'
    ]


def test_events_of_all_kinds_come_in_the_order_of_their_ids() -> None:
    ring = Ring()
    for number in range(9):
        ring.add(
            (kinds.BrokerLost(number), kinds.BrokerBack(number), kinds.ClusterBack(number))[number % 3],
            0.0,
            0,
        )
    assert ids(ring.after(4, 3)) == [5, 6, 7]
    assert ids(ring.after(0, 100)) == list(range(1, 10))
    assert ids(ring.after(9, 100)) == []
    assert ids(ring.after(7000, 3)) == [1, 2, 3]  # an id of an earlier start counts as none
    latest = ring.after(None, 2)
    assert (ids(latest), latest.last) == ([8, 9], 9)


def test_kind_keeps_its_last_events_and_the_reader_is_told_what_it_has_lost() -> None:
    ring = Ring()
    filled(ring, kinds.BrokerLost(1), KIND_EVENTS_MAX + 7)
    portion = ring.after(3, 10)
    assert portion.lost == 4
    assert ids(portion)[0] == 8


def test_noisy_kind_pushes_out_no_other() -> None:
    ring = Ring()
    ring.add(kinds.BrokerBack(1), 0.0, 0)
    for _ in range(10_000):
        ring.add(kinds.BrokerLost(1), 0.0, 0)
    portion = ring.after(0, 10_000)
    assert read(portion)[0]["kind"] == "broker_back"
    assert len(portion.events) == 1 + BURST
    assert portion.left_out == {"broker_lost": 10_000 - BURST}
    assert portion.lost == 0  # what was left out never had an id


def test_kind_that_was_left_out_is_taken_again_later() -> None:
    ring = Ring()
    assert sum(ring.add(kinds.BrokerLost(1), 0.0, 0) for _ in range(BURST + 50)) == BURST
    assert sum(ring.add(kinds.BrokerLost(1), 0.0, SECOND_MS) for _ in range(50)) == PER_SECOND


def test_large_events_are_bounded_in_bytes() -> None:
    ring = Ring()
    for number in range(BURST):
        name = "\ud800" * 32_767  # as long as a client id may be, and escaped to six times that
        ring.add(kinds.ClientWaits("\0" * 100_000, name, 0.6), 0.0, number)
    portion = ring.after(0, 1000)
    assert 0 < sum(map(len, portion.events)) <= KIND_BYTES_MAX
    assert portion.lost == BURST - len(portion.events)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\x1b[2J", '"}]', "\ud800", "ü\n"])
def test_names_are_kept_as_they_are(name: str) -> None:
    ring = Ring()
    ring.add(kinds.ClientWaits("ann", name, 0.6), 0.0, 0)
    assert read(ring.after(0, 1))[0]["client_id"] == name
    assert ring.after(0, 1).events[0].isascii()


def test_each_event_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts: Counter[str] = Counter()
    events = Events(counts, lambda: 0.0)
    events.tell(kinds.BrokerLost(2))
    events.tell(kinds.ConfigReloaded(ok=True, cause="signal"))  # `proxy.control.reload` has logged it
    events.tell(kinds.EnforcementSwitched(False, "ops", "10.0.0.4", "fire"))
    assert [(record.name, record.message) for record in caplog.records] == [
        ("proxy.events.ring", "broker lost"),
        (AUDIT, "enforcement switched"),
    ]
    assert counts == {"broker_lost": 1, "config_reloaded": 1, "enforcement_switched": 1}
    assert len(events.after(0, 10).events) == 3
    assert events.run != Events(counts).run  # ids begin anew with each start


def test_left_out_events_are_counted_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts: Counter[str] = Counter()
    events = Events(counts)
    for _ in range(BURST * 3):
        events.tell(kinds.BrokerLost(1))
    assert counts["broker_lost"] == BURST * 3
    assert len(caplog.records) < BURST * 2


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (None, 2e6, "set to 2.0 MB/s by User:ops from 10.0.0.4."),
        (2e6, None, "removed by User:ops from 10.0.0.4; it was 2.0 MB/s."),
        (1e6, 2e6, "changed from 1.0 MB/s to 2.0 MB/s by User:ops from 10.0.0.4."),
    ],
)
def test_quota_change_says_what_it_was_and_is(old: float | None, new: float | None, text: str) -> None:
    found = kinds.QuotaChanged("client-id 'a'", "producer_byte_rate", old, new, *OPS)
    assert found.text == f"producer_byte_rate of client-id 'a' was {text}"
    assert (found.fields["old"], found.fields["new"]) == (old, new)
