"""A process's part of all budgets: demands of those that made connections wait, and shares in its limiters."""

import pytest

from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.entities import BucketKey
from quotas.engine import Engine
from quotas.options import EngineOptions, Policy
from quotas.sharing.budgets import NAMED_MS, UNSETTLED_MS, Budgets, budget_key
from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Wish
from quotas.sharing.lessee import Lessee

LIMIT = 1_000_000
TERMS = LeaseTerms(15_000, 1000, 4)
KEY = "producer_byte_rate@-1 -=:a"


class Process:
    """One engine with shares, and its lessor's part played by the test."""

    def __init__(self, policy: Policy = "schedule") -> None:
        definitions = Definitions(static=StaticQuotas(producer_default=LIMIT, consumer_default=LIMIT))
        self.engine = Engine(EngineOptions(policy=policy, scope="cluster"), definitions)
        self.lessee = Lessee(TERMS, LesseeId("w", 1), 0)
        self.budgets = Budgets(self.engine, self.lessee, 0)
        self.engine.share(self.budgets)
        self.throttle = self.engine.client("", "a", 1).produce
        self.version = 0
        self.grant({DEFAULT_KEY: 0.25}, 0)

    def grant(self, shares: dict[str, float | None], now_ms: int) -> None:
        report = self.lessee.report(now_ms)
        self.version += 1
        grants = Grants(1, 1, self.version, report.number, 15_000, shares, self.version == 1, 4)
        assert self.budgets.take(grants, now_ms)

    def crowd(self, connections: int) -> None:
        """So many connections each send more than the share lets pass."""
        for _ in range(connections):
            flow = self.throttle.flow()
            for _ in range(4):
                self.throttle.produce(flow, 200_000, 2000)

    def wish(self, now_ms: int) -> dict[str, Wish | None]:
        self.grant({}, now_ms)  # so that a report is not due for its own sake
        report = self.budgets.report(now_ms + 1000)
        assert report is not None
        return dict(report.wishes)


def test_keys_are_the_same_in_every_process_and_bounded() -> None:
    assert budget_key(("producer_byte_rate", BucketKey("ann", None), 3)) == "producer_byte_rate@3 3-:ann"
    long = [budget_key(("producer_byte_rate", BucketKey(None, "x" * size), 3)) for size in (5000, 5001)]
    assert long[0] != long[1]
    assert all(len(key) < 100 for key in long)


def test_no_wait_is_predicted_before_the_first_lease() -> None:
    options = EngineOptions(policy="schedule", scope="cluster", mode="observe")
    engine = Engine(options, Definitions(static=StaticQuotas(producer_default=LIMIT)))
    lessee = Lessee(TERMS, LesseeId("w", 1), 0)
    budgets = Budgets(engine, lessee, 0)
    engine.share(budgets)
    throttle = engine.client("", "a", 1).produce
    flow = throttle.flow()
    for now_ms in range(
        0, 5000, 100
    ):  # 0.2 MB/s, of a share of 0.25 MB/s later; the least share is 312 bytes/s
        throttle.produce(flow, 20_000, now_ms)
    assert (throttle.total, throttle.would_throttled_total) == (1_000_000, 0)
    report = lessee.report(5000)
    assert budgets.take(Grants(1, 1, 1, report.number, 15_000, {DEFAULT_KEY: 0.25}, True, 4), 5000)
    for now_ms in range(5000, 7000, 100):
        throttle.produce(flow, 20_000, now_ms)
    assert throttle.would_throttled_total <= 5  # it begins without a burst; what came before makes none wait
    for now_ms in range(7000, 9000, 100):
        throttle.produce(flow, 60_000, now_ms)  # 0.6 MB/s
    assert throttle.would_throttled_total > 0


def test_a_process_uses_its_share_of_a_quota() -> None:
    process = Process()
    throttle, flow = process.throttle, process.throttle.flow()
    decisions = [throttle.produce(flow, 100_000, ms) for ms in range(1000, 11_000, 10)]
    passed = sum(100_000 for one in decisions if not one.hold_until_ms and not one.refused)
    assert passed == pytest.approx(10 * LIMIT * 0.25 + 0.25 * LIMIT, rel=0.05)


def test_connections_that_wait_make_a_demand_of_the_whole_quota_by_their_number() -> None:
    process = Process()
    process.crowd(3)
    assert process.wish(2000) == {KEY: Wish(1.0, 3)}


