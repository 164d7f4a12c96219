"""A closed-loop world of clients, channels and the quota engine on a virtual clock.

It knows no Kafka bytes: a request is a size, a channel is what `proxy.channel` will do with the engine's decisions
(read the next request when not muted, hold it at its header, mute after it, empty a throttled Fetch), a client
sends as much as it may. Latencies and timers jitter by a seeded generator; the seed is part of every result.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from quotas.definitions.definitions import StaticQuotas
from quotas.engine import Engine
from quotas.limiters.limiter import Flow
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import capped
from quotas.throttles.bandwidth import Throttle
from tests.simulation.clock import Clock, largest_window
from tests.simulation.kafka_broker import KafkaGate
from tests.support.engines import engine_with


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How one client behaves."""

    size: int = 1_000_000  # of a Produce, or of a batch that is fetched
    consumes: bool = False
    obeys: bool = True  # throttle_time_ms
    in_flight: int = 1
    start_ms: int = 0
    stop_ms: int | None = None  # sends nothing from then on
    closes: bool = False  # and closes its connection then
    think_ms: int = 0  # between a response and the next request
    burst: int = 1  # requests one after the other before it thinks
    max_bytes: int = 50_000_000
    group_session_timeout_ms: int | None = None
    client_id: str = "a"


@dataclass(slots=True)
class Request:
    """One request on its way: of how many bytes, and since when."""

    size: int
    sent_ms: int
    first_try_ms: int = -1  # when the channel saw it


@dataclass(slots=True)
class Record:
    """Bytes that passed: when, whose."""

    at_ms: int
    size: int
    client: int


@dataclass(slots=True)
class Waits:
    """The longest waits seen anywhere."""

    hold_ms: int = 0
    mute_ms: int = 0
    latency_ms: int = 0  # from sending a request to its response, as the client sees it
    decisions: int = 0
    empty_responses: int = 0
    refused: int = 0


Gate = Throttle | KafkaGate
"""What a channel asks: the engine's throttle, or Kafka's own arithmetic."""
Gates = Callable[[ClientOptions], Gate]


def one_client(limit: float | None, **options: Any) -> Engine:
    """Make an engine that limits what each client produces and consumes; its options by their names."""
    return engine_with(static=client_limits(limit), **{"scope": "cluster", **options})


def client_limits(limit: float | None) -> StaticQuotas:
    """The same limit for what each client produces and consumes."""
    return StaticQuotas(producer_default=limit, consumer_default=limit)


def gates_of(engine: Engine) -> Gates:
    """The engine's throttles, by client id and direction."""

    def gate(options: ClientOptions) -> Gate:
        client = engine.client("", options.client_id, 1)
        return client.fetch if options.consumes else client.produce

    return gate


class World(Clock):
    """The clock and everything in it; `run` returns when the time is over."""

    def __init__(
        self,
        gates: Gates,
        seed: int = 1,
        *,
        mute_ms_max: int = 20_000,
        timer_late_ms: int = 2,
        latency_ms: tuple[int, int] = (1, 6),
        kafka: bool = False,
    ) -> None:
        super().__init__()
        self.gates = gates
        self.seed = seed
        self.random = random.Random(seed)
        self.mute_ms_max = mute_ms_max
        self.timer_late_ms = timer_late_ms
        self.latency_range_ms = latency_ms
        self.kafka = kafka  # the gates are Kafka's own: a Fetch that is too much brings nothing
        self.records: list[Record] = []
        self.waits = Waits()
        self.channels: list[Channel] = []

    def add(self, options: ClientOptions, times: int = 1) -> None:
        """So many clients of the same kind, each with its own connection."""
        for _ in range(times):
            channel = Channel(self, options, len(self.channels))
            self.channels.append(channel)
            self.at(options.start_ms, channel.client_sends)
            if options.stop_ms is not None and options.closes:
                self.at(options.stop_ms, channel.close)

    def timer(self, when_ms: int, what: Callable[[], None]) -> None:
        """Do something at a time, as late as a loop's timers are."""
        self.at(when_ms + self.random.randint(0, self.timer_late_ms), what)

    def latency_ms(self) -> int:
        """One way between two machines, or through a broker."""
        return self.random.randint(*self.latency_range_ms)

    # -- figures

    def bytes_between(self, from_ms: int, to_ms: int) -> int:
        """Bytes of all clients in [from, to)."""
        return sum(record.size for record in self.records if from_ms <= record.at_ms < to_ms)

    def ratio(self, limit: float, from_ms: int, to_ms: int) -> float:
        """The rate between two times over the quota."""
        return self.bytes_between(from_ms, to_ms) / ((to_ms - from_ms) / 1000) / limit

    def largest_second(self, limit: float) -> float:
        """The most that passed in any one second that begins with a record, over the quota."""
        return largest_window([(record.at_ms, record.size) for record in self.records], 1000) / limit

    def per_client(self) -> list[int]:
        """Bytes of each client over the whole run."""
        totals = [0] * len(self.channels)
        for record in self.records:
            totals[record.client] += record.size
        return totals

    def jain(self) -> float:
        """Jain's index of fairness over the connections: 1 = all equal."""
        totals = self.per_client()
        squares = sum(total * total for total in totals)
        return sum(totals) ** 2 / (len(totals) * squares) if squares else 1.0


