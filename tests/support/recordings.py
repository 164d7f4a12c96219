"""Nine made-up recordings whose right quotas follow from how they were made, with the arithmetic beside each.

Everything is exact: requests of one size at even distances, no randomness. A quota is right that is at least what the
client needs with the headroom (1.1), and at most twice the need: a candidate is rounded up to the next one of a ladder,
and so is the headroom above it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from offline.advice.limits import DEFAULT_MIN, Bound
from quotas.options import EngineOptions

Ints = npt.NDArray[np.int64]
HEADROOM: Final = 1.1
_MINUTES_2: Final = 120
_HOURS_2: Final = 7200


@dataclass(frozen=True, slots=True)
class Recorded:
    """One client's requests to one broker.

    Attributes:
        at_us: when each came, from the recording's first second.
        size: bytes of each; service_us: how long the broker took; throttle_ms: what each was told.
        connections: how many do all of this, each at the same times.
    """

    name: str
    at_us: Ints
    size: int
    service_us: int = 1000
    throttle_ms: int = 0
    connections: int = 1


@dataclass(frozen=True, slots=True)
class Right:
    """The right recommendation: bytes/s from, to.

    Attributes:
        overrides: by client; there is no other one.
        bounds: of the default, and of each override.
    """

    default: tuple[float, float]
    overrides: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    bounds: Sequence[Bound] = ("need",)
    throttled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Recording:
    """One of the nine, in one direction, and what is right at one or more capacities in bytes/s and broker."""

    name: str
    direction: str
    seconds: int
    clients: Sequence[Recorded]
    right: Mapping[float | None, Right]
    engine: EngineOptions = field(default_factory=EngineOptions)


def at_most_twice(need: float) -> tuple[float, float]:
    """The range of right quotas for a need."""
    return round(HEADROOM * need, 3), 2 * need


def _every(seconds: float, until_s: float, since_s: float = 0.0) -> Ints:
    return np.arange(since_s * 1e6, until_s * 1e6, seconds * 1e6).astype(np.int64)


def _steady(
    prefix: str, count: int, size: int, every_s: float, until_s: float = _MINUTES_2
) -> list[Recorded]:
    return [Recorded(f"{prefix}-{number}", _every(every_s, until_s), size) for number in range(count)]


# Six clients of 2 kB every five seconds need nothing: the default lets one large request through.
_IDLE: Final = Recording(
    "an idle cluster",
    "fetch",
    _HOURS_2,
    _steady("idle", 6, 2000, 5.0, _HOURS_2),
    {80e6: Right((DEFAULT_MIN, 2 * DEFAULT_MIN), bounds=("request",))},
)

# Nine clients of 20 kB ten times a second are 200 kB/s each. The hog sends 400 kB ten times a second, 4 MB/s, and in
# the sixtieth second 4 MB more: (9 x 4 + 8) / 10 = 4.4 MB/s. Together 6.2 MB/s, of 80.
# At 5 MB/s the others have 1.8, which leaves 3.2 for the hog.
_HOG: Final = Recording(
    "one hog",
    "produce",
    _MINUTES_2,
    [
        *_steady("small", 9, 20_000, 0.1),
        Recorded(
            "hog", np.sort(np.concatenate((_every(0.1, 120), _every(0.1, 61.0, 60.0) + 50_000))), 400_000
        ),
    ],
    {
        80e6: Right(at_most_twice(200e3), {"hog": at_most_twice(4.4e6)}, ("need", "need")),
        None: Right(at_most_twice(200e3), {"hog": at_most_twice(4.4e6)}, ("need", "need")),
        5e6: Right(
            at_most_twice(200e3), {"hog": (1.6e6, 3.2e6)}, ("need", "capacity"), throttled=frozenset({"hog"})
        ),
    },
)

# Twelve clients of 50 kB ten times a second: 500 kB/s each, 6 MB/s together; 4.5 MB/s are 375 kB/s for each.
_EQUAL: Final = Recording(
    "many equal clients",
    "produce",
    _MINUTES_2,
    _steady("equal", 12, 50_000, 0.1),
    {
        80e6: Right(at_most_twice(500e3)),
        4.5e6: Right(
            (250e3, 375e3),
            bounds=("capacity",),
            throttled=frozenset(f"equal-{number}" for number in range(12)),
        ),
    },
)

# Eight clients that read 2 MB in one second of ten: 2 MB/s in that second, but 200 kB/s over KIP-13's ten seconds, and
# at most 400 kB/s where two of these seconds lie in one window of eleven samples.
_BURSTS: Final = Recording(
    "bursts",
    "fetch",
    _MINUTES_2,
    [
        Recorded(
            f"burst-{number}",
            np.concatenate([_every(0.1, begin + 1.0, begin) for begin in range(0, _MINUTES_2, 10)]),
            200_000,
        )
        for number in range(8)
    ],
    {80e6: Right((HEADROOM * 200e3, 2 * 400e3))},
)

# Five clients of 100 kB/s (20 kB five times a second), and one that sends 20 kB ever more often: 9000 (t / 120 s)^2
# requests by the time t, which is 3 MB/s in the end. The last ten seconds have 9000 (1 - (110 / 120)^2) = 1437 of them:
# 2.875 MB/s.
_GROWTH: Final = Recording(
    "growth",
    "produce",
    _MINUTES_2,
    [
        *_steady("steady", 5, 20_000, 0.2),
        Recorded("growing", (_MINUTES_2 * 1e6 * np.sqrt(np.arange(9000) / 9000)).astype(np.int64), 20_000),
    ],
    {80e6: Right((DEFAULT_MIN, 2 * DEFAULT_MIN), {"growing": at_most_twice(2.875e6)}, ("need", "need"))},
)

# Recorded under a quota: 200 kB every 400 ms, 500 kB/s; of these 400 ms 300 were throttle time. Without it a request
# comes every 100 ms: 2 MB/s. The others read 20 kB five times a second.
_THROTTLED: Final = Recording(
    "a recording that was throttled",
    "fetch",
    _MINUTES_2,
    [*_steady("reader", 5, 20_000, 0.2), Recorded("held", _every(0.4, 120), 200_000, throttle_ms=300)],
    {80e6: Right((DEFAULT_MIN, 2 * DEFAULT_MIN), {"held": at_most_twice(2e6)}, ("need", "need"))},
)

# Five readers of 300 kB/s, and one that was away and reads 1 MB every 25 ms for ten seconds, as fast as responses come:
# 40 MB/s. Where a broker gives 20 MB/s, the readers have 1.5 of them and it gets no more than 18.5.
_BEHIND: Final = Recording(
    "consumers behind",
    "fetch",
    _MINUTES_2,
    [
        *_steady("reader", 5, 30_000, 0.1),
        Recorded("behind", _every(0.025, 50.0, 40.0), 1_000_000, service_us=24_000),
    ],
    {
        200e6: Right(at_most_twice(300e3), {"behind": at_most_twice(40e6)}, ("need", "need")),
        20e6: Right(
            at_most_twice(300e3),
            {"behind": (9.25e6, 18.5e6)},
            ("need", "capacity"),
            throttled=frozenset({"behind"}),
        ),
    },
)

# Two hours: five clients write 500 kB every five seconds, 100 kB/s, and 150 where three are in one window of eleven
# samples. For five minutes a batch writes 2 MB ten times a second: 20 MB/s, in 4 % of the time.
_NIGHT: Final = Recording(
    "a night batch",
    "produce",
    _HOURS_2,
    [*_steady("day", 5, 500_000, 5.0, _HOURS_2), Recorded("batch", _every(0.1, 3900.0, 3600.0), 2_000_000)],
    {80e6: Right((HEADROOM * 100e3, 2 * 150e3), {"batch": at_most_twice(20e6)}, ("need", "need"))},
)

# Five consumers on four connections each, on each of them 10 kB five times a second: 200 kB/s. One on 64 connections,
# whose Fetches wait at the broker for 400 ms of every 500 and bring 200 B: 25.6 kB/s. All connections begin at once.
# First Fetches wait for each other, and Fetches for what idle ones might bring, also where the quota is ample.
_SCHEDULE: Final = EngineOptions(policy="schedule", scope="cluster")
_SEVERAL: Final = Recording(
    "consumers on several connections",
    "fetch",
    _MINUTES_2,
    [
        *(Recorded(f"member-{number}", _every(0.2, 120), 10_000, connections=4) for number in range(5)),
        Recorded("idle", _every(0.5, 120), 200, service_us=400_000, connections=64),
    ],
    {80e6: Right(at_most_twice(200e3)), None: Right(at_most_twice(200e3))},
    _SCHEDULE,
)

RECORDINGS: Final = (_IDLE, _HOG, _EQUAL, _BURSTS, _GROWTH, _THROTTLED, _BEHIND, _NIGHT, _SEVERAL)
# Two of one length at a time, one that produces and one that fetches: one run of the pipeline.
PAIRS: Final = (
    (_HOG, _BEHIND),
    (_EQUAL, _BURSTS),
    (_GROWTH, _THROTTLED),
    (_NIGHT, _IDLE),
    (replace(_EQUAL, engine=_SCHEDULE), _SEVERAL),
)
