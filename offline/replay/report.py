"""A replay's result: one JSON value of counts, rates and percentiles, and a self-contained HTML page with two charts.

Latencies are in ms, from the time at which a request was due. Percentiles are over all requests that expect a response:
a request without one, because it never came, or because the request was not sent for lack of room or of a connection,
has an infinite latency, and a percentile at such a request is None. For the requests with a response the result has the
recorded figures too: the broker's time and the delay by quotas.

The charts are requests per second and latency over time, as SVG. Axes go from 0 to a round number above the
highest value. Numbers are written without exponents, and the margin beside the axis is as wide as the longest one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from offline.replay.driver import (
    DROPPED,
    IN_FLIGHT,
    LEFT_OUT,
    LOST,
    NEVER_SENT,
    NOT_REACHED,
    SENT,
    SILENT,
    Samples,
)
from offline.replay.schedule import Plan
from offline.replay.target import LeftOut
from protocol.api import API_NAMES, FETCH

_MORE: Final = 1.1  # times the recorded bytes: fields around the records differ by a little
_COLUMNS: Final = ("p50", "p90", "p99", "p99.9", "max")
_TEMPLATE: Final = Path(__file__).with_name("page.html")
RESULT_VERSION: Final = 3
_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_POINTS_MAX: Final = 600
_INTERVAL_S_MIN: Final = 0.1  # for a very short replay
Spread = dict[str, float | None]
_WIDTH: Final = 860
_HEIGHT: Final = 180
_TICKS: Final = 5  # at most so many steps from 0 to the end of an axis
_DIGIT_WIDTH: Final = 8  # of the font's 12; no digit is wider
_UNITS: Final = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


class Point(NamedTuple):
    """The figures of one interval of the replay.

    Attributes:
        start_s, seconds: its start after the first request, and its length.
        due, responses: the requests/s that were due in it, and how many of these have a response.
        p50_ms, p99_ms: percentiles of the latency of these requests, where no response counts as infinite; None if
            the percentile is infinite, or there is no request.
    """

    start_s: float
    seconds: float
    due: float
    responses: float
    p50_ms: float | None
    p99_ms: float | None


def result(plan: Plan, samples: Samples, speed: float, left_out: LeftOut) -> dict[str, Any]:
    """Compute the result of a replay, of its requests together and by API, as a JSON value."""
    latency = samples.latency_us
    became = Counter(min(value, 0) for value in latency)
    completed = [place for place, value in enumerate(latency) if value >= 0]
    sent = [place for place, value in enumerate(latency) if value >= 0 or value in SENT]
    last_us = max((plan.sends[p].due_us + samples.late_us[p] for p in sent), default=0)
    seconds = max(plan.seconds, 1e-6)
    errors = Counter(samples.error[place] for place in completed if samples.error[place])
    return {
        "version": RESULT_VERSION,
        "speed": speed,
        "planned": {
            "requests": len(plan.sends),
            "connections": len(plan.brokers),
            "seconds": round(plan.seconds, 3),
            "requests_per_second": round(len(plan.sends) / seconds, 3),
            "not_sent_again": plan.left_out,
        },
        "requests": {
            "sent": len(sent),
            "answered": len(completed),
            "without_answer_by_request": became[SILENT],
            "unanswered": became[IN_FLIGHT],
            "lost_with_connection": became[LOST],
            "dropped_here": became[DROPPED],
            "never_connected": became[NEVER_SENT],
            "nothing_left_of": became[LEFT_OUT],
            "not_reached": became[NOT_REACHED],
            "connect_errors": samples.connect_errors,
            "partitions_left_out": left_out.partitions,
            "bytes_left_out": left_out.bytes,
            "errors": {str(code): count for code, count in sorted(errors.items())},
        },
        "achieved": {
            "requests_per_second": round(len(sent) / max(last_us / 1e6, 1e-6), 3) if sent else 0.0,
            "request_bytes": sum(samples.request_bytes),
            "response_bytes": sum(samples.response_bytes),
        },
        "fetched": _fetched_bytes(plan, samples, completed),
        "late_ms": _spread_of(samples.late_us[place] / 1000 for place in sent),
        **_measured(plan, samples, range(len(plan.sends))),
        "apis": _apis(plan, samples),
    }


def _fetched_bytes(plan: Plan, samples: Samples, completed: Sequence[int]) -> dict[str, int]:
    """Return the bytes of the responses to Fetches, in this replay and as recorded.

    They differ if the target's batches do: a broker responds with at least one whole batch.
    """
    pairs = [
        (samples.response_bytes[place], max(plan.sends[place].request.response_bytes, 0))
        for place in completed
        if samples.sent_as[place] == plan.sends[place].request.api_key == FETCH
    ]
    return {
        "answers": len(pairs),
        "larger_than_recorded": sum(now > _MORE * then for now, then in pairs),
        "bytes": sum(now for now, _ in pairs),
        "recorded_bytes": sum(then for _, then in pairs),
    }


def _apis(plan: Plan, samples: Samples) -> dict[str, Any]:
    """Return the latencies by API of the sent request; it names the recorded API if that differs."""
    by_name: dict[str, list[int]] = {}
    for place, planned in enumerate(plan.sends):
        if samples.latency_us[place] >= 0 or samples.no_response(place):
            recorded, sent = planned.request.api_key, samples.sent_as[place]
            name = API_NAMES.get(recorded, str(recorded))
            if sent != recorded:
                name = f"{name} (as {API_NAMES.get(sent, str(sent))})"
            by_name.setdefault(name, []).append(place)
    return {
        name: {"answered": sum(samples.latency_us[place] >= 0 for place in places)}
        | _measured(plan, samples, places)
        for name, places in sorted(by_name.items())
    }


def _measured(plan: Plan, samples: Samples, places: Sequence[int]) -> dict[str, Any]:
    latency = samples.latency_us
    completed = [place for place in places if latency[place] >= 0]
    endless = sum(map(samples.no_response, places))
    return {
        "latency_ms": _spread_of((latency[place] / 1000 for place in completed), endless),
        "throttle_ms": _throttled([samples.throttle_ms[place] for place in completed]),
        "request_bytes": sum(samples.request_bytes[place] for place in completed),
        "response_bytes": sum(samples.response_bytes[place] for place in completed),
        "recorded": _recorded(plan, completed),
    }


def _throttled(times: Sequence[int]) -> dict[str, Any]:
    over = [value for value in times if value > 0]
    return {"requests": len(over), "total_ms": sum(over), "spread": _spread_of(over)}


def _recorded(plan: Plan, places: Sequence[int]) -> dict[str, Any]:
    """Return the recorded figures of those requests that have a response in this replay."""
    rows = [plan.sends[place].request for place in places]
    return {
        "upstream_ms": _spread_of(row.upstream_us / 1000 for row in rows if row.upstream_us >= 0),
        "delay_ms": _spread_of(row.delay_ms for row in rows if row.delay_ms > 0),
        "throttle_ms": _throttled([row.throttle_ms for row in rows]),
        "request_bytes": sum(row.request_bytes for row in rows),
        "response_bytes": sum(max(row.response_bytes, 0) for row in rows),
    }


def _spread_of(values: Iterable[float], endless: int = 0) -> Spread | None:
    """Return percentiles, maximum and mean, each None if it is infinite; None if there are no values."""
    ordered = sorted(values)
    if not ordered and not endless:
        return None
    found: Spread = {}
    for name, share in _SHARES.items():
        value = percentile(ordered, share, endless)
        found[name] = None if value is None else round(value, 3)
    if endless:
        return found | {"max": None, "mean": None}
    return found | {"max": round(ordered[-1], 3), "mean": round(sum(ordered) / len(ordered), 3)}


def percentile(ordered: Sequence[float], share: float, endless: int = 0) -> float | None:
    """Return the nearest-rank percentile: the smallest value that `share` (0 to 1) of all values do not exceed.

    It is None if the percentile is infinite: values of requests without a response are.

    Args:
        ordered: the finite values, ascending.
        endless: the number of infinite values.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.51), percentile([7], 0.99)
    (2, 3, 7)
    >>> percentile([1, 2], 0.5, 2), percentile([1, 2], 0.51, 2)
    (2, None)
    """
    count = len(ordered) + endless
    rank = min(max(-int(-share * count // 1), 1), count)
    return ordered[rank - 1] if rank <= len(ordered) else None


def series(plan: Plan, samples: Samples) -> list[Point]:
    """Return the figures of the replay in intervals of equal length, in most cases of a second or more."""
    count = min(max(int(plan.seconds), 1), _POINTS_MAX)
    seconds = max(plan.seconds / count, _INTERVAL_S_MIN)
    due = [0] * count
    endless = [0] * count
    found: list[list[float]] = [[] for _ in range(count)]
    for place, planned in enumerate(plan.sends):
        interval = min(int(planned.due_us / 1e6 / seconds), count - 1)
        due[interval] += 1
        latency_us = samples.latency_us[place]
        endless[interval] += samples.no_response(place)
        if latency_us >= 0:
            found[interval].append(latency_us / 1000)
    points = []
    for interval, latencies in enumerate(found):
        latencies.sort()
        middle = tail = None
        if latencies or endless[interval]:
            middle, tail = (percentile(latencies, share, endless[interval]) for share in (0.5, 0.99))
        rates = (due[interval] / seconds, len(latencies) / seconds)
        points.append(Point(interval * seconds, seconds, *rates, middle, tail))
    return points


def page(title: str, target: str, result: Mapping[str, Any], series: Sequence[Point]) -> str:
    """Return the report of a replay as an HTML page; `target` is the target cluster's address."""
    from jinja2 import Environment, StrictUndefined  # an extra: the commands are there without it

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shown": shown, "grouped": "{:,}".format, "plain": "{:g}".format}
    return environment.from_string(_TEMPLATE.read_text("utf-8")).render(
        title=title,
        target=target,
        result=result,
        whole_and_apis=[("all", result), *result["apis"].items()],
        columns=_COLUMNS,
        more=fetched_more(result),
        pictures=pictures(series),
        width=_WIDTH,
        height=_HEIGHT,
    )


