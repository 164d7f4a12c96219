"""How good quota recommenders are on days that they have not seen: rolling origin over a client's days. Pure.

For each k a recommender sees the days 1 to k of a client, and its quota is scored on day k + 1, and on the seven days
from there on (the mean of these days). A score has two sides, as in Google's Autopilot (EuroSys 2020):

- *slack*: the part of the quota that was not needed, 1 - need / quota, at least 0;
- *waited*: the time that the client would have waited, as a share of the day, at most 1.

Not scored are days without traffic or without a recording, a client's first day, days on which it was throttled while
it was recorded (what it would have needed is not known), and days on which it misbehaved. Of the last ones other
figures are kept: whether the quota held the client back, and to which part of what it asked for.

Each quota is also scored at multiples of itself (`FACTORS`): these are the *front* of a recommender, the waits that it
causes for each amount of slack. Comparing fronts does not depend on how cautious a recommender happens to be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from offline.advice.forecast import WEEK, Floats, forecast, usual_rate

HORIZONS: Final = (1, WEEK)  # days
FACTORS: Final = tuple(float(factor) for factor in np.round(np.geomspace(0.25, 8.0, 41), 4))
# At these multiples of a day's need the waits are computed, and in between they are interpolated: 1 % apart where small
# waits are decided.
STEPS: Final = np.unique(
    np.concatenate([np.geomspace(1 / 64, 0.8, 40), np.geomspace(0.8, 1.6, 71), np.geomspace(1.6, 8.0, 16)])
)
WAIT_WEIGHT: Final = 20.0  # a day waited costs as much as so many days of a quota that is not needed at all

SLUICE: Final = "sluice"
ORACLE: Final = "oracle"
LAST_WEEK: Final = "last week's"

_HOG: Final = 8.0
_HOG_AFTER: Final = 3
_THROTTLED: Final = 1.1  # a day with a higher multiple is not scored
_HALF_LIFE_DAYS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Days:
    """One client's recorded days, oldest first.

    Attributes:
        day_s: the length of a day.
        needs: the need of each day in bytes/s; 0 without traffic, NaN where nothing was recorded.
        recorded: the same without regard to the throttling while it was recorded, as others than Sluice see it.
        waits: a row for each day: the waits in seconds with a quota of each of `STEPS` times the need.
        minutes: for each day, the bytes/s of each minute with traffic, as recorded.
        held: for each day, what it would have sent over what it sent; 1 where it was not throttled.
        misbehaves: which days are not to be served, but to be held back.
    """

    day_s: float
    needs: Floats
    recorded: Floats
    waits: Floats
    minutes: Sequence[Floats]
    held: Floats
    misbehaves: npt.NDArray[np.bool_]

    def waited(self, day: int, quotas: Floats) -> Floats:
        """Return the share of a day that the client would wait with each of these quotas, 0 to 1."""
        if not self.needs[day] > 0:
            return np.zeros(quotas.shape)
        times = np.log(np.maximum(quotas, 1e-9) / self.needs[day])
        waited_s = np.interp(times, np.log(STEPS), self.waits[day])
        waited: Floats = np.minimum(waited_s / self.day_s, 1.0)
        return waited

    def slack(self, day: int, quotas: Floats) -> Floats:
        """Return which part of each of these quotas was not needed on a day, 0 to 1."""
        slack: Floats = np.maximum(0.0, 1.0 - self.needs[day] / np.maximum(quotas, 1e-9))
        return slack


class Score(NamedTuple):
    """One recommender's quota on the day, or the week, after an origin, at one multiple of it.

    Attributes:
        origin: the number of days that the recommender has seen.
        horizon: 1, or 7 days.
        need: the highest need of these days, in bytes/s.
        slack, waited: means over the days.
        hurt: the share of these days on which the client waits for longer than is tolerated.
        behaves: whether the days are those of a client that behaves.
        grade: the stated confidence; "" of a recommender that states none.
    """

    origin: int
    horizon: int
    recommender: str
    factor: float
    quota: float
    need: float
    slack: float
    waited: float
    hurt: float
    behaves: bool
    grade: str


# The baselines. Each gets the days so far.


def maximum(days: Days, until: int) -> float:
    """Return the highest need so far, with a tenth more: what `recommend` does with a recording of one day."""
    return 1.1 * float(np.nanmax(days.recorded[:until], initial=0.0))


def last_week(days: Days, until: int) -> float:
    """Return the highest need of the last seven days."""
    return float(np.nanmax(days.recorded[max(0, until - WEEK) : until], initial=0.0))


def minute_p99(days: Days, until: int) -> float:
    """Return half as much again as the 99th percentile of all minutes with traffic."""
    found = np.concatenate(days.minutes[:until])
    return 1.5 * float(np.percentile(found, 99)) if len(found) else 0.0


def decaying_histogram(days: Days, until: int) -> float:
    """Return the 95th percentile of all minutes with traffic, with a margin of 15 %; weights halve every day.

    These are the parameters of Kubernetes' vertical autoscaler for an upper bound; Autopilot's are of the same kind.
    """
    found = np.concatenate(days.minutes[:until])
    if not len(found):
        return 0.0
    ages = np.concatenate(
        [np.full(len(each), until - 1 - day) for day, each in enumerate(days.minutes[:until])]
    )
    order = np.argsort(found)
    weights = np.cumsum(0.5 ** (ages[order] / _HALF_LIFE_DAYS))
    return 1.15 * float(found[order][np.searchsorted(weights, 0.95 * weights[-1])])


BASELINES: Final[Mapping[str, Callable[[Days, int], float]]] = {
    "maximum x 1.1": maximum,
    "p99 of a minute x 1.5": minute_p99,
    "decaying histogram": decaying_histogram,
    LAST_WEEK: last_week,
}
RECOMMENDERS: Final = (SLUICE, *BASELINES, ORACLE)
# Of terms on which a capacity is shared (`jobs.evaluate_terms`).
QUOTAS: Final = "recommended quotas"
EQUAL: Final = "equal shares"
TERMS_RECOMMENDERS: Final = (SLUICE, QUOTAS, EQUAL, LAST_WEEK, ORACLE)


def judged(needs: Floats) -> npt.NDArray[np.bool_]:
    """Return on which days a client misbehaves where the truth is not stated.

    It does on a day that needs more than eight times as much as each day before it, of which there are at least three;
    and on all following days that need so much.

    >>> judged(np.array([1.0, 2.0, 1.0, 17.0, 20.0, 1.0, 18.0])).tolist()
    [False, False, False, True, True, False, True]
    """
    found = np.zeros(len(needs), np.bool_)
    for day, need in enumerate(needs):
        before = needs[:day][(needs[:day] > 0) & ~found[:day]]
        found[day] = len(before) >= _HOG_AFTER and need > _HOG * before.max()
    return found


def origins(days: int) -> list[tuple[int, int]]:
    """Return how many days a recommender has seen, and on how many of the next ones it is scored, for each score.

    >>> origins(3)
    [(1, 1), (2, 1)]
    """
    return [
        (origin, horizon) for origin in range(1, days) for horizon in HORIZONS if origin + horizon <= days
    ]


def is_scored(needs: Floats, held: Floats, origin: int, day: int) -> bool:
    """Whether a client's day is scored: it has traffic, was seen before the origin, and was not throttled that day."""
    return bool(needs[day] > 0 and held[day] <= _THROTTLED and (needs[:origin] > 0).any())


