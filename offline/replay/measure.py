"""What a replay has measured, as one value that JSON can hold: counts, rates, percentiles, and what was recorded.

Latencies are in ms from the moment a request was due. Beside them stands what the recording says of the same requests:
the broker's time and what the quotas kept it waiting, so a difference is the target's, the proxy's, or the quotas'.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from offline.replay.driver import DROPPED, LOST, PENDING, SILENT, Samples
from offline.replay.schedule import Plan
from protocol.api import API_NAMES

__all__ = ["RESULT_VERSION", "percentile", "result", "series"]

RESULT_VERSION: Final = 1
_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_POINTS_MAX: Final = 600


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank: the smallest value that `share` of all do not exceed.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.51), percentile([7], 0.99)
    (2, 3, 7)
    """
    rank = -int(-share * len(ordered) // 1)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def _spread(values: Iterable[float]) -> dict[str, float] | None:
    ordered = sorted(values)
    if not ordered:
        return None
    found = {name: round(percentile(ordered, share), 3) for name, share in _SHARES.items()}
    return found | {"max": round(ordered[-1], 3), "mean": round(sum(ordered) / len(ordered), 3)}


def result(plan: Plan, samples: Samples, speed: float, unplaced: int) -> dict[str, Any]:
    """Sum everything up."""
    places = range(len(plan.sends))
    latency = samples.latency_us
    answered = [place for place in places if latency[place] >= 0]
    sent = [place for place in places if latency[place] >= 0 or latency[place] in (PENDING, LOST, SILENT)]
    last_us = max((plan.sends[p].due_us + samples.late_us[p] for p in sent), default=0)
    seconds = max(plan.seconds, 1e-6)
    errors = Counter(samples.error[place] for place in answered if samples.error[place])
    by_api: dict[str, list[int]] = {}
    for place in answered:
        key = plan.sends[place].request.api_key
        by_api.setdefault(API_NAMES.get(key, str(key)), []).append(place)
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
            "answered": len(answered),
            "without_answer_by_request": sum(latency[place] == SILENT for place in places),
            "unanswered": sum(latency[place] == PENDING for place in places),
            "lost_with_connection": sum(latency[place] == LOST for place in places),
            "dropped_here": sum(latency[place] == DROPPED for place in places),
            "connect_errors": samples.connect_errors,
            "partitions_left_out": unplaced,
            "errors": {str(code): count for code, count in sorted(errors.items())},
        },
        "achieved": {
            "requests_per_second": round(len(sent) / max(last_us / 1e6, 1e-6), 3) if sent else 0.0,
            "request_bytes": sum(samples.request_bytes),
            "response_bytes": sum(samples.response_bytes),
        },
        "late_ms": _spread(samples.late_us[place] / 1000 for place in sent),
        "latency_ms": _spread(latency[place] / 1000 for place in answered),
        "throttle_ms": _throttled([samples.throttle_ms[place] for place in answered]),
        "recorded": _recorded(plan, answered),
        "apis": {name: _api(plan, samples, found) for name, found in sorted(by_api.items())},
    }


def _api(plan: Plan, samples: Samples, places: Sequence[int]) -> dict[str, Any]:
    return {
        "answered": len(places),
        "latency_ms": _spread(samples.latency_us[place] / 1000 for place in places),
        "throttle_ms": _throttled([samples.throttle_ms[place] for place in places]),
        "recorded": _recorded(plan, places),
    }


def _throttled(times: Sequence[int]) -> dict[str, Any]:
    over = [value for value in times if value > 0]
    return {"requests": len(over), "total_ms": sum(over), "spread": _spread(over)}


def _recorded(plan: Plan, places: Sequence[int]) -> dict[str, Any]:
    """What the recording says of the requests that were answered this time."""
    rows = [plan.sends[place].request for place in places]
    return {
        "upstream_ms": _spread(row.upstream_us / 1000 for row in rows if row.upstream_us >= 0),
        "delay_ms": _spread(row.delay_ms for row in rows if row.delay_ms > 0),
        "throttle_ms": _throttled([row.throttle_ms for row in rows]),
        "request_bytes": sum(row.request_bytes for row in rows),
        "response_bytes": sum(max(row.response_bytes, 0) for row in rows),
    }


def series(plan: Plan, samples: Samples) -> list[tuple[float, float, float, float, float]]:
    """By time: second; requests/s due, and of those answered; their p50 and p99 latency in ms."""
    width_us = max(1_000_000, -(-int(plan.seconds * 1e6) // _POINTS_MAX))
    due: Counter[int] = Counter()
    found: dict[int, list[float]] = {}
    for place, planned in enumerate(plan.sends):
        bucket = planned.due_us // width_us
        due[bucket] += 1
        if samples.latency_us[place] >= 0:
            found.setdefault(bucket, []).append(samples.latency_us[place] / 1000)
    rows = []
    for bucket in sorted(due):
        times = sorted(found.get(bucket, []))
        middle, tail = (percentile(times, 0.5), percentile(times, 0.99)) if times else (0.0, 0.0)
        start = bucket * width_us / 1e6
        seconds = min(width_us / 1e6, max(plan.seconds - start, 0.1))  # the last one is cut short
        rows.append((start, due[bucket] / seconds, len(times) / seconds, middle, tail))
    return rows