@dataclass(slots=True)
class Channel:
    """One connection: the client at its end, and what the proxy does with it."""

    world: World
    options: ClientOptions
    number: int
    throttle: Gate = field(init=False)
    flow: Flow = field(init=False)
    arrived: deque[Request] = field(default_factory=deque)
    in_flight: int = 0
    quiet_until_ms: int = 0  # the client obeys a throttle time
    muted_until_ms: int = 0
    waited_ms: int = 0  # held and muted, also what is still to come of a mute
    held_since_ms: int = -1  # of the request that is held
    owed: deque[Request] = field(default_factory=deque)  # Produces that are with the broker
    busy: bool = False  # a request is held, or a Fetch is with the broker
    open: bool = True
    responses: int = 0  # that were not empty

    def __post_init__(self) -> None:
        self.throttle = self.world.gates(self.options)
        self.flow = self.throttle.flow()
        self.flow.connection = ConnectionTime(self.owed)

    # -- the client

    def client_sends(self) -> None:
        """Send as many requests as may be in flight."""
        world, options = self.world, self.options
        if not self.open or (options.stop_ms is not None and world.now_ms >= options.stop_ms):
            return
        if options.obeys and world.now_ms < self.quiet_until_ms:
            world.timer(self.quiet_until_ms, self.client_sends)
            return
        while self.in_flight < options.in_flight:
            self.in_flight += 1
            self.send(options.size)

    def send(self, size: int) -> None:
        """Send a request."""
        world = self.world
        world.at(world.now_ms + world.latency_ms(), partial(self.arrives, Request(size, world.now_ms)))

    def responded(self, request: Request, throttle_ms: int, *, empty: bool = False) -> None:
        """The response is at the client; to an empty one it does not give a thought."""
        world = self.world
        self.in_flight -= 1
        world.waits.latency_ms = max(world.waits.latency_ms, world.now_ms - request.sent_ms)
        self.quiet_until_ms = max(self.quiet_until_ms, world.now_ms + throttle_ms)
        self.responses += not empty
        if self.options.think_ms and not empty and self.responses % self.options.burst == 0:
            world.timer(world.now_ms + self.options.think_ms, self.client_sends)
        else:
            self.client_sends()

    def close(self) -> None:
        """The client is gone."""
        if self.open:
            self.open = False
            self.throttle.leave(self.flow, self.world.now_ms)

    # -- the proxy

    def arrives(self, request: Request) -> None:
        """A request's first bytes are in the socket."""
        self.arrived.append(request)
        self.read()

    def read(self) -> None:
        """Handle what has arrived, one request at a time, unless muted or busy with one."""
        while self.open and not self.busy and self.arrived and self.world.now_ms >= self.muted_until_ms:
            request = self.arrived.popleft()
            if self.options.consumes:
                self.fetch(request)
            else:
                self.produce(request)

    def produce(self, request: Request) -> None:
        """A Produce header was seen, or its hold is over."""
        world = self.world
        if not self.open:
            return
        world.waits.decisions += 1
        decision = self.throttle.produce(self.flow, request.size, world.now_ms)
        if request.first_try_ms < 0:
            request.first_try_ms = world.now_ms
        if decision.hold_until_ms:
            assert decision.hold_until_ms > world.now_ms, f"a hold ends later than now (seed {world.seed})"
            self.busy = True
            self.held_since_ms = request.first_try_ms
            world.timer(decision.hold_until_ms, lambda: self.produce(request))
            return
        self.busy = False
        self.held_since_ms = -1
        self.waited_ms += world.now_ms - request.first_try_ms
        world.waits.hold_ms = max(world.waits.hold_ms, world.now_ms - request.first_try_ms)
        if decision.refused:
            self.refused(request)
            return
        world.records.append(Record(world.now_ms, request.size, self.number))
        self.mute(decision.throttle_ms)
        self.owed.append(request)
        world.at(world.now_ms + world.latency_ms(), partial(self.produced, request))
        self.read()

    def produced(self, request: Request) -> None:
        """The broker's response to a Produce passes, with what is left of the mute."""
        world = self.world
        if self.owed:
            self.owed.popleft()
        throttle_ms = max(0, self.muted_until_ms - world.now_ms)
        world.at(world.now_ms + world.latency_ms(), partial(self.responded, request, throttle_ms))

    def refused(self, request: Request) -> None:
        """The channel is closed; the client connects anew and sends again what got no response."""
        world = self.world
        world.waits.refused += 1
        self.throttle.leave(self.flow, world.now_ms)
        self.flow = self.throttle.flow()
        self.muted_until_ms = 0
        again = [request, *self.arrived]
        self.arrived.clear()
        for one in again:
            one.first_try_ms = -1
        backoff_ms = world.random.randint(50, 1000)  # reconnect.backoff.ms to reconnect.backoff.max.ms
        world.timer(world.now_ms + backoff_ms, partial(self.returns, again))

    def returns(self, requests: list[Request]) -> None:
        """The client is connected again."""
        self.arrived.extendleft(reversed(requests))
        self.read()

    def fetch(self, request: Request) -> None:
        """A Fetch was read: forward it, or send an empty response."""
        world = self.world
        world.waits.decisions += 1
        decision = self.throttle.fetch(self.flow, world.now_ms)
        if decision.throttle_ms:
            world.waits.empty_responses += 1
            self.mute(decision.throttle_ms)
            responded = partial(self.responded, request, decision.throttle_ms, empty=True)
            world.at(world.now_ms + world.latency_ms(), responded)
            return
        limit = self.throttle.fetch_max_bytes(self.flow, self.options.max_bytes, world.now_ms)
        size = max(1, limit // self.options.size) * self.options.size
        self.busy = True
        world.at(world.now_ms + world.latency_ms() + world.latency_ms(), lambda: self.fetched(request, size))

    def fetched(self, request: Request, size: int) -> None:
        """The broker's response begins."""
        world = self.world
        if not self.open:
            return
        self.busy = False
        decision = self.throttle.fetched(self.flow, size, world.now_ms)
        if world.kafka and decision.throttle_ms:
            world.waits.empty_responses += 1  # Kafka throws the data away and sends an empty response
        else:
            world.records.append(Record(world.now_ms, size, self.number))
        self.mute(decision.throttle_ms)
        world.at(world.now_ms + world.latency_ms(), lambda: self.responded(request, decision.throttle_ms))
        self.read()

    def mute(self, throttle_ms: int) -> None:
        """KIP-219: read nothing more from this channel for that time, within what its group allows."""
        if throttle_ms <= 0:
            return
        world = self.world
        muted_ms = capped(throttle_ms, world.mute_ms_max, self.options.group_session_timeout_ms)
        world.waits.mute_ms = max(world.waits.mute_ms, muted_ms)
        self.waited_ms += max(0, world.now_ms + muted_ms - max(world.now_ms, self.muted_until_ms))
        self.muted_until_ms = world.now_ms + muted_ms
        world.timer(self.muted_until_ms, self.read)