def scores(days: Days) -> list[Score]:
    """Return the scores of all recommenders on one client's days, for every origin and horizon."""
    found: list[Score] = []
    for origin, horizon in origins(len(days.needs)):
        ahead = range(origin, origin + horizon)
        scored = [day for day in ahead if is_scored(days.needs, days.held, origin, day)]
        if not scored:
            continue
        quotas = {name: recommend(days, origin) for name, recommend in BASELINES.items()}
        said = forecast(
            days.needs[:origin],
            usual=[usual_rate(minutes) for minutes in days.minutes[:origin]],
            horizon=horizon,
            held=days.held[:origin],
        )
        quotas[SLUICE] = said.quota
        for behaves in (True, False):
            of_kind = [day for day in scored if days.misbehaves[day] != behaves]
            if of_kind:
                quotas[ORACLE] = float(days.needs[of_kind].max())
                for name, quota in quotas.items():
                    grade = said.grade if name == SLUICE else ""
                    found += _scored(days, of_kind, (origin, horizon, name), quota, behaves, grade)
    return found


def _scored(
    days: Days, scored: Sequence[int], of: tuple[int, int, str], quota: float, behaves: bool, grade: str
) -> list[Score]:
    factors = np.array(FACTORS if behaves and of[2] != ORACLE else (1.0,))
    quotas = quota * factors
    slack = np.mean([days.slack(day, quotas) for day in scored], axis=0)
    waited = np.mean([days.waited(day, quotas) for day in scored], axis=0)
    hurt = np.mean([days.needs[day] > quotas * (1 + 1e-3) for day in scored], axis=0)
    need = float(days.needs[list(scored)].max())
    return [
        Score(*of, float(factor), float(each), need, float(a), float(b), float(c), behaves, grade)
        for factor, each, a, b, c in zip(factors, quotas, slack, waited, hurt, strict=True)
    ]


# Over clients.


class Interval(NamedTuple):
    """A mean over client-days, and the 95 % interval when clients are drawn anew."""

    mean: float
    low: float
    high: float


def interval(sums: Floats, counts: Floats, draws: int = 1000, seed: int = 1) -> Interval:
    """Return the mean of what each client has summed over its days, resampled by client.

    >>> interval(np.array([2.0, 2.0, 2.0]), np.array([4.0, 4.0, 4.0]))
    Interval(mean=0.5, low=0.5, high=0.5)
    """
    picked = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    means = sums[picked].sum(axis=1) / np.maximum(counts[picked].sum(axis=1), 1e-12)
    low, high = np.percentile(means, (2.5, 97.5))
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high))


def waited_at(slack: float, front: Sequence[tuple[float, float]]) -> float:
    """Return the share of the time that a recommender would let clients wait if it had this slack.

    Args:
        front: slack and waits of each multiple of its quotas, with ascending slack.

    >>> waited_at(0.3, [(0.0, 0.5), (0.2, 0.1), (0.4, 0.0)])
    0.05
    """
    return round(float(np.interp(slack, [point[0] for point in front], [point[1] for point in front])), 12)
