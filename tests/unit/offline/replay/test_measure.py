"""Sums of what became of requests, and the page that shows them."""

import json

from offline.replay.driver import DROPPED, LOST, PENDING, SILENT, Samples
from offline.replay.measure import result, series
from offline.replay.report import page
from offline.replay.schedule import Plan, plan
from protocol.api import FETCH
from tests.unit.offline.replay.rows import recorded


def measured() -> tuple[Plan, Samples]:
    """Eight requests, one every 500 ms: four answered, one each lost, dropped, unanswered, without answer."""
    rows = [
        recorded(seq=seq, mono_us=seq * 500_000, api_key=FETCH if seq % 2 else 0, throttle_ms=5 * seq)
        for seq in range(8)
    ]
    planned = plan(rows, 1.0)
    samples = Samples(8)
    for place, latency_us in enumerate((1000, 2000, 3000, 4000, LOST, DROPPED, PENDING, SILENT)):
        samples.latency_us[place] = latency_us
        samples.late_us[place] = 100
        samples.request_bytes[place] = 1000
    samples.throttle_ms[2] = 30
    samples.error[3] = 6
    return planned, samples


def test_every_request_is_counted_once() -> None:
    planned, samples = measured()
    found = result(planned, samples, 1.0, 2)
    assert found["requests"] == {
        "sent": 7,
        "answered": 4,
        "without_answer_by_request": 1,
        "unanswered": 1,
        "lost_with_connection": 1,
        "dropped_here": 1,
        "connect_errors": 0,
        "partitions_left_out": 2,
        "errors": {"6": 1},
    }
    assert found["latency_ms"] == {"p50": 2.0, "p90": 4.0, "p99": 4.0, "p99.9": 4.0, "max": 4.0, "mean": 2.5}
    assert found["throttle_ms"] == {
        "requests": 1,
        "total_ms": 30,
        "spread": {"p50": 30, "p90": 30, "p99": 30, "p99.9": 30, "max": 30, "mean": 30.0},
    }
    # 5, 10 and 15 ms were told when the first four were recorded.
    assert found["recorded"]["throttle_ms"]["total_ms"] == 30
    assert found["planned"]["requests_per_second"] == round(8 / 3.5, 3)
    assert found["apis"]["Fetch"]["answered"] == 2
    json.dumps(found)


def test_time_series_goes_by_seconds() -> None:
    assert series(*measured()) == [
        (0.0, 2, 2, 1.0, 2.0),
        (1.0, 2, 2, 3.0, 4.0),
        (2.0, 2, 0, 0, 0),
        (3.0, 2 / 0.5, 0, 0, 0),  # which ends with the last request, at 3.5 s
    ]


def test_page_stands_alone_and_escapes() -> None:
    planned, samples = measured()
    text = page("Replay of <x>", "h:1", result(planned, samples, 2.0, 0), series(planned, samples))
    assert "Replay of &lt;x&gt;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("<svg") == 2


def test_nothing_answered_is_a_result_too() -> None:
    planned, _ = measured()
    found = result(planned, Samples(8), 1.0, 0)
    assert (found["latency_ms"], found["requests"]["unanswered"]) == (None, 8)
    page("x", "h:1", found, series(planned, Samples(8)))