def test_a_client_below_its_share_makes_no_demand() -> None:
    process = Process()
    throttle, flow = process.throttle, process.throttle.flow()
    for second in range(10):
        throttle.produce(flow, 100_000, 2000 + 1000 * second)
    assert process.wish(12_000) == {}


def test_a_raised_share_is_in_force_at_the_next_request_without_another_burst() -> None:
    process = Process()
    throttle, flow = process.throttle, process.throttle.flow()
    throttle.produce(flow, 250_000, 2000)  # the burst of a quarter
    process.grant({KEY: 0.9}, 2000)
    held = throttle.produce(flow, 450_000, 2000)
    assert held is not None
    assert throttle.debt_bytes(2000) == pytest.approx(450_000, rel=0.01)
    assert throttle.debt_bytes(2250) == pytest.approx(450_000 - 225_000, rel=0.01)  # 0.9 MB/s


@pytest.mark.parametrize("policy", ["schedule", "kip13"])
def test_nothing_is_granted_from_a_lease_that_is_over_even_before_anything_notices(policy: Policy) -> None:
    process = Process(policy)
    process.grant({KEY: 0.9}, 0)
    throttle, flow = process.throttle, process.throttle.flow()
    throttle.produce(flow, 1, 1000)
    assert process.lessee.share(KEY, 16_000) == 0.25  # suspended until now: cut off
    before = throttle.debt_bytes(16_000)
    for _ in range(3):
        throttle.produce(flow, 1_000_000, 16_000)
    owed = throttle.debt_bytes(16_000) - before
    # schedule: the burst of one second, and the first request passes; kip13: windows of ten seconds, and all pass.
    assert owed == pytest.approx({"schedule": 1_000_000 - 250_000, "kip13": 3_000_000 - 2_500_000}[policy])


def test_mutes_are_as_long_as_they_are_where_what_has_waited_passes() -> None:
    process = Process("kip13")
    throttle, flow = process.throttle, process.throttle.flow()
    flow.passed = True
    # 5 MB, and 2.5 MB that the windows have room for: 2.5 MB at 0.25 MB/s.
    assert throttle.produce(flow, 5_000_000, 20_000).throttle_ms == pytest.approx(10_000, abs=1000)


def test_mutes_are_short_while_shares_are_being_moved() -> None:
    process = Process()
    throttle, flow = process.throttle, process.throttle.flow()
    first = throttle.produce(flow, 5_000_000, 2000)  # 19 s at a quarter of the rate
    assert first.throttle_ms == 250
    later = 2000 + UNSETTLED_MS + 20_000
    assert throttle.produce(flow, 5_000_000, later).throttle_ms > 250


@pytest.mark.parametrize(("share", "throttle_ms"), [(TERMS.least, 250), (2 * TERMS.least, 20_000)])
def test_mutes_are_short_while_there_is_the_least_share_only(share: float, throttle_ms: int) -> None:
    process = Process()
    throttle, flow = process.throttle, process.throttle.flow()
    throttle.produce(flow, 500_000, 2000)  # its key is named
    process.grant({KEY: share}, 13_000)
    # At 625 or 1250 bytes/s it takes minutes; a mute is at most 20 s.
    assert throttle.produce(flow, 500_000, 2000 + UNSETTLED_MS + 20_000).throttle_ms == throttle_ms


def test_a_demand_ends_some_time_after_the_last_connection_that_waited() -> None:
    process = Process()
    throttle, flow = process.throttle, process.throttle.flow()
    for _ in range(2):
        throttle.produce(flow, 300_000, 2000)
    assert KEY in process.wish(3000)
    assert process.wish(9000) == {KEY: Wish(0.0, 1)}  # none waits, and nothing was sent
    process.grant({}, 11_500)
    ended = process.budgets.report(2000 + NAMED_MS + 500)
    assert ended is not None
    assert ended.wishes == {KEY: None}
    assert len(process.budgets) == 0


def test_process_is_busy_from_the_first_connection_that_waits_and_says_so() -> None:
    process = Process()
    begun: list[int] = []
    process.budgets.begins = lambda: begun.append(1)
    process.grant({}, 1000)  # the grants before are acknowledged with this report; these change nothing
    assert not process.budgets.busy
    process.grant({"another": 0.5}, 2000)
    states = [process.budgets.busy]
    assert process.budgets.report(3000) is not None
    states.append(process.budgets.busy)
    process.crowd(2)
    states.append(process.budgets.busy)
    assert (states, begun) == ([True, False, True], [1])
