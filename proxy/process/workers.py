"""Control's side of all workers: starts, supervises and feeds them, and collects their figures.

A worker that ends is started again (`restarts`), and only its own connections are gone. One that is silent, or does not
become ready in time, is killed: connections would wait at its ports. What prevents the first start of all (a port in
use, a wrong certificate) ends the control process, as it would end a single one.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, Final

from msgspec.structs import replace

from proxy.channel import OngoingMoves
from proxy.config import AdminOptions, Config, FleetOptions, Source
from proxy.control.cluster import BrokerMap
from proxy.events import Tell, untold
from proxy.events.kinds import WorkerEnded
from proxy.explain.documents import Missing
from proxy.explain.report import Query, Seen
from proxy.metrics.exposition import Metrics
from proxy.metrics.families import Family, of_workers
from proxy.metrics.series import Quotas
from proxy.net import Ask, refuse_taken_ports
from proxy.process import messages
from proxy.process.figures import RESPONSE_SECONDS_MAX, MergedFigures, Responses
from proxy.process.life import Life, State
from proxy.process.messages import FrameError, Message
from proxy.process.shares import STEP_SECONDS, ControlShares, Pace
from proxy.process.watching import ProcessEvents
from proxy.system.clock import now_ms
from proxy.system.errors import StartError, reason
from proxy.system.logs import event
from proxy.system.supervisor import Supervisor
from quotas.definitions.definitions import Definitions
from quotas.throttles.figures import QuotaView
from quotas.throttles.topic_names import NAMES_MAX, TopicNames

PAUSE_MS_MIN: Final = 100
PAUSE_MS_MAX: Final = 30_000
STEADY_MS: Final = 10_000
# A worker sends something every second. One that is silent for so many seconds is killed: new connections lead to its
# ports too, and wait there.
SILENT_TICKS_MAX: Final = 30


class Restarts:
    """Decides when one worker whose process has ended is started again, and when a silent one is killed.

        it was ready, and ran for STEADY_MS     at once
        otherwise                               after a pause that doubles from PAUSE_MS_MIN to PAUSE_MS_MAX

    So one that is killed now and then is replaced at once, and one that cannot start does not occupy a processor.

    >>> restarts = Restarts()
    >>> [restarts.ended(ran_ms=50, was_ready=False) for _ in range(4)]
    [100, 200, 400, 800]
    >>> restarts.ended(ran_ms=60_000, was_ready=True), restarts.ended(ran_ms=50, was_ready=True)
    (0, 100)
    """

    def __init__(self) -> None:
        self._pause_ms = PAUSE_MS_MIN
        self._silent_ticks = 0

    def ended(self, *, ran_ms: int, was_ready: bool) -> int:
        """Return how long to wait before the worker is started again, in ms.

        Args:
            ran_ms: how long its process ran.
            was_ready: whether that served clients.
        """
        self._silent_ticks = 0
        if was_ready and ran_ms >= STEADY_MS:
            self._pause_ms = PAUSE_MS_MIN
            return 0
        pause_ms = self._pause_ms
        self._pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
        return pause_ms

    def message_received(self) -> None:
        """Reset the count of silent seconds: the worker has sent a message."""
        self._silent_ticks = 0

    def tick(self) -> bool:
        """Count one more silent second; return True if the worker is to be killed, after SILENT_TICKS_MAX of them.

        Seconds are counted here, and not compared with a clock: when the whole machine was suspended, all processes
        were silent, and this one too.
        """
        self._silent_ticks += 1
        return self._silent_ticks >= SILENT_TICKS_MAX


def part_of(config: Config, workers: int) -> Config:
    """Return the configuration of one worker: its listeners, and its fraction of the limits on memory and
    descriptors.

    Sluice's own logins, the fleet's secret and the admin port stay with control. Of `[fleet]` a worker gets only the
    keys that name the group, since it refuses clients' requests for that.
    """
    limits, fleet = config.limits, config.fleet
    return replace(
        config,
        admin=AdminOptions(bind=None),
        cluster=replace(config.cluster, username="", password="", password_file=None),
        fleet=FleetOptions(bind=fleet.bind, holder=fleet.holder, group=fleet.group),
        listeners=tuple(listener for listener in config.listeners if not listener.replicates),
        limits=replace(
            limits,
            connections_max=-(-limits.connections_max // workers),
            handshakes_max=-(-limits.handshakes_max // workers),
            sessions_max=-(-limits.sessions_max // workers),
            pipes_max=-(-limits.pipes_max // workers),
            kept_bytes_max=max(limits.kept_bytes_max // workers, limits.kept_bytes_per_connection_max),
        ),
        source=Source(),
        warnings=(),
    )


class SharedTopicNames(TopicNames):
    """The known names of topics by id, from which control sends each new one to its workers.

    Args:
        learned: called with each new topic id and name.

    Attributes:
        all: all known names, by topic id.
    """

    def __init__(self, learned: Callable[[bytes, str], object]) -> None:
        super().__init__()
        self._learned = learned
        self.all: dict[bytes, str] = {}

    def learn(self, topic_id: bytes, name: str) -> None:
        """Store the name of a topic id, and pass it to `learned` if it is new."""
        if self.known(topic_id) == name:
            return
        super().learn(topic_id, name)
        if len(self.all) >= NAMES_MAX:
            del self.all[next(iter(self.all))]
        self.all[topic_id] = name
        self._learned(topic_id, name)


READY_SECONDS_MAX: Final = 60.0
_TICK_SECONDS: Final = 1.0
_PORTS_SECONDS_MAX: Final = 1.0
_LOOK_SECONDS: Final = 0.25  # how often a scrape looks whether a worker that it waits for has fallen silent
# Beyond `limits.drain_seconds`: to write the last rows of a capture.
_DRAIN_MORE_SECONDS: Final = 15.0
_KILLED: Final = "killed"

logger = logging.getLogger(__name__)


class Workers:
    """All workers of one control process.

    Args:
        workers: how many there are.
        config: the whole configuration, of which each worker gets its part (`part_of`).
        definitions: the quotas in force.
        moves: the reassignments that Sluice executes in steps; None if it executes none.
        ask: handles the workers' questions: clients' requests to which only control can respond.
        shares: leases shares of the quotas to the workers.

    Attributes:
        names: the known names of topics, for all workers.
        tell: called with each event, as of a worker that has ended.
        process_events: takes what workers report on clients and brokers; set before `start`.
    """

    def __init__(
        self,
        workers: int,
        config: Config,
        definitions: Definitions,
        brokers: BrokerMap,
        moves: OngoingMoves | None,
        ask: Ask,
        supervisor: Supervisor,
        shares: ControlShares,
    ) -> None:
        self.count = workers
        self._config = config
        self._source = config
        self._brokers = brokers
        self._supervisor = supervisor
        self._ask = ask
        self.names = SharedTopicNames(self._topic_named)
        self._state = State(part_of(config, workers), definitions, brokers, self.names.all, moves)
        self._shares = shares
        self._lives: dict[int, Life] = {}
        self.tell: Tell = untold
        self.process_events: ProcessEvents
        self._restarts = {number: Restarts() for number in range(1, workers + 1)}
        self._exits: Counter[str] = Counter()
        self._doomed: dict[int, str] = {}  # why a life was killed, by its run
        self._changed: deque[str] = deque()  # codes of quotas; filled by the store's thread
        definitions.changed = self._quota_changed
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(self._loop)
        self._waking = False
        self._grants_due = False  # reports have come whose grants are sent in this turn of the loop
        self._draining = False
        self._first = asyncio.Event()  # all are ready, or one cannot start
        self._numbers = count(1)
        self._missed: Counter[int] = Counter()  # by worker
        self._figures: MergedFigures
        self._handlers: dict[type[Message], Callable[[Life, Any], None]] = {
            messages.Ready: self._ready,
            messages.Reported: self._reported,
            messages.Judged: lambda life, said: self.process_events.judged(life.run, said.judgement),
            messages.Dialled: lambda life, said: self.process_events.dialled(
                life.run, said.broker, said.problem
            ),
            messages.BrokersSeen: self._brokers_seen,
            messages.TopicsWanted: self._topics_wanted,
        }

    async def start(self) -> None:
        """Start all workers, and wait until they are ready, or `drain` or `interrupt` is called.

        Raises:
            StartError: one of them cannot start.
        """
        await self._refuse_taken_ports()
        run_forever = self._supervisor.run_forever
        run_forever("workers_step", self._step)
        run_forever("workers_tick", self._tick)
        for number in self._restarts:
            run_forever(f"worker_{number}", partial(self._keep, number))
        await self._first.wait()
        problem = next((life.problem for life in self._lives.values() if life.problem), "")
        if problem and not self._draining:
            await self.drain(lambda: True)
            raise StartError(problem)

    def interrupt(self) -> None:
        """Let `start` return now; called when a signal asks to stop."""
        self._first.set()

    def not_ready(self) -> str:
        """Return why not all workers can serve; "" if they can."""
        missing = [str(number) for number in self._restarts if not self._is_ready(number)]
        if missing:
            return f"worker {', '.join(missing)} of {self.count} is not ready"
        if len(self.missing()) == self.count:
            return "no worker responds"
        closed = [life for life in self._lives.values() if life.not_accepting]
        return "; ".join(f"worker {life.number} of {self.count}: {life.not_accepting}" for life in closed)

    def missing(self) -> tuple[Missing, ...]:
        """Return the workers that cannot be asked now: they do not run, are not ready yet, or are silent."""
        now = monotonic()
        found = []
        for number in self._restarts:
            life = self._lives.get(number)
            if life is None or life.code is not None:
                found.append(Missing(number, "it does not run"))
            elif not life.ready:
                found.append(Missing(number, "it is not ready"))
            elif life.silent(now):
                found.append(Missing(number, f"silent for {now - life.heard:.0f} s"))
        return tuple(found)

    def configure(self, config: Config) -> None:
        """Send all workers a new configuration, and the quotas that have changed."""
        if config is not self._source:
            self._source = config
            self._state.config = part_of(config, self.count)
        self._pass_on()
        self._wake_feeds()

    def enforce(self, on: bool) -> None:
        """Let all workers enforce quotas, or stop."""
        self._state.enforcing = on
        self._wake_feeds()

    def read_certificates(self) -> None:
        """Let all workers read their certificates again."""
        for life in self._lives.values():
            life.feed.read_certificates()

    async def drain(self, hurried: Callable[[], bool]) -> None:
        """Tell all workers to end, and wait until they have; kill those that take too long.

        Args:
            hurried: returns True as soon as the workers have to end without waiting for their clients.
        """
        self._draining = True
        self._first.set()
        connections = sum(life.connections for life in self._lives.values())
        event(logger, logging.INFO, "draining", connections=connections, workers=self.count)
        told: dict[int, bool] = {}
        until = monotonic() + self._config.limits.drain_seconds + _DRAIN_MORE_SECONDS
        while running := [life for life in self._lives.values() if life.code is None]:
            now_hurried = hurried()
            for life in running:
                if told.get(life.run) is not now_hurried and life.drain(hurried=now_hurried):
                    told[life.run] = now_hurried
            if now_hurried:
                until = min(until, monotonic() + _DRAIN_MORE_SECONDS)
            if monotonic() > until:
                event(logger, logging.ERROR, "workers killed, since they did not end", workers=len(running))
                for life in running:
                    life.kill()
                    await life.ended.wait()
                return
            await asyncio.sleep(STEP_SECONDS)

    async def scrape(self, request: Callable[[int], Message]) -> Responses:
        """Send a request to each worker that can be asked, and wait up to RESPONSE_SECONDS_MAX for the responses.

        Args:
            request: makes the request with the number that it is given.
        """
        number = next(self._numbers)
        message = request(number)
        missing = {one.worker: one for one in self.missing()}
        asked = {
            life: asyncio.ensure_future(life.figures(number, message))
            for life in self._lives.values()
            if life.number not in missing
        }
        until = monotonic() + RESPONSE_SECONDS_MAX
        waiting = set(asked.values())
        while waiting and (left := until - monotonic()) > 0:
            _, waiting = await asyncio.wait(waiting, timeout=min(left, _LOOK_SECONDS))
            now = monotonic()
            waiting -= {response for life, response in asked.items() if life.silent(now)}
        by_run = {}
        for life, response in asked.items():
            if response.done() and not response.cancelled() and response.exception() is None:
                by_run[life.run] = response.result()
                continue
            problem = f"no response within {RESPONSE_SECONDS_MAX:g} s"
            if response.done():
                problem = "it has ended"
            elif life.silent(monotonic()):
                problem = f"silent for {monotonic() - life.heard:.0f} s"
            response.cancel()
            missing[life.number] = Missing(life.number, problem)
        self._missed.update(missing.keys())
        return Responses(by_run, tuple(missing[number] for number in sorted(missing)))

    def figures(
        self,
        metrics: Metrics,
        quotas: Quotas,
        series_max: int,
        seen: Callable[[Query], Awaitable[Seen]],
        waits: Callable[[], Iterable[QuotaView]],
    ) -> MergedFigures:
        """Create the merged figures of all processes; called once, before `start`. The arguments are control's own."""
        self._figures = figures = MergedFigures(
            self.scrape, self.missing, metrics, quotas, series_max, seen, waits
        )
        return figures

    def families(self) -> Iterator[Family]:
        """Return the metrics about the workers: which are up, their connections, missed scrapes, and exits."""
        missing = self._figures.missing_in_metrics
        up = dict.fromkeys(self._restarts, True) | {one.worker: False for one in missing}
        connections = {number: life.connections for number, life in self._lives.items() if life.code is None}
        missed = {number: self._missed[number] for number in self._restarts}
        return of_workers(up, connections, missed, self._exits)

    async def _refuse_taken_ports(self) -> None:
        """Check that no other process has bound the ports.

        The workers of a control process that was killed give them up in a moment.

        Raises:
            StartError: another process has one.
        """
        until = monotonic() + _PORTS_SECONDS_MAX
        for options in self._state.config.listeners:
            while not options.reuse_port:
                try:
                    refuse_taken_ports(options)
                    break
                except StartError:
                    if monotonic() > until:
                        raise
                await asyncio.sleep(STEP_SECONDS)

    # The life of a worker.

    async def _keep(self, number: int) -> None:
        """Keep a worker running until the drain."""
        restarts = self._restarts[number]
        while True:
            life = self._lives[number] = Life(number, self._state, self._ask, self._on_message)
            try:
                await life.start(self._shares.terms)
            except (OSError, FrameError) as error:
                self._exits["not_started"] += 1
                event(logger, logging.ERROR, "worker not started", worker=number, detail=str(error))
                if not self._first.is_set():
                    life.problem = f"worker {number} cannot be started: {reason(error)}"
                    self._first.set()
                    return
            else:
                await self._watch(life)
            if self._draining:
                return
            ran_ms = int((monotonic() - life.began) * 1000)
            pause_ms = restarts.ended(ran_ms=ran_ms, was_ready=life.was_ready)
            await asyncio.sleep(pause_ms / 1000)

    async def _watch(self, life: Life) -> None:
        """Feed a worker until it ends; then count its end, and log it."""
        feeding = self._supervisor.run_once("worker_feed", self._feed(life))
        try:
            code = await life.wait()
        finally:
            feeding.cancel()
            self._shares.ended(life.number, life.run)
            self._figures.ended(life.run)
            self.process_events.ended(life.run)
        cause = self._doomed.pop(life.run, _KILLED if code < 0 else "failed")
        if self._draining and code == 0:
            return
        self._exits[cause] += 1
        self.tell(WorkerEnded(life.number, cause))
        if not self._first.is_set() and cause == "failed":
            life.problem = life.problem or f"worker {life.number} ended with {code} before it was ready"
            self._first.set()
            return
        detail = life.problem or "none"
        event(
            logger, logging.ERROR, "worker ended", worker=life.number, cause=cause, code=code, detail=detail
        )

    def _on_message(self, life: Life, message: Message) -> None:
        """Handle a worker's message that concerns other workers too."""
        self._restarts[life.number].message_received()
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(life, message)

    def _ready(self, life: Life, _: messages.Ready) -> None:
        event(logger, logging.INFO, "worker ready", worker=life.number, pid=life.pid)
        if not self.not_ready():
            self._first.set()

    def _brokers_seen(self, _: Life, message: messages.BrokersSeen) -> None:
        for broker, address in message.addresses.items():
            self._brokers.learn(broker, *address)

    def _topics_wanted(self, life: Life, message: messages.TopicsWanted) -> None:
        for topic_id in message.topic_ids:
            name = self.names.name(topic_id, now_ms())
            if name is not None:
                life.feed.topic_named(topic_id, name)

    def _reported(self, life: Life, message: messages.Reported) -> None:
        """Pass on a report; the grants for all reports of this turn of the loop are sent at its end."""
        if not self._shares.report(message.report, now_ms()):
            life.grant(None)
        elif not self._grants_due:
            self._grants_due = True
            self._loop.call_soon(self._send_grants)

    async def _step(self) -> None:
        """Send due grants and changed state to the workers, at intervals."""
        version = self._brokers.version
        while True:
            self._send_grants()
            self._pass_on()
            moved = self._state.moves is not None or version != self._brokers.version
            version = self._brokers.version
            if moved:
                self._wake_feeds()
            await self._pace.pause(busy=self._shares.busy)

    def _send_grants(self) -> None:
        """Send the grants that are due."""
        self._grants_due = False
        lives = {life.run: life for life in self._lives.values() if life.code is None}
        for lessee, grants in self._shares.grants(now_ms()):
            life = lives.get(lessee.run)
            if life is not None:
                life.grant(grants)

    async def _tick(self) -> None:
        """Kill workers that are silent, or do not become ready."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            for number, life in self._lives.items():
                if life.code is not None or self._draining:
                    continue
                if self._restarts[number].tick():
                    self._doom(life, "silent")
                elif not life.ready and monotonic() - life.began > READY_SECONDS_MAX:
                    self._doom(life, "not_ready")

    async def _feed(self, life: Life) -> None:
        """Feed a worker; one that cannot be told what has changed is ended, and not left with what it had."""
        try:
            await life.feed.run()
        except FrameError as error:
            life.problem = str(error)
            self._doom(life, "failed")
            raise

    def _doom(self, life: Life, cause: str) -> None:
        self._doomed[life.run] = cause
        with suppress(ProcessLookupError):
            life.kill()

    def _quota_changed(self, code: str) -> None:
        """Queue a changed quota, and wake the loop; called in the store's thread."""
        self._changed.append(code)
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the process ends, and its loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake_feeds(self) -> None:
        """Send all workers what has changed."""
        for life in self._lives.values():
            life.feed.wake()

    def _wake(self) -> None:
        self._waking = False
        self._pace.wake()

    def _pass_on(self) -> None:
        """Queue the quotas that the store's thread has changed for all workers."""
        while self._changed:
            code = self._changed.popleft()
            for life in self._lives.values():
                life.feed.quota_changed(code)

    def _topic_named(self, topic_id: bytes, name: str) -> None:
        for life in self._lives.values():
            life.feed.topic_named(topic_id, name)

    def _is_ready(self, number: int) -> bool:
        life = self._lives.get(number)
        return life is not None and life.ready
