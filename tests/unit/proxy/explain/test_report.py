"""What a client takes, counted at visits, and the bound of what it would take: exact numbers."""

import pytest
from msgspec.structs import replace

from proxy.channel import ASKED, Condition
from proxy.explain import parts
from proxy.explain.parts import MINUTE, TEN_SECONDS
from proxy.explain.report import (
    ClientReport,
    ConnectionReport,
    ConnectionsSum,
    DemandSum,
    from_address,
    of_address,
)
from proxy.explain.wants import Demand
from proxy.explain.watch import Taken, Watch
from quotas.definitions.definitions import Definitions, StaticQuotas
from tests.support import situations
from tests.support.engines import engine_with
from tests.support.situations import PRODUCE, REQUEST, spent

VISIT_MS = 100


class Client:
    """A client with connections that wait for a part of their time, and take so many bytes at each visit."""

    def __init__(self, *connections: str) -> None:
        static = StaticQuotas(producer_default=1_000_000)
        self.engine = engine_with(static=static, policy="kip13", mode="observe")
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


def test_most_is_what_it_takes_in_the_least_time_of_a_connection_beside_its_waits() -> None:
    client = Client("one", "other")
    client.run(100, 100_000, one=0.6, other=0.2)  # 1 MB/s in 40 % of the time
    found = client.demand()
    assert found.taken == pytest.approx(1e6, rel=0.02)
    assert found.most == pytest.approx(2.5e6, rel=0.02)
    assert found.steady


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


def test_counters_that_the_engine_has_removed_begin_with_0() -> None:
    taken = Taken()
    for size in (700, 300):
        quota = engine_with().client("", "a", 1)
        flow = quota.produce.flow()
        if size == 700:
            taken.count(quota, 0)
        quota.produce.produce(flow, size, 1_000)
        taken.count(quota, 1_000)
    assert taken.amount(0, TEN_SECONDS, 1_000) == 1_000


def connection(peer: str, muted: float, client: float = 0.0) -> ConnectionReport:
    return ConnectionReport(peer, 1, 60_000, spent(muted=muted / 60, client=client / 60))


ALL = (
    connection("10.0.0.4:50001", 10),
    connection("10.0.0.4:50002", 20, 5),
    connection("10.0.0.41:50003", 30),
    connection("::1:50004", 0),
)


def report_of(address: str) -> ClientReport:
    whole = situations.client(*ALL, waits={PRODUCE: 0.8, REQUEST: 0.2}, unread=0.15)
    sums = ConnectionsSum()
    for one in from_address(iter(ALL), address):
        sums.add(one)
    return of_address(replace(whole, connections=sums.worst()), sums, address)


@pytest.mark.parametrize(
    ("address", "ports"),
    [("", "1234"), ("10.0.0.4", "12"), ("10.0.0.41", "3"), ("::1", "4"), ("10.0.0", ""), ("1", "")],
)
def test_connections_of_an_address_are_chosen_by_all_of_it(address: str, ports: str) -> None:
    assert "".join(one.peer[-1] for one in from_address(iter(ALL), address)) == ports


def test_times_are_those_of_its_connections() -> None:
    found = report_of("10.0.0.4")
    assert (found.address, found.connections_total) == ("10.0.0.4", 2)
    assert found.times == tuple(map(sum, zip(ALL[0].times, ALL[1].times, strict=True)))
    assert found.times[parts.CLIENT] == found.unread_ms == 5_000  # not the 9,000 of the whole client


def test_waits_are_given_in_proportion_to_the_time_waited() -> None:
    # 30 of 60 s were waited there: 24 of 48 s for bytes, 6 of 12 s for request time
    assert report_of("10.0.0.4").waits == ((PRODUCE, 24_000), (REQUEST, 6_000))


def test_address_that_does_not_wait_has_no_rule() -> None:
    assert report_of("::1").waits == ()
