"""What the schedule never does, whatever clients do: pass too much, lose capacity, starve, hold or mute too long."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quotas.limiters.limiter import Flow
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions
from tests.simulation.quota_world import ClientOptions, World, gates_of, one_client

LIMIT = 1_000_000.0  # 1000 bytes a millisecond
BURST_MS = 1000
RUN_MS = 20_000
OPTIONS = EngineOptions(policy="schedule", scope="cluster")
SIZES = st.sampled_from([100, 16_384, 100_000, 1_000_000])
REQUESTS = st.sampled_from([16_384, 100_000, 1_000_000])
CLIENTS = st.lists(
    st.builds(
        ClientOptions,
        size=REQUESTS,
        consumes=st.just(False),
        obeys=st.booleans(),
        in_flight=st.sampled_from([1, 5]),
        start_ms=st.integers(0, 3000),
        think_ms=st.sampled_from([0, 0, 30, 700]),
    ),
    min_size=1,
    max_size=5,
)


def world(clients: list[ClientOptions], seed: int) -> World:
    made = World(gates_of(one_client(LIMIT, policy="schedule")), seed)
    for options in clients:
        made.add(options)
    made.run(RUN_MS)
    return made


@given(clients=CLIENTS, seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_no_window_has_more_than_burst_and_rate_and_one_request(
    clients: list[ClientOptions], seed: int
) -> None:
    made = world(clients, seed)
    if made.waits.hold_ms >= 15_000:
        return  # driven by the longest hold: the formula's business
    largest = max(options.size for options in clients)
    records = made.records
    for span_ms in (1, 1000, 10_000):
        total = first = 0
        for record in records:
            total += record.size
            while records[first].at_ms < record.at_ms - span_ms:
                total -= records[first].size
                first += 1
            assert total <= LIMIT * (BURST_MS + span_ms) / 1000 + largest


@given(clients=CLIENTS, seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_no_capacity_is_lost_while_a_client_has_data_to_send(clients: list[ClientOptions], seed: int) -> None:
    # One client that always sends as much as it may, whatever the others do.
    made = world([*clients, ClientOptions(size=100_000, in_flight=5)], seed)
    largest = max(options.size for options in clients)
    assert made.bytes_between(10_000, RUN_MS) >= LIMIT * 10 * 0.97 - 2 * largest


@given(clients=CLIENTS, seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_no_client_waits_beyond_the_bounds_or_starves(clients: list[ClientOptions], seed: int) -> None:
    made = world(clients, seed)
    assert made.waits.hold_ms <= 15_000 + made.timer_late_ms
    assert made.waits.mute_ms <= 20_000
    assert all(made.per_client())


@given(
    sizes=st.lists(st.sampled_from([16_384, 100_000]), min_size=2, max_size=6),
    consumes=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_backlogged_channels_get_equal_bytes(sizes: list[int], consumes: bool, seed: int) -> None:
    made = world([ClientOptions(size=size, consumes=consumes) for size in sizes], seed)
    totals = made.per_client()
    # A channel's share of the burst, and one request, is what they may be apart.
    assert max(totals) - min(totals) <= LIMIT + 2 * max(sizes)


class AnyCalls(RuleBasedStateMachine):
    """Every call in any order at any time: no exception, no place without a channel, no debt beyond its bound."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.throttle = ScheduledLimiter(LIMIT, OPTIONS, 0)
        self.flows = [Flow() for _ in range(5)]
        self.largest = 0

    @rule(gap_ms=st.one_of(st.integers(0, 20), st.integers(0, 40_000)))
    def time_passes(self, gap_ms: int) -> None:
        self.now_ms += gap_ms

    @rule(number=st.integers(0, 4), size=SIZES)
    def produce(self, number: int, size: int) -> None:
        self.largest = max(self.largest, size)
        decision = self.throttle.produce(self.flows[number], size, self.now_ms)
        assert not (decision.hold_until_ms and decision.throttle_ms)
        if decision.hold_until_ms:
            assert self.now_ms < decision.hold_until_ms <= self.now_ms + 15_000
        assert 0 <= decision.throttle_ms <= 20_000

    @rule(number=st.integers(0, 4))
    def fetch(self, number: int) -> None:
        decision = self.throttle.fetch(self.flows[number], self.now_ms)
        assert not decision.hold_until_ms
        assert 0 <= decision.throttle_ms <= 20_000
        assert 1 <= self.throttle.fetch_max_bytes(self.flows[number], 50_000_000, self.now_ms) <= 50_000_000

    @rule(number=st.integers(0, 4), size=SIZES)
    def fetched(self, number: int, size: int) -> None:
        self.largest = max(self.largest, size)
        decision = self.throttle.fetched(self.flows[number], size, self.now_ms)
        assert not decision.hold_until_ms
        assert 0 <= decision.throttle_ms <= 20_000

    @rule(number=st.integers(0, 4))
    def leave(self, number: int) -> None:
        self.throttle.leave(self.flows[number], self.now_ms)
        self.flows[number] = Flow()

    @rule(number=st.integers(0, 4), size=SIZES)
    def observe(self, number: int, size: int) -> None:
        assert 0 <= self.throttle.observe(self.flows[number], size, self.now_ms, consumes=False) <= 35_000

    @rule(factor=st.sampled_from([0.5, 1.0, 10.0]))
    def configure(self, factor: float) -> None:
        self.throttle.configure(LIMIT * factor, OPTIONS, self.now_ms)

    @precondition(lambda self: self.now_ms > 0)
    @rule()
    def settle(self) -> None:
        self.throttle.settle(self.now_ms)

    @invariant()
    def debt_is_never_negative(self) -> None:
        assert self.throttle.debt_bytes(self.now_ms) >= 0


TestAnyCalls = AnyCalls.TestCase
TestAnyCalls.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
