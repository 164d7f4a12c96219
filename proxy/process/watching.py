"""Visits the connections of this process in turn (`proxy.explain.watch`), and responds to queries about clients.

There are at most VISITS_MAX visits ten times a second, a few microseconds each: up to that many connections are visited
ten times a second, more of them less often. The pauses are random, so that no client's rhythm is in step with them.

What all processes have seen of clients and brokers becomes events here (`ProcessEvents`).
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from msgspec.structs import replace

from proxy.events import Tell
from proxy.events.broker_states import BrokerStates
from proxy.events.kinds import ClientsWait, ClientWaits, ClientWaitsEnded
from proxy.explain.latencies import OwnTime
from proxy.explain.report import (
    NOTHING,
    ClientReport,
    ConnectionsSum,
    DemandSum,
    Query,
    Seen,
    SeenSum,
    brokers_of,
    connection_reports,
    from_address,
    of_address,
    report,
    report_in_list,
)
from proxy.explain.rules import ClientRates, Rule, Sharers, entity_text, in_force
from proxy.explain.waiting import Judgement, Waiter, Waiting, wait_views
from proxy.explain.watch import TIMED_PART, Client, Watch
from proxy.net import Connection, Connections
from proxy.system.clock import clock_ns, now_ms
from proxy.system.stats import Stats
from proxy.system.threads import in_turns
from quotas.definitions.definitions import Definitions
from quotas.engine import Engine
from quotas.throttles.figures import QuotaView

TICK_SECONDS: Final = 0.1
IDLE_SECONDS: Final = 1.0  # without connections
VISITS_MAX: Final = 100
_NS_PER_MS: Final = 1_000_000
_EXPIRE_TICKS: Final = 100
_OWN_TICKS: Final = 5  # twice a second, which is enough for a percentile of a minute
JUDGE_MS: Final = 5_000
PORTION: Final = 50  # clients in one portion of a response
_VIEWS_PORTION: Final = 500


class Watching:
    """Visits the connections of one process, and reports on its clients' time.

    Args:
        connections: all open connections.

    Attributes:
        watch: what the visits have found: where the time of each client has gone.
        judged: called every few seconds with the clients that have begun or ended to wait for much of their time.
    """

    def __init__(self, connections: Connections, engine: Engine, stats: Stats) -> None:
        self._connections = connections
        self._stats = stats
        self._own = OwnTime()
        self._engine = engine
        self.watch = Watch()
        self._waiting = Waiting()
        self._judged_ms = 0
        self.judged: Callable[[Judgement], object] = lambda _: None
        self._round: list[Connection] = []
        self._round_began_ms = 0
        self._round_ms = int(TICK_SECONDS * 1000)

    async def run(self) -> None:
        """Visit connections and judge clients at intervals, until the application cancels it."""
        ticks = 0
        while True:
            pause = TICK_SECONDS if self._connections else IDLE_SECONDS
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            self._visit_some(clock_ns() // _NS_PER_MS)
            if ticks % _OWN_TICKS == 0:
                await self._note_own_time()
            await self._judge(clock_ns() // _NS_PER_MS)
            ticks += 1
            if ticks % _EXPIRE_TICKS == 0:
                for index, _ in enumerate(self.watch.expire(clock_ns() // _NS_PER_MS)):
                    if index % _VIEWS_PORTION == _VIEWS_PORTION - 1:
                        await asyncio.sleep(0)

    async def respond(self, query: Query) -> Seen:
        """Return the response to a query; made in short turns of the loop, so that traffic is not delayed."""
        whole = SeenSum()
        async for portion in self.portions(query):
            whole.add(portion)
        return whole.sum([client async for client in in_turns(whole.clients())])

    async def portions(self, query: Query) -> AsyncIterator[Seen]:
        """Yield the response to a query in at least one portion, of at most PORTION clients each, as in `respond`."""
        now_ms = clock_ns() // _NS_PER_MS
        brokers = tuple(brokers_of(self.watch, query.window, now_ms))
        rest = Seen((), {}, brokers, self._own.report(query.window, now_ms))
        if query.brokers_only:
            yield rest
            return
        if query.client is not None:
            yield await self._one(query, query.client, rest, now_ms)
            return
        rates = ClientRates()
        if query.client_id is None:
            async for _ in in_turns(rates.look(self._engine, self.watch.clients, now_ms)):
                pass
        reports: list[ClientReport] = []
        async for one in in_turns(self._reports(query, rates, now_ms)):
            if one is None:
                continue
            reports.append(one)
            if len(reports) == PORTION:
                yield replace(NOTHING, clients=tuple(reports))
                reports.clear()
        yield replace(rest, clients=tuple(reports))

    def _reports(self, query: Query, rates: ClientRates, now_ms: int) -> Iterator[ClientReport | None]:
        """Yield each client's report; None for one that is not asked for."""
        for client in list(self.watch.clients.values()):
            if query.client_id is not None and client.client_id != query.client_id:
                yield None
            else:
                yield report_in_list(client, query.window, now_ms, rates.of(client.user, client.client_id))

    async def _one(self, query: Query, name: tuple[str, str], rest: Seen, now_ms: int) -> Seen:
        found = self.watch.clients.get(name)
        if found is None:
            return rest
        rules = dict.fromkeys((*found.rules, *found.predictions.rules))
        sharers = {rule: await self._sharers(found, rule, now_ms) for rule in rules}
        connections = ConnectionsSum()
        demand = DemandSum(found, query.window, now_ms)
        reports = connection_reports(found, query.window, now_ms, demand)
        async for one in in_turns(from_address(reports, query.address)):
            connections.add(one)
        await asyncio.sleep(0)
        if query.address and not connections.total:
            return rest
        client = report(found, query.window, now_ms, connections, demands=demand.demands())
        return replace(
            rest,
            clients=(of_address(client, connections, query.address) if query.address else client,),
            neighbours={rule: some.found() for rule, some in sharers.items()},
            backlogs={rule: some.backlog_bytes for rule, some in sharers.items()},
        )

    def waits(self) -> Iterator[QuotaView]:
        """Yield a view for each client and kind of quota that it has waited for."""
        return wait_views(list(self.watch.clients.values()))

    async def _sharers(self, client: Client, rule: Rule, now_ms: int) -> Sharers:
        def waits(user: str, client_id: str) -> bool:
            other = self.watch.clients.get((user, client_id))
            return other is not None and (rule in other.rules or rule in other.predictions.rules)

        sharers = Sharers(self._engine, rule, client.user, client.client_id, waits)
        looking = sharers.look(now_ms)
        while True:
            seen = sum(1 for _ in islice(looking, _VIEWS_PORTION))
            if seen < _VIEWS_PORTION:
                return sharers
            await asyncio.sleep(0)

    async def _note_own_time(self) -> None:
        """Measure how long a full turn of the loop takes.

        This task goes first in its turn, so the second one is full.
        """
        await asyncio.sleep(0)
        began_ns = clock_ns()
        await asyncio.sleep(0)
        now_ns = clock_ns()
        self._own.tick(
            turn_ns=now_ns - began_ns,
            cpu_ns=time.process_time_ns(),
            requests=sum(self._stats.requests),
            now_ms=now_ns // _NS_PER_MS,
        )

    async def _judge(self, now_ms: int) -> None:
        """Find the clients that have begun or ended to wait for much of their time, every JUDGE_MS."""
        if now_ms - self._judged_ms < JUDGE_MS:
            return
        self._judged_ms = now_ms
        for _ in self._waiting.judge(self.watch, now_ms):
            await asyncio.sleep(0)
        judgement = self._waiting.take(now_ms)
        if judgement is not None:
            self.judged(judgement)

    def _visit_some(self, now_ms: int) -> None:
        """Visit the next connections of the round, at most VISITS_MAX."""
        if not self._round:
            self._begin_round(now_ms)
        for connection in self._round[-VISITS_MAX:]:
            if connection.closed:
                self.watch.end(connection)
                continue
            condition = connection.condition(now_ms, time_requests=random.random() < TIMED_PART)
            self.watch.visit(connection, condition, connection.peer, self._round_ms, now_ms)
        del self._round[-VISITS_MAX:]

    def _begin_round(self, now_ms: int) -> None:
        self._round = list(self._connections)
        if self._round_began_ms:
            self._round_ms = now_ms - self._round_began_ms
        self._round_began_ms = now_ms
        self.watch.keep(self._round)


