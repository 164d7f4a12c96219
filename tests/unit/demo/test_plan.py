"""tests.demo.plan: which rate is right, and which is not."""

import pytest

from tests.demo.plan import DIRECTIONS, FETCH, PLANS, PRODUCE, ClientPlan, Outcome


def _plan(offered: float | None) -> ClientPlan:
    return ClientPlan("a", "", offered=offered, produce_quota=2000, fetch_quota=1000)


@pytest.mark.parametrize(
    ("offered", "produce", "fetch"),
    [
        (500.0, 500.0, 500.0),  # under both quotas: what it tries
        (1500.0, 1500.0, 1000.0),  # under the one, over the other
        (9000.0, 2000.0, 1000.0),
        (None, 2000.0, 1000.0),
    ],
)
def test_expected_is_the_least_of_what_is_tried_and_allowed(
    offered: float | None, produce: float, fetch: float
) -> None:
    plan = _plan(offered)

    assert (plan.expected(PRODUCE), plan.expected(FETCH)) == (produce, fetch)


def test_outcome_line_says_what_is_not_ok() -> None:
    line = Outcome(_plan(None), PRODUCE, measured=2200.0, waited=0.25).line()

    assert "ratio 1.100" in line  # 2200 / 2000
    assert line.endswith("NOT ok")


def test_plans_have_one_client_under_one_at_and_one_over() -> None:
    offered = [(plan.offered or float("inf")) / plan.produce_quota for plan in PLANS]

    assert offered == [0.5, 1.0, float("inf")]
    assert len({plan.client_id for plan in PLANS}) == len(PLANS)
    assert all(plan.expected(direction) > 0 for plan in PLANS for direction in DIRECTIONS)
