"""The compiled division of a capacity is the proxy's own, and a fluid loses no byte of it."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.backtest.capacity import EXEMPT, RANKS, Classes, divided, shared
from quotas.definitions.classes import Capacity, Terms, promised
from quotas.definitions.entities import BucketKey
from quotas.limiters.limiter import ALL_BROKERS
from quotas.sharing.budgets import budget_key
from quotas.sharing.capacities import LEND_MS, Capacities, fill, rank_of
from quotas.sharing.lease_values import Wish, loan_key

RATE = 1e6
KEY = "producer_byte_rate"
SETTINGS = settings(max_examples=300, deadline=None)
_PARTS = st.floats(0, 1).map(lambda part: round(part, 3) * RATE)


@st.composite
def classes(draw: st.DrawFn) -> list[tuple[str, Terms]]:
    """Draw classes with an entry, below a default ("new"), without a promise, and exempt."""
    found = []
    for index in range(draw(st.integers(1, 8))):
        rate = draw(st.one_of(st.just(0.0), _PARTS))
        ceiling = max(rate, draw(_PARTS)) or RATE
        terms = Terms(rate, ceiling, draw(st.floats(0.1, 10)), draw(st.integers(0, 9)) == 0)
        found.append((f"{draw(st.sampled_from(['own', 'new']))}-{index}", terms))
    return found


class Proxy:
    """Divides a capacity once, by the objects that the proxy has."""

    revision = 1
    lessees = range(1)

    def __init__(self, given: list[tuple[str, Terms]], wanted: list[float]) -> None:
        self.given = dict(given)
        self.keys = {name: loan_key(budget_key((KEY, self.bucket(name), ALL_BROKERS))) for name, _ in given}
        self.wanted = dict(zip(self.keys.values(), wanted, strict=True))
        self.capacities = Capacities(lambda: self)
        self.capacities.lend(self, set(self.wanted), LEND_MS)

    @staticmethod
    def bucket(name: str) -> BucketKey:
        return BucketKey(None, name)

    def capacity(self, key: str) -> Capacity:
        return Capacity(RATE, cluster=True)

    def terms(self, key: str, bucket: BucketKey) -> Terms:
        return self.given[bucket.client_id or ""]

    def names_bucket(self, key: str, bucket: BucketKey) -> bool:
        return not (bucket.client_id or "").startswith("new")

    def demand(self, key: str) -> Wish | None:
        return Wish(self.wanted[key] / RATE, 0) if self.wanted[key] else None

    def used(self, key: str) -> float:
        return 0.0

    def met(self, key: str, rate: float, capacity: float) -> tuple[float, float]:
        return min(self.wanted[key], rate), max(0.0, self.wanted[key] - rate)

    def resized(self, key: str) -> None:
        """Nothing is leased here."""

    def tell(self, factors: Mapping[str, float]) -> None:
        """All keys have one lessor."""

    def parts(self) -> dict[str, tuple[float, float]]:
        (state,) = self.capacities.states()
        return {str(one.bucket and one.bucket.client_id): (one.rate, one.lent) for one in state.classes}

    def compiled(self) -> Classes:
        terms = list(self.given.values())
        ranks = [
            EXEMPT if one.exempt else RANKS[rank_of(KEY, self.bucket(name), one, self)]
            for name, one in self.given.items()
        ]
        return Classes(
            np.array([promised(one, self.capacity(KEY)) for one in terms]),
            np.array([one.ceiling for one in terms]),
            np.array([one.weight for one in terms]),
            np.array(ranks),
        )


@SETTINGS
@given(given=classes(), data=st.data())
def test_division_is_the_proxys(given: list[tuple[str, Terms]], data: st.DataObject) -> None:
    wanted = [data.draw(_PARTS) for _ in given]
    proxy = Proxy(given, wanted)
    if not any(wanted):
        return
    whole = proxy.compiled()
    wants = np.array(wanted) > 0
    some = Classes(whole.rates[wants], whole.ceilings[wants], whole.weights[wants], whole.ranks[wants])
    had, lent = divided(np.array(wanted)[wants], some, RATE)
    parts = proxy.parts()
    names = [name for (name, _), want in zip(given, wanted, strict=True) if want]
    assert had == pytest.approx([parts[name][0] for name in names], rel=1e-6, abs=1e-3)
    # A loan that would not be worth a message stays as it was, 0: up to 0.2 % of the capacity.
    assert lent == pytest.approx([parts[name][1] for name in names], rel=1e-6, abs=0.00201 * RATE)
    terms = [proxy.given[name] for name in names]
    rest = [
        0.0 if one.exempt else min(want, max(one.ceiling, promised(one, proxy.capacity(KEY)))) - own
        for one, want, own in zip(terms, filter(None, wanted), had, strict=True)
    ]
    exact = fill(rest, [one.weight for one in terms], max(0.0, RATE - had.sum()))
    assert lent == pytest.approx(exact, rel=1e-6, abs=1e-3)


@SETTINGS
@given(given=classes(), data=st.data())
def test_every_byte_passes_within_the_capacity(given: list[tuple[str, Terms]], data: st.DataObject) -> None:
    seconds, count = 20, len(given)
    sizes = np.array([[data.draw(_PARTS) for _ in given] for _ in range(seconds)])
    found = shared(
        np.repeat(np.arange(seconds), count),
        np.tile(np.arange(count), seconds),
        sizes.ravel(),
        Proxy(given, [1.0] * count).compiled(),
        RATE,
        seconds * 10_000,
        1,
    )
    assert found.carried.sum() == pytest.approx(sizes.sum(), abs=1.0)
    assert found.carried[1].sum() == pytest.approx(found.lent.sum())
    exempt = any(terms.exempt for _, terms in given)
    assert exempt or found.carried.sum(axis=0).max() <= RATE * (1 + 1e-9)


@SETTINGS
@given(given=classes(), data=st.data())
def test_what_is_late_at_the_end_is_what_has_not_passed(
    given: list[tuple[str, Terms]], data: st.DataObject
) -> None:
    seconds, count = 10, len(given)
    sizes = np.array([[data.draw(_PARTS) for _ in given] for _ in range(seconds)])
    each = Proxy(given, [1.0] * count).compiled()
    found = shared(
        np.repeat(np.arange(seconds), count),
        np.tile(np.arange(count), seconds),
        sizes.ravel(),
        each,
        RATE,
        seconds,
        1,
    )
    assert found.carried.sum() + found.late.sum() == pytest.approx(sizes.sum(), abs=1.0)
    assert (found.possible >= found.carried.sum(axis=0) - 1e-3).all()
    assert (found.kept_s <= found.wanted_s).all()
    if (each.ranks != EXEMPT).all() and each.rates.sum() <= RATE:
        assert found.kept_s.tolist() == found.wanted_s.tolist(), "what is promised is there"
