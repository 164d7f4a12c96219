"""What a client will need on days to come, from what it has needed on each day so far. Pure; numpy only.

A need is the smallest quota that does not throttle the client for longer than the tolerated time of a day
(`quotas.backtest.fluid`), and a quota is advised for the days to come, not for those that were recorded:

- *Growth and the shape of the week.* Seven models of the logarithm of the need compete: a level, the last days, growth,
  the days of the week, both of them, the highest day of a week, the highest day at all. Each is tried on every day with
  the days before it; the one whose quotas would have cost least is used.
- *Margin.* A quarter for what comes without a sign; and by the model's errors on those days, with Student's t, so few
  days have a wide margin: a client that is new, or that no model describes, gets more room, a steady one less.
- *Bounds.* Not less than the highest need of the last week, unless the days of the week are what is used; and after a
  week of days not more than the highest need of all, a quarter, and what it grows by.
- *Single bursts.* Days in a row that are far above all others are left out, and said: a mistake (a hog) and a change
  of the application look alike then. They count from the fourth day on, above eight times from the eighth day on, and
  when it happens again.
- *Throttled while recorded.* The needs of such days are estimates, and the confidence says so.

The constants were chosen with two seeds of tests/support/families.py; docs/advice.md has what came of others.
Each forecast has a confidence: `high` only if the same would have been right on the days on which it could be tried.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

WEEK: Final = 7  # days
DAYS_MIN: Final = 2  # with fewer recorded days there is no forecast

_DAYS_MAX: Final = 28  # older ones are not used
# Far above all others: so many times, for at most so many days in a row, beside at least so many others.
BURST: Final = 4.0
_BURST_DAYS: Final = 3
_HOG: Final = 8.0
_HOG_DAYS: Final = WEEK
_OTHERS_MIN: Final = 3
# What is taken for known before anything is seen: a scatter of 12 %, worth three days.
_SCATTER: Final = 0.12
_SCATTER_DAYS: Final = 3
_SIGMAS: Final = 1.3  # of the normal distribution: 90 %
_DAY_FURTHER: Final = 0.1  # the variance that each further day of the horizon adds, as a share
_WAIT: Final = 20.0  # what a quota that is too small costs, in quotas that are too large by the same factor
# Ridge penalties: how much a trend and a weekday must show to be believed.
_TREND_PENALTY: Final = 1.0
_WEEKDAY_PENALTY: Final = 0.3
_TREND_AFTER: Final = 4  # days
_TRIED_MIN: Final = 3  # errors, before a model may be chosen by them
_ALWAYS: Final = 0.25  # of each margin, as a logarithm: what changes without any sign before
_SETTLED: Final = WEEK  # days, after which the highest of them bounds a quota
_WIDE: Final = 0.45  # a margin, as a logarithm: more than that is no sure forecast


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a client will need.

    Attributes:
        expected: the need of the day, or of the highest one of several days, in bytes/s.
        quota: the expected need with its margin, in bytes/s; 0 without a day on which the client was seen.
        grade: `high`, `medium` or `low`.
        grounds: why, in words.
    """

    expected: float
    quota: float
    grade: str
    grounds: str

    @property
    def confidence(self) -> str:
        """The grade and its grounds, as other recommendations have it."""
        return f"{self.grade}: {self.grounds}"