@dataclass(eq=False)
class ProcessEvents:
    """Turns what the processes report on clients' waits and failing brokers into events.

    Each process judges the clients of its own connections; `source` is the number that identifies it. There is an event
    when a client begins to wait for much of its time in one process, and when it does so in none any more.

    Args:
        definitions: the quotas in force.
        mutations_rate: `quotas.partition_mutations_rate`.
    """

    tell: Tell
    definitions: Definitions
    mutations_rate: float | None
    brokers: BrokerStates
    # The processes in which a client waits.
    _sources: dict[tuple[str, str], set[int]] = field(init=False, default_factory=dict)

    def judged(self, source: int, judgement: Judgement) -> None:
        """Take the clients that have begun or ended to wait for much of their time in one process."""
        for waiter in judgement.begun:
            sources = self._sources.setdefault((waiter.user, waiter.client_id), set())
            if not sources:
                self.tell(self._begun(waiter))
            sources.add(source)
        for waiter in judgement.ended:
            self._end(source, waiter.user, waiter.client_id, waiter.part)
        if judgement.others:
            self.tell(ClientsWait(judgement.others))

    def dialled(self, source: int, broker: int, problem: str) -> None:
        """Take the reason why connections of one process to a broker fail; "": they succeed again."""
        self.brokers.reported(source, broker, problem, now_ms())

    def ended(self, source: int) -> None:
        """Remove all that a process had reported, since it has ended, and its connections with it."""
        for user, client_id in [name for name, sources in self._sources.items() if source in sources]:
            self._end(source, user, client_id, 0.0)
        self.brokers.ended(source, now_ms())

    def _end(self, source: int, user: str, client_id: str, part: float) -> None:
        sources = self._sources.get((user, client_id), set())
        sources.discard(source)
        if not sources and self._sources.pop((user, client_id), None) is not None:
            self.tell(ClientWaitsEnded(user, client_id, part))

    def _begun(self, waiter: Waiter) -> ClientWaits:
        user, client_id, part, rule = waiter.user, waiter.client_id, waiter.part, waiter.rule
        if rule is None:
            return ClientWaits(user, client_id, part)
        found = in_force(rule, self.definitions, user, client_id, self.mutations_rate)
        if found is None:
            return ClientWaits(user, client_id, part, rule.key)
        return ClientWaits(user, client_id, part, rule.key, entity_text(found), found.value)
