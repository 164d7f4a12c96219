"""What a client takes, counted at visits, and the bound of what it would take: exact numbers."""

import pytest

from proxy.explain.condition import ASKED, Condition
from proxy.explain.parts import MINUTE, TEN_SECONDS
from proxy.explain.report import DemandSum
from proxy.explain.wants import Demand
from proxy.explain.watch import Taken, Watch
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.throttles.client import ClientQuota

VISIT_MS = 100


class Client:
    """A client with connections that wait for a part of their time, and take so many bytes at each visit."""

    def __init__(self, *connections: str) -> None:
        definitions = Definitions(static=StaticQuotas(producer_default=1_000_000))
        self.engine = Engine(EngineOptions(policy="kip13", mode="observe"), definitions)
        self.watch = Watch()
        self.now_ms = 0
        self.muted_ms = dict.fromkeys(connections, 0)

    def run(self, seconds: float, taken: int, **waited: float) -> None:
        """Let time pass; `taken`: bytes between two visits, of all connections together."""
        quota = self.engine.client("", "a", 1)
        flow = quota.produce.flow()
        for _ in range(round(seconds * 1000 / VISIT_MS)):
            self.now_ms += VISIT_MS
            if taken:
                quota.produce.produce(flow, taken, self.now_ms)
            for name in self.muted_ms:
                self.muted_ms[name] += round(VISIT_MS * waited.get(name, 0.0))
                condition = Condition(quota, 1, ASKED, 0, self.muted_ms[name], quota.produce)
                self.watch.visit(name, condition, name, VISIT_MS, self.now_ms)

    def demand(self, window: int = MINUTE) -> Demand:
        client = self.watch.clients["", "a"]
        found = DemandSum(client, window, self.now_ms)
        for meter in client.meters:
            found.add(meter)
        return found.demands()[0]


def test_most_is_what_it_takes_in_the_time_beside_its_waits() -> None:
    client = Client("one")
    client.run(100, 100_000, one=0.6)  # 1 MB/s in 40 % of the time
    found = client.demand()
    assert found.taken == pytest.approx(1e6, rel=0.02)
    assert found.most == pytest.approx(2.5e6, rel=0.02)
    assert found.steady


def test_connection_with_the_least_time_beside_its_waits_makes_the_bound() -> None:
    client = Client("one", "other")
    client.run(100, 100_000, one=0.6, other=0.2)
    assert client.demand().most == pytest.approx(2.5e6, rel=0.02)


def test_span_begins_anew_with_the_first_wait() -> None:
    client = Client("one")
    client.run(60, 500_000)  # 5 MB/s, no wait
    before = client.demand()
    assert before.most == pytest.approx(5e6, rel=0.02)
    assert before.steady
    client.run(10, 100_000, one=0.6)
    soon = client.demand()
    assert (soon.most, soon.steady) == (None, False)
    assert soon.highest == pytest.approx(5e6)
    client.run(20, 100_000, one=0.6)
    later = client.demand()
    assert later.most == pytest.approx(2.5e6, rel=0.02)
    assert not later.steady
    assert later.highest == pytest.approx(5e6)
    client.run(60, 100_000, one=0.6)
    assert client.demand().steady
    assert client.demand().highest == pytest.approx(1e6, rel=0.02)


def test_another_limit_begins_anew() -> None:
    client = Client("one")
    client.run(100, 100_000, one=0.6)
    definitions = Definitions(static=StaticQuotas(producer_default=500_000))
    client.engine.update(client.engine.options, definitions, client.now_ms)
    client.run(1, 50_000, one=0.8)
    assert client.demand().most is None
    client.run(8, 50_000, one=0.8)
    assert client.demand(TEN_SECONDS).most == pytest.approx(2.5e6, rel=0.1)
    assert not client.demand(TEN_SECONDS).steady


def test_nearly_all_of_the_time_waited_says_nothing_of_the_most() -> None:
    client = Client("one")
    client.run(100, 100_000, one=0.95)
    found = client.demand()
    assert found.most is None
    assert found.highest == pytest.approx(1e6, rel=0.02)


def test_client_that_does_not_wait_asks_for_what_it_takes() -> None:
    client = Client("one", "other")
    client.run(30, 100_000)
    assert client.demand().most == pytest.approx(1e6, rel=0.02)


def test_counters_that_the_engine_has_removed_begin_with_0() -> None:
    taken, definitions = Taken(), Definitions()
    for size in (700, 300):
        engine = Engine(EngineOptions(), definitions)
        quota: ClientQuota = engine.client("", "a", 1)
        flow = quota.produce.flow()
        if size == 700:
            taken.count(quota, 0)
        quota.produce.produce(flow, size, 1_000)
        taken.count(quota, 1_000)
    assert taken.amount(0, TEN_SECONDS, 1_000) == 1_000