def forecast(
    needs: Sequence[float] | Floats,
    *,
    usual: Sequence[float] | Floats = (),
    horizon: int = 1,
    held: Sequence[float] | Floats = (),
) -> Forecast:
    """Return what a client will need on the next days.

    Args:
        needs: its need on each day so far, in bytes/s; 0 for a day on which it sent nothing, NaN for one that was not
            recorded.
        usual: its usual rate on each of these days, in bytes/s: the 95th percentile of its minutes with traffic; empty
            if only needs are known.
        horizon: the number of days for which the quota is to be enough.
        held: for each day, by how much throttling held the client back, for which its need makes up; empty for never.

    >>> steady = forecast([1e6, 1.02e6, 0.99e6, 1e6, 1.01e6, 1e6, 0.98e6, 1e6, 1.01e6])
    >>> steady.grade, round(steady.expected / 1e6, 2), round(steady.quota / 1e6, 2)
    ('high', 1.0, 1.31)
    """
    found = np.asarray(needs, np.float64)[-_DAYS_MAX:]
    times = np.asarray(held, np.float64)[-_DAYS_MAX:] if len(held) else np.ones(len(found))
    active = np.flatnonzero(found > 0)
    if not len(active):
        return Forecast(0.0, 0.0, "low", "not seen on any recorded day")
    logs = np.log(found[active])
    rates = np.asarray(usual, np.float64)[-_DAYS_MAX:] if len(usual) else found
    kept = ~_single_burst(logs)
    days = active[kept]
    tried = _Tried(days, logs[kept], np.log(np.maximum(rates[days], 1e-9)))
    ahead = range(len(found), len(found) + horizon)
    expected = max(tried.expected(day) for day in ahead)
    quota = max(
        tried.expected(day) + tried.margin() * np.sqrt(1 + _DAY_FURTHER * further)
        for further, day in enumerate(ahead)
    )
    quota = tried.bounded(quota, len(found), horizon)
    grade, grounds = _confidence(tried, len(active) - len(days), found, times)
    return Forecast(float(np.exp(expected)), float(np.exp(quota)), grade, grounds)


def usual_rate(minutes: Floats) -> float:
    """Return a day's usual rate: the 95th percentile of the bytes/s of its minutes with traffic; 0 without any."""
    return float(np.percentile(minutes, 95)) if len(minutes) else 0.0


def _single_burst(logs: Floats) -> Bools:
    """Return which days are one episode far above all others."""
    none = np.zeros(len(logs), np.bool_)
    ordered = np.sort(logs)
    gaps = np.diff(ordered)
    if len(logs) <= _OTHERS_MIN or gaps.max() < np.log(BURST):
        return none
    above = logs > ordered[int(gaps.argmax())]
    places = np.flatnonzero(above)
    together = places[-1] - places[0] + 1 == len(places)
    most = _HOG_DAYS if gaps.max() >= np.log(_HOG) else _BURST_DAYS
    single = together and len(places) <= most and len(logs) - len(places) >= _OTHERS_MIN
    return above if single else none


class _Tried:
    """The models, each tried on every day with the days before it, and the one whose quotas would have cost least.

    Attributes:
        days, values: the days, and the logarithms of their needs.
        usual: the logarithms of their usual rates.
        model: the best model.
        errors: by how much its last values were too small, oldest first.
    """

    def __init__(self, days: Ints, values: Floats, usual: Floats) -> None:
        self.days, self.values, self.usual = days, values, usual
        tried = {model: self._errors_of(model) for model in _MODELS}
        # A weekday can be tried from the second week on; models are compared on the same days.
        common = _finite(tried.values())
        if common.sum() < _TRIED_MIN:
            tried = {model: errors for model, errors in tried.items() if not model.weekly}
            common = _finite(tried.values())
        costs = {model: _cost(errors, model, common) for model, errors in tried.items()}
        few = common.sum() < _TRIED_MIN
        self.model = _MODELS[0] if few else min(costs, key=lambda model: costs[model])
        errors = tried[self.model]
        self.errors = errors[np.isfinite(errors)][-2 * WEEK :]

    def _errors_of(self, model: "_Model") -> Floats:
        """Return by how much each day's value was above the model's, NaN where it cannot say."""
        found = np.full(len(self.days), np.nan)
        for place in range(1, len(self.days)):
            at = int(self.days[place])
            if not model.weekly or (self.days[:place] % WEEK == at % WEEK).any():
                found[place] = self.values[place] - model.value(
                    self.days[:place], self.values[:place], self.usual[:place], at
                )
        return found

    def expected(self, day: int) -> float:
        """Return the logarithm of the need that is expected on a day.

        If the last day was above its margin, what it needed is expected at least: the level may have changed.
        """
        found = self.model.value(self.days, self.values, self.usual, day)
        if len(self.errors) and self.errors[-1] > _margin(self.errors[:-1], self.model):
            return max(found, float(self.values[-1]))
        return found

    def margin(self) -> float:
        """Return the margin as a logarithm."""
        return _margin(self.errors, self.model)

    def bounded(self, quota: float, today: int, horizon: int) -> float:
        """Return a quota (all are logarithms) within what the last week and all days have needed."""
        if not self.model.weekly:
            quota = max(quota, self.values[self.days >= today - WEEK].max(initial=-np.inf) + _ALWAYS)
        if not self.model.trend and len(self.values) >= _SETTLED:
            growth = horizon * max(0.0, _slope(self.days, self.usual))
            quota = min(quota, float(self.values.max()) + _ALWAYS + growth)
        return quota

    def missed(self) -> int:
        """Return on how many of the days on which it could be tried the quota would have been too small."""
        return int((self.errors > _margins(self.errors, self.model)).sum())