def shown(value: float | None) -> str:
    """Format a time in ms; None, an infinite time, becomes "no response"."""
    return "no response" if value is None else f"{value:g}"


def fetched_more(result: Mapping[str, Any]) -> str:
    """Return a sentence if Fetches brought clearly more bytes than recorded; else ""."""
    found = result["fetched"]
    if found["bytes"] <= _MORE * found["recorded_bytes"]:
        return ""
    return (
        f"Fetches brought {found['bytes']:,} bytes, and {found['recorded_bytes']:,} when they were recorded: "
        f"{found['larger_than_recorded']:,} of {found['answers']:,} responses were larger. A broker responds with at "
        "least one whole batch, and the target's batches are larger than what these Fetches brought. Topics that "
        "--create makes have small batches."
    )


class Picture(NamedTuple):
    """A figure of curves over time, ready to be drawn as SVG; places are in units of the drawing.

    Attributes:
        left: the width of the left margin, where the labels of the vertical axis are.
        up, along: place and text of each label of the vertical and of the horizontal axis.
        curves: CSS class, name and SVG path of each curve.
    """

    title: str
    left: int
    up: Sequence[tuple[float, str]]
    along: Sequence[tuple[float, str]]
    curves: Sequence[tuple[str, str, str]]


def pictures(series: Sequence[Point]) -> list[Picture]:
    """Return the figures of requests/s and of latency; none for a replay of a single interval."""
    if len(series) < 2:
        return []
    rates = {"due": [point.due for point in series], "responses": [point.responses for point in series]}
    latencies = {"p50": [point.p50_ms for point in series], "p99": [point.p99_ms for point in series]}
    return [_picture("Requests/s", rates, series), _picture("Latency, ms", latencies, series)]


