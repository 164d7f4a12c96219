"""Consumers at a log's end beside those that replay, all of one client id, in virtual time, on channels.

A consumer at the end reads what has come since its last Fetch; one that replays takes as much as it may. The broker
sends whole batches, at least one, and waits for the first as long as the Fetch says.
"""

import random
from dataclasses import dataclass, field

import pytest

from protocol.messages.fetch import FetchFields, read_request
from proxy.channel.catch_up import UNFORESEEN_BYTES_MAX
from quotas.definitions.entities import Entity
from quotas.engine import Engine
from quotas.sharing.budgets import Budgets
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import LeaseTerms, LesseeId
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from tests.bench.figures import percentile
from tests.simulation.clock import Clock, largest_window
from tests.support.engines import Entries, engine_with
from tests.support.frames import fetch, fetched_from
from tests.support.playbook import Drop, Order, Pass, Playbook, Wait, playbook

VERSION = 15
FIELDS_AT = 16  # after a header with the client id "a"
LAG = 1000
CONSUMER_RATE, CATCH_UP_RATE = 500_000.0, 1_000_000.0
BEGIN_MS = 5_000  # until then nothing is judged
ROUND_TRIP_MS = 3
EVERY_MS = 20


@dataclass(slots=True, eq=False)
class Reader:
    """A connection that fetches, and waits while it is muted.

    Args:
        every_ms: how often a batch comes; 0: it replays, and there is always another.
    """

    clock: Clock
    engine: Engine
    batch: int
    every_ms: int = 0
    max_wait_ms: int = 500
    talk: Playbook = field(init=False)
    sent: int = 0
    read_ms: int = 0  # batches have been read up to this time
    delays: list[int] = field(default_factory=list)
    passed: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.talk = playbook(self.engine, gateway=False)

    def ask(self) -> None:
        """Send a Fetch."""
        self.sent += 1
        frame = fetch(VERSION, correlation_id=self.sent, max_wait_ms=self.max_wait_ms)
        self._follow(self.talk.orders("client", self.clock.now_ms, frame))

    def _again(self) -> None:
        self._follow(self.talk.orders("client", self.clock.now_ms, b""))

    def _follow(self, orders: list[Order]) -> None:
        """Do what the channel ordered for the request at hand."""
        first = orders[0]
        if isinstance(first, Wait):
            self.clock.at(first.until_ms, self._again)
        elif isinstance(first, Drop):  # it gets an empty response, and returns after its mute
            self.talk.orders("broker", self.clock.now_ms, b"")
            self.clock.at(self.clock.now_ms + 1 + self.talk.mute_left_ms(self.clock.now_ms), self.ask)
        else:
            assert isinstance(first, Pass), first
            fields = read_request(first.data, FIELDS_AT, len(first.data), VERSION)
            assert fields is not None
            due_ms = self.clock.now_ms if not self.every_ms else self.read_ms + self.every_ms
            until_ms = self.clock.now_ms + fields.max_wait_ms
            at_ms = max(self.clock.now_ms + ROUND_TRIP_MS, min(due_ms, until_ms))
            self.clock.at(at_ms, lambda: self._respond(fields))

    def _respond(self, fields: FetchFields) -> None:
        now_ms = self.clock.now_ms
        there = (now_ms - self.read_ms) // self.every_ms if self.every_ms else 1_000_000
        batches = min(there, max(1, fields.max_bytes // self.batch))
        if self.every_ms:
            for _ in range(batches):
                self.read_ms += self.every_ms
                if now_ms >= BEGIN_MS:
                    self.delays.append(now_ms - self.read_ms)
        size = batches * self.batch
        lags = {"t": [0 if self.every_ms else LAG + 1]}
        response = fetched_from(VERSION, {"t": [size]}, correlation_id=self.sent, lags=lags)
        self.talk.orders("broker", now_ms, response)
        if now_ms >= BEGIN_MS:
            self.passed.append((now_ms, len(response)))
        self.clock.at(now_ms + 1, self.ask)


def world(
    limits: dict[str, float], replaying: int, seed: int, more: Entries | None = None
) -> tuple[Clock, list[Reader], list[Reader]]:
    """Ten readers at the end with 150 kB/s together, and some that replay; begun in any order."""
    clock = Clock()
    engine = engine_with({Entity(client_id="a"): limits, **(more or {})}, policy="schedule")
    present = [Reader(clock, engine, 300, every_ms=EVERY_MS) for _ in range(10)]
    past = [Reader(clock, engine, 16_000) for _ in range(replaying)]
    chance = random.Random(seed)
    for reader in (*present, *past):
        at_ms = chance.randrange(1_000)
        reader.read_ms = at_ms
        clock.at(at_ms, reader.ask)
    return clock, present, past


CLASS = {"consumer_byte_rate": CONSUMER_RATE, "catch_up_byte_rate": CATCH_UP_RATE, "catch_up_lag": float(LAG)}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("replaying", [1, 40])
def test_replays_have_their_rate_and_delay_none_at_the_end(replaying: int, seed: int) -> None:
    seconds = 30
    clock, present, past = world(CLASS, replaying, seed)
    clock.run(seconds * 1000)
    delays = sorted(delay for reader in present for delay in reader.delays)
    assert len(delays) >= 10 * (seconds * 1000 - BEGIN_MS - 100) / EVERY_MS
    assert percentile(delays, 99) <= ROUND_TRIP_MS + 1
    passed = sorted(one for reader in past for one in reader.passed)
    rate = sum(size for _, size in passed) / (seconds - BEGIN_MS / 1000)
    assert 0.97 * CATCH_UP_RATE <= rate <= 1.02 * CATCH_UP_RATE
    # In ten seconds the rate, a burst of one, and a response of each.
    assert largest_window(passed, 10_000) <= 11 * CATCH_UP_RATE + replaying * 500_000


def test_without_it_the_end_waits_for_the_replays() -> None:
    # Equal parts protect those that need less than theirs; of fifty connections each has 10 kB/s, and needs 19.
    clock, present, _ = world({"consumer_byte_rate": CONSUMER_RATE}, 40, 1)
    clock.run(30_000)
    assert percentile(sorted(delay for reader in present for delay in reader.delays), 99) > 1_000


def lending(engine: Engine, clock: Clock) -> None:
    """Make the classes of an engine's capacity borrow from now on, as a process by itself does."""
    terms = LeaseTerms(15_000, 100, 1)
    lessee = Lessee(terms, LesseeId("one", 1), 0, cut_off=1.0, first=1.0)
    lessor = Lessor(terms, 1, Capacities(lambda: engine.definitions), 0, 0)
    budgets = Budgets(engine, lessee, 0)
    engine.lend(budgets)

    def step() -> None:
        budgets.live(clock.now_ms)
        report = budgets.report(clock.now_ms)
        if report is not None:
            lessor.report(report, clock.now_ms)
        for _, grants in lessor.grants(clock.now_ms):
            lessee.live(clock.now_ms)
            budgets.take(grants, clock.now_ms)
        clock.at(clock.now_ms + 50, step)

    clock.at(1, step)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("replaying", [1, 40])
def test_replay_borrows_what_the_end_leaves_of_a_capacity(replaying: int, seed: int) -> None:
    capacity = 4_000_000.0
    terms = {**CLASS, "catch_up_byte_rate": CATCH_UP_RATE / 2, "catch_up_byte_rate_ceiling": capacity}
    clock, present, past = world(
        terms, replaying, seed, {Entity(capacity="broker"): {"consumer_byte_rate": capacity}}
    )
    lending(present[0].engine, clock)
    clock.run(30_000)
    delays = sorted(delay for reader in present for delay in reader.delays)
    assert percentile(delays, 99) <= ROUND_TRIP_MS + 1
    read, replayed = (
        sum(size for reader in readers for _, size in reader.passed) * 1000 / (30_000 - BEGIN_MS)
        for readers in (present, past)
    )
    assert replayed >= 0.9 * (capacity - read)
    assert replayed + read <= 1.02 * capacity


@pytest.mark.parametrize("consumer_rate", [None, 5_000_000.0])
def test_connections_that_get_ready_at_the_end_gain_one_response_each(consumer_rate: float | None) -> None:
    # docs/security.md, "Catch-up reads that were not foreseen".
    connections, seconds = 20, 60
    limits = {"catch_up_byte_rate": CATCH_UP_RATE, "catch_up_lag": float(LAG)}
    if consumer_rate is not None:
        limits["consumer_byte_rate"] = consumer_rate
    engine = engine_with({Entity(client_id="a"): limits}, policy="schedule")
    talks = [playbook(engine, gateway=False) for _ in range(connections)]
    ready: set[int] = set()
    passed: list[tuple[int, int]] = []
    for now_ms in range(0, seconds * 1000, 10):
        together = len(ready) == connections
        for number, talk in enumerate(talks):
            if talk.mute_left_ms(now_ms):
                continue
            first = talk.orders("client", now_ms, fetch(VERSION))[0]
            if not isinstance(first, Pass):
                talk.orders("broker", now_ms, b"")
                continue
            fields = read_request(first.data, FIELDS_AT, len(first.data), VERSION)
            assert fields is not None
            behind = together and number in ready
            brings = min(4_000_000, fields.max_bytes) if behind else 0
            ready ^= {number} if behind or number not in ready else set()
            response = fetched_from(VERSION, {"t": [brings]}, lags={"t": [LAG + 1]})
            talk.orders("broker", now_ms, response)
            passed.append((now_ms, brings))
    for window_s in (1, 10, 30):
        bound = CATCH_UP_RATE * (window_s + 1) + connections * UNFORESEEN_BYTES_MAX
        assert largest_window(passed, window_s * 1000) <= bound
    if consumer_rate is not None:
        assert largest_window(passed, 1000) <= 2 * (consumer_rate + CATCH_UP_RATE)