def _finite(rows: Iterable[Floats]) -> Bools:
    """Return where all rows have a number."""
    return np.logical_and.reduce([np.isfinite(row) for row in rows])  # type: ignore[no-any-return]  # numpy: Any


def _slope(days: Ints, values: Floats) -> float:
    """Return the median of the slopes between all pairs of days of the last two weeks (Theil and Sen)."""
    recent = days >= days[-1] - 2 * WEEK
    later, earlier = np.triu_indices(int(recent.sum()), 1)[::-1]
    slopes = np.diff([values[recent][earlier], values[recent][later]], axis=0)[0] / (
        days[recent][later] - days[recent][earlier]
    )
    return float(np.median(slopes)) if len(slopes) else 0.0


def _cost(errors: Floats, model: "_Model", common: Bools) -> float:
    """Return what a model's quotas would have cost on the last of the common days, per day.

    A quota above the need costs its logarithm over the need; one below it `_WAIT` times as much.
    """
    last = (_margins(errors, model) - _ALWAYS - errors)[common][-2 * WEEK :]
    return float(np.where(last > 0, last, -_WAIT * last).mean()) if len(last) else 0.0


def _margins(errors: Floats, model: "_Model") -> Floats:
    """Return the margin that was known before each error."""
    return np.array(
        [
            _margin(errors[:place][np.isfinite(errors[:place])][-2 * WEEK :], model)
            for place in range(len(errors))
        ]
    )


def _margin(errors: Floats, model: "_Model") -> float:
    """Return a margin for the next error: `_ALWAYS`, and a quantile of the errors, as if they were normal.

    Below the highest of several days is where a day should be, so only errors above it count there. The largest error
    counts as the second largest: a level that changes once is no scatter.
    """
    freedom = _SCATTER_DAYS + len(errors)
    counted = np.maximum(errors, 0.0) * np.sqrt(2) if model.highest else np.abs(errors)
    if len(counted) >= _TRIED_MIN:
        counted = np.minimum(counted, np.sort(counted)[-2])
    square = (_SCATTER_DAYS * _SCATTER**2 + float((counted**2).sum())) / freedom
    return _ALWAYS + float(_student(freedom) * np.sqrt(square))


