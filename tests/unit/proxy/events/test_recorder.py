"""Events: counted, kept, and one log line each."""

import logging
from collections import Counter

import pytest

from proxy.events import Events
from proxy.events.kinds import KINDS, By, broker_lost, config_reloaded, enforcement_switched, quota_changed
from proxy.events.ring import BURST
from proxy.system.logs import AUDIT


def test_each_event_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts: Counter[str] = Counter()
    events = Events(counts, lambda: 0.0)
    events.tell(broker_lost(2))
    events.tell(config_reloaded("signal", "quotas.mode", 0))  # `proxy.control.reload` has logged it
    events.tell(enforcement_switched(enforcing=False, by=By("ops", "10.0.0.4"), reason="fire"))
    assert [(record.name, record.message) for record in caplog.records] == [
        ("proxy.events.ring", "broker lost"),
        (AUDIT, "enforcement switched"),
    ]
    assert counts == {"broker_lost": 1, "config_reloaded": 1, "enforcement_switched": 1}
    assert len(events.after(0, 10).events) == 3


def test_what_the_audit_log_says_has_no_second_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    events = Events(Counter())
    events.tell(quota_changed("client-id 'a'", "producer_byte_rate", 1.0, 2.0, By("User:ops"), audited=True))
    assert not caplog.records


def test_left_out_events_are_counted_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts: Counter[str] = Counter()
    events = Events(counts)
    for _ in range(BURST * 3):
        events.tell(broker_lost(1))
    assert counts["broker_lost"] == BURST * 3
    assert len(caplog.records) < BURST * 2


def test_each_start_has_an_id_of_its_own() -> None:
    assert Events(Counter()).run != Events(Counter()).run


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (None, 2e6, "producer_byte_rate of client-id 'a' was set to 2.0 MB/s by User:ops from 10.0.0.4."),
        (
            2e6,
            None,
            "producer_byte_rate of client-id 'a' was removed by User:ops from 10.0.0.4; it was 2.0 MB/s.",
        ),
        (
            1e6,
            2e6,
            "producer_byte_rate of client-id 'a' was changed from 1.0 MB/s to 2.0 MB/s by User:ops from 10.0.0.4.",
        ),
    ],
)
def test_quota_change_says_what_it_was_and_is(old: float | None, new: float | None, text: str) -> None:
    found = quota_changed("client-id 'a'", "producer_byte_rate", old, new, By("User:ops", "10.0.0.4"))
    assert found.text == text
    assert (found.fields["old"], found.fields["new"]) == (old, new)
    assert found.kind in KINDS
