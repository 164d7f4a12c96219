"""The result of a replay, as one JSON value: counts, rates, percentiles, and the recorded figures.

Latencies are in ms, from the time at which a request was due. Percentiles are over all requests that expect a response:
a request without one, because it never came, or because the request was not sent for lack of room or of a connection,
has an infinite latency, and a percentile at such a request is None. For the requests with a response the result has the
recorded figures too: the broker's time and the delay by quotas.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from offline.replay.samples import (
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
from offline.replay.shares import LeftOut
from protocol.api import API_NAMES, FETCH

__all__ = ["RESULT_VERSION", "Point", "Spread", "percentile", "result", "series"]

RESULT_VERSION: Final = 3
_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_POINTS_MAX: Final = 600
_LARGER: Final = 1.1  # times the recorded bytes; fields around the records differ slightly
_INTERVAL_S_MIN: Final = 0.1  # for a very short replay

Spread = dict[str, float | None]


class Point(NamedTuple):
    """An interval of the replay.

    Attributes:
        start_s, seconds: its start, from the first request on, and its length.
        due, responses: requests/s that were due in it, and those of them with a response.
        p50_ms, p99_ms: their latency; None if it is infinite, or no request has a response.
    """

    start_s: float
    seconds: float
    due: float
    responses: float
    p50_ms: float | None
    p99_ms: float | None


def percentile(ordered: Sequence[float], share: float, endless: int = 0) -> float | None:
    """The nearest-rank percentile: the smallest value that `share` of all values do not exceed; None if it is infinite.

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


def _spread(values: Iterable[float], endless: int = 0) -> Spread | None:
    """Percentiles, maximum and mean; None without values; each is None if it is infinite."""
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


def result(plan: Plan, samples: Samples, speed: float, left_out: LeftOut) -> dict[str, Any]:
    """Compute the result of a replay."""
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
        "fetched": _fetched(plan, samples, completed),
        "late_ms": _spread(samples.late_us[place] / 1000 for place in sent),
        **_measured(plan, samples, range(len(plan.sends))),
        "apis": _apis(plan, samples),
    }


def _fetched(plan: Plan, samples: Samples, completed: Sequence[int]) -> dict[str, int]:
    """Bytes of the responses to Fetches, now and when they were recorded.

    They differ if the target's batches do: a broker responds with at least one whole batch.
    """
    pairs = [
        (samples.response_bytes[place], max(plan.sends[place].request.response_bytes, 0))
        for place in completed
        if samples.sent_as[place] == plan.sends[place].request.api_key == FETCH
    ]
    return {
        "answers": len(pairs),
        "larger_than_recorded": sum(now > _LARGER * then for now, then in pairs),
        "bytes": sum(now for now, _ in pairs),
        "recorded_bytes": sum(then for _, then in pairs),
    }


def _apis(plan: Plan, samples: Samples) -> dict[str, Any]:
    """Latencies by the API of the sent request, with the recorded API if it differs."""
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
        "latency_ms": _spread((latency[place] / 1000 for place in completed), endless),
        "throttle_ms": _throttled([samples.throttle_ms[place] for place in completed]),
        "request_bytes": sum(samples.request_bytes[place] for place in completed),
        "response_bytes": sum(samples.response_bytes[place] for place in completed),
        "recorded": _recorded(plan, completed),
    }


def _throttled(times: Sequence[int]) -> dict[str, Any]:
    over = [value for value in times if value > 0]
    return {"requests": len(over), "total_ms": sum(over), "spread": _spread(over)}


def _recorded(plan: Plan, places: Sequence[int]) -> dict[str, Any]:
    """The recorded figures of the requests with a response in this replay."""
    rows = [plan.sends[place].request for place in places]
    return {
        "upstream_ms": _spread(row.upstream_us / 1000 for row in rows if row.upstream_us >= 0),
        "delay_ms": _spread(row.delay_ms for row in rows if row.delay_ms > 0),
        "throttle_ms": _throttled([row.throttle_ms for row in rows]),
        "request_bytes": sum(row.request_bytes for row in rows),
        "response_bytes": sum(max(row.response_bytes, 0) for row in rows),
    }


def series(plan: Plan, samples: Samples) -> list[Point]:
    """The replay in intervals of one length, a second or more; the last one ends with the last request."""
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