@dataclass(frozen=True, slots=True)
class _Model:
    """One way to say what a day will be from the days before.

    Attributes:
        highest: it is the highest value of so many days before; 0 for a fitted one, to which the others belong.
        half_life: after how many days the weight of a day is a half.
        trend, weekly: whether growth, and the day of the week, are fitted beside the level.
    """

    name: str
    highest: int = 0
    half_life: float = WEEK
    trend: bool = False
    weekly: bool = False

    def value(self, days: Ints, values: Floats, usual: Floats, at: int) -> float:
        """Return the logarithm of the need at a day, from those of earlier days."""
        if self.highest:
            recent = values[days >= at - self.highest]
            return float(recent.max() if len(recent) else values[-1])
        # A day's need is an extreme of it. The usual rate says with less noise how days change; what the need is
        # beyond the usual rate changes little.
        over = float((values - usual).mean())
        return over + self._fitted(days, usual, at)

    def _fitted(self, days: Ints, values: Floats, at: int) -> float:
        """Return the value at a day of a level, a trend and weekdays; later days have more weight."""
        since = (days - days[-1]).astype(np.float64)
        weights = 0.5 ** (-since / self.half_life)
        level = float((weights * values).sum() / weights.sum())
        matrix, wanted, penalties = [np.ones(len(days))], [1.0], [1e-9]
        if self.trend and len(days) >= _TREND_AFTER:
            matrix.append(since / WEEK)
            wanted.append(float(at - days[-1]) / WEEK)
            penalties.append(_TREND_PENALTY)
        if self.weekly:
            matrix += [(days % WEEK == weekday).astype(np.float64) for weekday in range(WEEK)]
            wanted += [float(at % WEEK == weekday) for weekday in range(WEEK)]
            penalties += [_WEEKDAY_PENALTY] * WEEK
        if len(wanted) == 1:
            return level
        columns = np.stack(matrix, axis=1)
        weighted = columns * weights[:, None]
        parts = np.linalg.solve(weighted.T @ columns + np.diag(penalties), weighted.T @ (values - level))
        return level + float(np.dot(wanted, parts))


_MODELS: Final = (
    _Model("level"),
    _Model("the last days", half_life=1.0),
    _Model("the highest day of a week", highest=WEEK),
    _Model("the highest day", highest=_DAYS_MAX),
    _Model("growth", trend=True),
    _Model("the week's shape", half_life=2 * WEEK, weekly=True),
    _Model("growth and the week's shape", half_life=2 * WEEK, trend=True, weekly=True),
)


def _student(freedom: int) -> float:
    """Return the quantile of Student's t that is the normal distribution's at `_SIGMAS` (Cornish and Fisher).

    >>> [round(_student(freedom), 2) for freedom in (5, 10, 30)]  # tables for 90 %: 1.48, 1.37, 1.31
    [1.5, 1.39, 1.33]
    """
    z = _SIGMAS
    return float(z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2))


def _confidence(tried: _Tried, left_out: int, needs: Floats, held: Floats) -> tuple[str, str]:
    """Return the grade and its grounds."""
    seen, missed, tries = len(tried.days), tried.missed(), len(tried.errors)
    doubts: list[tuple[int, str]] = []
    if seen < _OTHERS_MIN:
        doubts.append((2, f"{seen} day{'s' * (seen != 1)} with traffic"))
    elif seen < WEEK:
        doubts.append((1, f"{seen} days with traffic, so no week"))
    if left_out:
        doubts.append((1, f"{left_out} day{'s' * (left_out != 1)} far above all others left out"))
    recent = held[-WEEK:][needs[-WEEK:] > 0]
    if len(recent) and recent.max() > 1.1:
        doubts.append(
            (2 if recent.max() > BURST else 1, "throttled while it was recorded, so its need is estimated")
        )
    if missed and missed > tries // 20:
        doubts.append(
            (2 if missed > tries // 5 else 1, f"would have been too small on {missed} of {tries} days")
        )
    if tried.margin() > _WIDE:
        doubts.append((1, "its days differ much"))
    last = needs[-WEEK:]
    if seen >= WEEK and (last[~np.isnan(last)] == 0).any():
        doubts.append((1, "not active on every day"))
    worst = max((weight for weight, _ in doubts), default=0)
    grounds = [text for _, text in doubts] or [
        f"would have been enough on {tries - missed} of {tries} days before"
    ]
    grounds.append(f"by {tried.model.name}")
    return ("high", "medium", "low")[worst], "; ".join(grounds)
