"""What a throttled client is said to want, against the same client without a limit and with other limits.

All in virtual time, under both policies. The limit is 2 MB/s, and a client's demand is a multiple of it: the size of
its requests, or its pause between them, is chosen so that it takes that much without a limit.
"""

from typing import Any

import pytest

from quotas.options import Policy
from tests.simulation.explained_world import LIMIT, Case, taken, verdict, waited_seconds
from tests.simulation.quota_world import ClientOptions

POLICIES: list[Policy] = ["kip13", "schedule"]
DEMANDS = [1.5, 3.0, 6.0]
MULTIPLES = (1.0, 1.5, 2.0)
FAR_MS = (20, 30)  # one way: two of them are a Produce's way through Sluice and back, three with the broker
SIZE = 100_000


def pausing(demand: float, *, consumes: bool, connections: int = 1) -> ClientOptions:
    """One request in flight, then a pause: at 3 x 2 MB/s of 100 kB each 16.7 ms, of which 2 ms are on the way."""
    pause_ms = round(connections * SIZE * 1000 / (demand * LIMIT) - 2)
    return ClientOptions(size=SIZE, max_bytes=SIZE, consumes=consumes, think_ms=pause_ms)


def far(demand: float, *, consumes: bool, in_flight: int = 1) -> ClientOptions:
    """No pause, all of it on the way: at 3 x 2 MB/s a Produce of 450 kB in 75 ms, a Fetch of 600 kB in 100 ms."""
    size = round(demand * LIMIT * (0.1 if consumes else 0.075) / in_flight)
    return ClientOptions(size=size, max_bytes=size, consumes=consumes, in_flight=in_flight)


def in_bursts(demand: float) -> ClientOptions:
    """Ten Fetches one after the other, 2 MB in 40 ms, then a pause: at 3 x 2 MB/s a burst each 333 ms."""
    pause_ms = round(10 * 2 * SIZE * 1000 / (demand * LIMIT) - 40)
    return ClientOptions(size=2 * SIZE, max_bytes=2 * SIZE, consumes=True, think_ms=pause_ms, burst=10)


def waits(found: dict[str, Any]) -> list[float]:
    return list(found["wants"]["wait_seconds_per_minute"].values())


@pytest.mark.parametrize(
    "case",
    [
        *(Case(policy, pausing(0.5, consumes=consumes)) for policy in POLICIES for consumes in (True, False)),
        *(Case(policy, far(0.5, consumes=False, in_flight=5), 1, 1.0, FAR_MS) for policy in POLICIES),
        Case("kip13", in_bursts(0.5)),
    ],
)
def test_client_below_its_limit_is_not_throttled(case: Case) -> None:
    found = verdict(case)
    assert taken(case) == pytest.approx(0.5, rel=0.05)
    assert found["rule"] is None
    assert found["wants"] is None


def test_bursts_below_the_limit_wait_under_the_schedule() -> None:
    """A burst of 2 MB, each 2 s: the schedule spreads it over a second, and Kafka's windows of 11 s let it pass."""
    found = verdict(Case("schedule", in_bursts(0.5)))
    assert found["wants"]["rate"] / LIMIT == pytest.approx(0.5, rel=0.1)
    assert waits(found)[1:] == [0, 0]


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize(
    ("policy", "kind"), [("kip13", "pausing"), ("kip13", "four"), ("kip13", "bursts"), ("schedule", "far")]
)
def test_consumer_wants_what_it_takes_without_a_limit(policy: Policy, kind: str, demand: float) -> None:
    """Its waits come between its requests, so they are all that a limit adds: 1/3 of 2 MB/s x 3 waits 40 s a minute."""
    case = {
        "pausing": Case(policy, pausing(demand, consumes=True)),
        "four": Case(policy, pausing(demand, consumes=True, connections=4), 4),
        "bursts": Case(policy, in_bursts(demand)),
        "far": Case(policy, far(demand, consumes=True), 1, 1.0, FAR_MS),
    }[kind]
    found = verdict(case)
    free = taken(case)
    assert free == pytest.approx(demand, rel=0.15)
    assert not found["wants"]["at_least"]
    assert found["wants"]["rate"] / LIMIT == pytest.approx(free, rel=0.1)
    assert waits(found) == pytest.approx([waited_seconds(case, times) for times in MULTIPLES], abs=2)


@pytest.mark.parametrize("demand", DEMANDS)
def test_far_consumer_under_kafkas_windows_wants_what_it_takes_without_a_limit(demand: float) -> None:
    """Each mute is told by an empty response, whose 50 ms on the way bring nothing: they count as a wait."""
    case = Case("kip13", far(demand, consumes=True), 1, 1.0, FAR_MS)
    found = verdict(case)
    assert found["wants"]["rate"] / LIMIT == pytest.approx(demand, rel=0.05)
    assert waits(found) == pytest.approx([waited_seconds(case, times) for times in MULTIPLES], abs=5)


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_far_producer_wants_no_more_than_it_is_said_to(policy: Policy, demand: float) -> None:
    """The mute begins with the request: of 75 ms on the way 25 are hidden in it, to 50 that are left beside it."""
    case = Case(policy, far(demand, consumes=False), 1, 1.0, FAR_MS)
    found = verdict(case)
    assert demand < found["wants"]["rate"] / LIMIT < 1.6 * demand
    assert_bounds(waits(found), case)


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        *((policy, kind) for policy in POLICIES for kind in ("pausing producer", "pipelining producer")),
        ("schedule", "pausing consumer"),
        ("schedule", "bursts"),
    ],
)
def test_client_with_other_time_in_its_mutes_wants_no_more(policy: Policy, kind: str, demand: float) -> None:
    """It waits nearly all of its time whatever it wants, until the limit is above that: then it waits no more."""
    case = {
        "pausing producer": Case(policy, pausing(demand, consumes=False)),
        "pausing consumer": Case(policy, pausing(demand, consumes=True)),
        "pipelining producer": Case(policy, far(demand, consumes=False, in_flight=5), 1, 1.0, FAR_MS),
        "bursts": Case(policy, in_bursts(demand)),
    }[kind]
    found = verdict(case)
    if found["wants"] is None:
        assert "How much it asks for is not known." in found["sentence"]
    else:
        assert not found["wants"]["at_least"]  # it takes no more than the limit
        assert found["wants"]["rate"] / LIMIT >= 0.95 * taken(case)
        assert_bounds(waits(found), case)


def assert_bounds(told: list[float], case: Case) -> None:
    """The seconds of a minute are no less than those with these limits; Kafka's sawtooth makes the difference of 5."""
    assert all(
        seconds >= waited_seconds(case, times) - 5 for seconds, times in zip(told, MULTIPLES, strict=True)
    )