def ticks(highest: float) -> list[float]:
    """Return round numbers from 0 to the first one that is not below the highest value.

    >>> ticks(12_345.0), ticks(0.07)
    ([0.0, 5000.0, 10000.0, 15000.0], [0.0, 0.02, 0.04, 0.06, 0.08])
    """
    least = max(highest, 1e-9) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(step for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9)) * power
    count = math.ceil(max(highest, 1e-9) / step * (1 - 1e-9))
    return [float(f"{number * step:.6g}") for number in range(count + 1)]


def _picture(title: str, curves: Mapping[str, Sequence[float | None]], series: Sequence[Point]) -> Picture:
    """Return one figure: its axes, and curves by name that have a gap for None."""
    end_s = series[-1].start_s + series[-1].seconds
    size, unit = next((size, unit) for least, size, unit in _UNITS if end_s >= least)
    up = ticks(max((value for curve in curves.values() for value in curve if value is not None), default=1.0))
    labels = list(map(_written, up))
    along = [time for time in ticks(end_s / size) if time <= end_s / size]
    middles = [(point.start_s + point.seconds / 2) / end_s * _WIDTH for point in series]
    return Picture(
        title,
        16 + _DIGIT_WIDTH * max(map(len, labels)),
        [(_HEIGHT * (1 - value / up[-1]), label) for value, label in zip(up, labels, strict=True)],
        [(time * size / end_s * _WIDTH, f"{_written(time)} {unit}") for time in along],
        [
            (kind, name, _path(middles, curve, up[-1]))
            for kind, (name, curve) in zip("ab", curves.items(), strict=True)
        ],
    )


def _path(middles: Sequence[float], curve: Sequence[float | None], top: float) -> str:
    """Return the SVG path of a line through the middles of the intervals; a value without neighbours is a dot."""
    steps = []
    for place, (x, value) in enumerate(zip(middles, curve, strict=True)):
        if value is None:
            continue
        joined = place and curve[place - 1] is not None
        alone = not joined and (place + 1 == len(curve) or curve[place + 1] is None)
        steps.append(
            f"{'L' if joined else 'M'}{x:.1f},{_HEIGHT * (1 - value / top):.1f}{'h.1' if alone else ''}"
        )
    return " ".join(steps)


def _written(value: float) -> str:
    """Format a number without an exponent.

    >>> _written(12_000.0), _written(0.25), _written(1_500_000.0)
    ('12,000', '0.25', '1,500,000')
    """
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
