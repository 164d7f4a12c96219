"""The places of a fair queue against a naive model: a list of channels, sorted by tag and then by arrival."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quotas.limiters.fair_queue import HELD_GRACE_MS, FairQueue
from quotas.limiters.limiter import GRACE_MS, Flow

CHANNELS = st.integers(0, 5)
SIZES = st.sampled_from([1, 100, 16_384])


class Places(RuleBasedStateMachine):
    """Channels take places, pass, wait and leave in any order."""

    @initialize(lag_bytes=st.sampled_from([0, 1000]))
    def begin(self, lag_bytes: int) -> None:
        self.queue = FairQueue()
        self.queue.lag_bytes = lag_bytes
        self.flows = [Flow() for _ in range(6)]
        self.places: list[Flow] = []  # the model
        self.now_ms = 0

    @rule(number=CHANNELS, size=SIZES, held=st.booleans(), due_in_ms=st.integers(0, 10_000))
    def waits(self, number: int, size: int, held: bool, due_in_ms: int) -> None:
        """Enter the queue as the schedule does: the tag first, then the place."""
        flow = self.flows[number]
        index = self.queue.enter(flow)
        if flow in self.places:
            assert self.places[index] is flow
        else:
            assert index == sum(place.tag <= flow.tag for place in self.places)
            self.places.insert(index, flow)
            flow.due_ms = self.now_ms + due_in_ms
            flow.held_since_ms = self.now_ms if held else -1
        self.queue.put(flow, size)
        assert flow.size == size

    @precondition(lambda self: self.places)
    @rule(size=SIZES)
    def first_passes(self, size: int) -> None:
        flow = self.places.pop(0)
        self.queue.remove(flow)
        self.queue.record_passed(flow, flow.tag, size, 0)
        flow.held_since_ms = -1
        assert flow.passed
        assert flow.tag >= self.queue.virtual - self.queue.lag_bytes

    @rule(number=CHANNELS)
    def leaves(self, number: int) -> None:
        flow = self.flows[number]
        self.queue.remove(flow)
        self.places = [place for place in self.places if place is not flow]
        self.flows[number] = Flow()

    @rule(after_ms=st.integers(0, 10_000))
    def late_channels_lose_their_places(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.queue.sweep(self.now_ms, 1000)
        self.places = [
            flow
            for flow in self.places
            if self.now_ms <= flow.due_ms + (GRACE_MS if flow.held_since_ms < 0 else HELD_GRACE_MS)
        ]

    @invariant()
    def places_are_those_of_the_model(self) -> None:
        if not hasattr(self, "queue"):
            return
        places = self.places
        assert list(map(id, self.queue.flows)) == list(map(id, places))
        assert [flow.queued for flow in self.flows] == [flow in places for flow in self.flows]
        for index, flow in enumerate(places):
            once = sum(place.size for place in places[:index])
            share = index * flow.tag - sum(place.tag for place in places[:index])
            assert self.queue.bytes_ahead(flow, index) == ((once, max(once, share)) if index else (0, 0))


TestPlaces = Places.TestCase
TestPlaces.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
