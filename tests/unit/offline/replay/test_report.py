"""Sums of what became of requests, and the page that shows them."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from offline.replay.driver import DROPPED, IN_FLIGHT, LEFT_OUT, LOST, NEVER_SENT, NOT_REACHED, SILENT, Samples
from offline.replay.report import Picture, Point, fetched_more, page, pictures, result, series
from offline.replay.schedule import Plan, Recorded, plan
from offline.replay.target import LeftOut
from protocol.api import FETCH, METADATA, PRODUCE
from tests.unit.offline.replay.rows import recorded

NOTHING = LeftOut()


class Found(NamedTuple):
    """What became of a plan."""

    planned: Plan
    samples: Samples
    left_out: LeftOut

    @property
    def result(self) -> dict[str, Any]:
        return result(self.planned, self.samples, 1.0, self.left_out)


def sampled(*latency_us: int, rows: Sequence[Recorded] = (), left_out: LeftOut = NOTHING) -> Found:
    """The outcomes of requests, each sent as recorded, and their result; if no rows are given, all are due at once."""
    recordings = rows or [recorded(seq=seq) for seq in range(len(latency_us))]
    planned, samples = plan(recordings, 1.0), Samples(len(latency_us))
    for place, each in enumerate(latency_us):
        samples.latency_us[place] = each
        samples.sent_as[place] = planned.sends[place].request.api_key
    return Found(planned, samples, left_out)


def measured() -> Found:
    """Eight requests, one every 500 ms: four answered, one each lost, dropped, unanswered, without a response."""
    rows = [
        recorded(seq=seq, mono_us=seq * 500_000, api_key=FETCH if seq % 2 else PRODUCE, throttle_ms=5 * seq)
        for seq in range(8)
    ]
    outcomes = (1000, 2000, 3000, 4000, LOST, DROPPED, IN_FLIGHT, SILENT)
    found = sampled(*outcomes, rows=rows, left_out=LeftOut(2, 30))
    for place in range(8):
        found.samples.late_us[place] = 100
        found.samples.request_bytes[place] = 1000
    found.samples.throttle_ms[2] = 30
    found.samples.error[3] = 6
    return found


def test_every_request_is_counted_once() -> None:
    found = measured().result
    assert found["requests"] == {
        "sent": 7,
        "answered": 4,
        "without_answer_by_request": 1,
        "unanswered": 1,
        "lost_with_connection": 1,
        "dropped_here": 1,
        "never_connected": 0,
        "nothing_left_of": 0,
        "not_reached": 0,
        "connect_errors": 0,
        "partitions_left_out": 2,
        "bytes_left_out": 30,
        "errors": {"6": 1},
    }
    # Of seven that wanted a response the fourth is the median, and three never got any.
    assert found["latency_ms"] == {
        "p50": 4.0,
        "p90": None,
        "p99": None,
        "p99.9": None,
        "max": None,
        "mean": None,
    }
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


def test_time_series_has_intervals_of_one_length_and_ends_with_the_last_request() -> None:
    third = 3.5 / 3
    assert series(*measured()[:2]) == [
        Point(0.0, third, 3 / third, 3 / third, 2.0, 3.0),  # 0, 0.5 and 1 s
        Point(third, third, 2 / third, 1 / third, 4.0, None),
        Point(2 * third, third, 3 / third, 0, None, None),
    ]


def test_a_request_at_the_very_end_is_no_interval_of_its_own() -> None:
    """It would be one of no length, and its rate anything."""
    planned = plan([recorded(seq=seq, mono_us=seq * 100_000) for seq in range(31)], 1.0)
    assert [round(point.due) for point in series(planned, Samples(31))] == [10, 10, 11]


def heights(picture: Picture) -> list[float]:
    return [float(y) for _, _, path in picture.curves for y in re.findall(r"[ML][0-9.]+,([0-9.]+)", path)]


def test_the_axes_reach_around_every_value_and_write_it_out() -> None:
    """A label as 1.23e+04 was longer than the space beside the axis, and cut off."""
    points = [Point(0.0, 400.0, 12_345.0, 12_000.0, 1.0, 2.0), Point(400.0, 400.0, 9000.0, 9000.0, 1.0, 2.0)]
    requests, latency = pictures(points)
    assert [label for _, label in requests.up] == ["0", "5,000", "10,000", "15,000"]
    assert requests.left == 64  # 16 and 8 for each of the six characters of 15,000
    assert [label for _, label in latency.along] == ["0 min", "5 min", "10 min"]
    assert len(heights(requests) + heights(latency)) == 8
    assert all(0 <= y <= 180 for y in heights(requests) + heights(latency))
    assert pictures(points[:1]) == []


def test_a_curve_has_a_gap_where_nothing_is_known() -> None:
    values = (1.0, None, 2.0, 2.0)
    requests, latency = pictures(
        [Point(float(at), 1.0, 4, 4, value, value) for at, value in enumerate(values)]
    )
    dot_gap_line = "M107.5,90.0h.1 M537.5,0.0 L752.5,0.0"
    assert latency.curves == [("a", "p50", dot_gap_line), ("b", "p99", dot_gap_line)]
    assert [path.count("M") for _, _, path in requests.curves] == [1, 1]


def test_fetches_that_brought_more_than_recorded_are_reported() -> None:
    rows = [recorded(seq=seq, api_key=FETCH, response_bytes=1000) for seq in range(3)]
    found = sampled(*[1000] * 4, rows=[*rows, recorded(seq=3, api_key=METADATA, response_bytes=10)])
    for place, size in enumerate((1050, 4000, 1050, 9000)):
        found.samples.response_bytes[place] = size
    fetched = {"answers": 3, "larger_than_recorded": 1, "bytes": 6100, "recorded_bytes": 3000}
    assert found.result["fetched"] == fetched
    assert fetched_more(found.result).startswith(
        "Fetches brought 6,100 bytes, and 3,000 when they were recorded: 1 of 3 responses were larger. A broker "
    )
    assert "Fetches brought 6,100 bytes" in page("x", "h:1", found.result, [])
    found.samples.response_bytes[1] = 1050
    assert fetched_more(found.result) == ""


def test_page_stands_alone_and_escapes() -> None:
    found = measured()
    text = page("Replay of <x>", "h:1", found.result, series(*found[:2]))
    assert "Replay of &lt;x&gt;" in text
    for outside in ("<script", "<link", "src=", "@import", "url(http"):
        assert outside not in text
    assert text.count("<svg") == 2


def test_run_without_responses_has_a_result() -> None:
    found = sampled(*[IN_FLIGHT] * 8).result
    assert found["requests"]["unanswered"] == 8
    assert set(found["latency_ms"].values()) == {None}
    assert "<td>no response</td>" in page("x", "h:1", found, [])


def test_target_that_stalls_shows_in_the_tail() -> None:
    """180 of 200 are never answered: neither the median nor anything above is known."""
    rows = [recorded(seq=seq, mono_us=seq) for seq in range(200)]
    found = sampled(*[2900] * 20, *[IN_FLIGHT] * 180, rows=rows)
    assert set(found.result["latency_ms"].values()) == {None}
    assert series(*found[:2])[0][4:] == (None, None)
    found.samples.latency_us[20] = NEVER_SENT
    assert found.result["requests"]["sent"] == 199


def test_request_that_is_not_waited_for_is_in_no_percentile() -> None:
    left_out = sampled(1000, LEFT_OUT, left_out=LeftOut(1, 10)).result
    assert (left_out["latency_ms"]["max"], left_out["requests"]["nothing_left_of"]) == (1.0, 1)
    not_reached = sampled(NOT_REACHED).result
    assert (not_reached["latency_ms"], not_reached["requests"]["not_reached"]) == (None, 1)
    silent = sampled(NEVER_SENT, SILENT)
    silent.samples.expects_response[0] = silent.samples.expects_response[1] = 0
    found = silent.result
    assert (found["latency_ms"], found["apis"], found["requests"]["sent"]) == (None, {}, 1)


def test_apis_are_named_by_the_sent_request() -> None:
    found = sampled(1000, 1000, rows=[recorded(api_key=11), recorded(seq=1, api_key=METADATA)])
    found.samples.sent_as[0] = METADATA
    assert list(found.result["apis"]) == ["JoinGroup (as Metadata)", "Metadata"]
