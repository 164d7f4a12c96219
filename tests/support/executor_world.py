"""The executor on a simulated cluster, with a real journal, a clock of its own, and a kill wherever a test wants it.

    world = World(directory, cluster)
    world.take(Move(...))           # as the API leaves it: asked for, judged, its first step submitted
    world.run()                     # until nothing is left
    world.kill_at = 7               # the seventh of all places where a kill makes a difference

A kill is between two effects: before and after each journal write, each submission, each election. The process that
comes after it knows the journal and the cluster and nothing else.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from protocol.api import ALTER_PARTITION_REASSIGNMENTS as KEY
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterRequest, AlterResponse, Ongoing, Outcome, Target
from proxy.channel import Forward, Question
from proxy.config import ReassignmentSettings
from proxy.control.reassign.api import Decisions, LocalDecisions, ReassignmentApi
from proxy.control.reassign.cluster import Cluster, ClusterError, ClusterState, WithdrawnError
from proxy.control.reassign.executor import Executor
from proxy.control.reassign.file_journal import FileJournal, LeaderLock
from proxy.control.reassign.journal import (
    AsyncJournal,
    Entry,
    Journal,
    JournalState,
    Leadership,
    PendingRequest,
    Record,
)
from proxy.events import Event
from proxy.system.stats import Stats
from quotas.reassignment.step import Move, TopicPartition
from tests.support.journal_topics import SimulatedTopic
from tests.support.reassigned_cluster import RefusedError, SimulatedCluster

TOPIC_ID: Final = "ab" * 16
ROUNDS_MAX: Final = 400
_ROUND_MS: Final = 1000


T = TypeVar("T")


async def read_beside(_whose: str, _size: int, function: Callable[..., T], *arguments: Any) -> T:
    """What `Worker.call` gives, without its thread."""
    return await asyncio.to_thread(function, *arguments)


class Killed(BaseException):
    """The process is gone."""


class World:
    """See the module.

    Attributes:
        kill_at: the place at which the process is killed; 0: never.
        places: how many there have been.
        mute: whether submissions are carried out without a response.
        sent: what the API sent to the broker last.
        unreachable: no broker responds to this process.
        late_rounds: rounds of the executor before a broker gets to see a request.
        conflict_wait_seconds_max: how long a request waits for another one to be judged, in real seconds.
        tenure: the number of the process's tenure as the holder of a fleet, with a journal in a topic.
        decides: what decides on requests; None: this process itself.
        stalls: submissions are carried out when the test says so (`arrive`), though the process goes no further.
    """

    def __init__(
        self,
        directory: Path,
        cluster: SimulatedCluster,
        settings: ReassignmentSettings | None = None,
        topic: SimulatedTopic | None = None,
        tenure: int = 1,
    ) -> None:
        self.topic = topic
        self.tenure = tenure
        self.stalls = False
        self.decides: Decisions | None = None
        self.stalled: dict[TopicPartition, Target] = {}
        self.directory = directory
        self.cluster = cluster
        self.settings = settings or ReassignmentSettings()
        self.kill_at = self.places = 0
        self.mute = self.unreachable = False
        self.late_rounds = 0
        self.conflict_wait_seconds_max = 0.0
        self.now_ms = 1_000_000
        self.stats = Stats()
        self.events: list[Event] = []
        self.topic_ids: dict[str, str] = {}
        self.processes = self.woken = 0
        self.sent: dict[TopicPartition, Target] = {}
        self.start()

    def start(self) -> None:
        """Start the process, or another one after it was killed."""
        self.processes += 1
        name = f"process {self.processes} of {id(self)}"
        kept: Journal
        if self.topic is None:
            kept = FileJournal(self.directory)
            self.lock: Leadership = LeaderLock(self.directory, name)
        else:
            kept = self.lock = self.topic.journal(name, lambda: self.tenure)
            self.topic.place = self.place
        self.journal = KilledJournal(self, kept, name)
        self.executor = Executor(
            self.journal,
            SimulatedResponses(self),
            self.lock,
            lambda: self.settings,
            lambda: self.now_ms,
            self.stats,
            self.events.append,
        )

    def kill(self) -> None:
        """What the kernel does with a process: its locks are given back. Kafka notices nothing."""
        if self.topic is None:
            self.lock.release()

    def place(self) -> None:
        """A place where a kill makes a difference."""
        self.places += 1
        if self.places == self.kill_at:
            raise Killed

    def take(self, *moves: Move) -> None:
        """Have moves in the journal, accepted and without a step."""
        entries = [
            Entry(move.topic, move.partition, self.topic_id(move.topic), move.original, move.target)
            for move in moves
        ]
        self.append(*entries)

    def ask(self, move: Move, *, cancels: bool = False) -> None:
        """Put a request into the journal that is never validated."""
        known = asyncio.run(self.journal.read()).entries.get(move.key)
        entry = known or Entry(move.topic, move.partition, self.topic_id(move.topic), move.original)
        asked = PendingRequest(move.original if cancels else move.target, cancels, None, "gone/1")
        self.append(replace(entry, asked=asked))

    def request(self, *wanted: tuple[TopicPartition, Target], **told: Any) -> AlterResponse:
        """Have the API respond to a request; see `request_while`."""
        return asyncio.run(self.request_while(*wanted, **told))

    async def round_while(self) -> None:
        """A round, while something else goes on, and a second later."""
        await self.executor.run_round()
        self.now_ms += _ROUND_MS

    async def request_while(
        self,
        *wanted: tuple[TopicPartition, Target],
        refusal: AlterResponse | None = None,
        denial: Outcome | None = None,
        version: int = 1,
        lost: bool = False,
    ) -> AlterResponse:
        """Have the API respond to a request, with the simulated cluster as the broker behind the connection.

        Args:
            refusal: what the broker says instead of doing anything.
            denial: what it says to a caller who may not reassign.
            lost: the connection ends before the broker's response is here.
        """
        asked = AlterRequest(60_000, True, wanted)
        loop = asyncio.get_running_loop()
        started: list[asyncio.Task[None]] = []
        api = ReassignmentApi(
            self.decides or self.decisions(),
            lambda work: started.append(loop.create_task(work)),
            read_beside,
            self.stats,
        )
        frame = reassignments.request_frame(asked, version, 7, b"tool")
        body = len(frame) - len(reassignments.request_body(asked, version))
        self.sent = {}
        first = await self._asked(api, Question(KEY, version, 7, frame, body, "bob", False), started)
        assert isinstance(first, Forward), "a broker is asked before anything else"
        assert first.frame[14:18] == b"tool", "the caller's own client id"
        assert not reassignments.read_alter_request(first.frame, body, version).wanted
        allowed = AlterResponse(0, True, denial or Outcome(0, ""), [])
        told = reassignments.write_alter_response(allowed, version, 7)
        found = await self._asked(api, Question(KEY, version, 7, told, 0, "bob", False, first.plan), started)
        if not isinstance(found, Forward):
            return reassignments.read_alter_response(found, version)
        sent = reassignments.read_alter_request(found.frame, body, version)
        self.sent = dict(sent.wanted)
        for _ in range(self.late_rounds):
            await self.round_while()
        self.place()
        said = refusal or AlterResponse(0, True, Outcome(), list(self.carried_out(self.sent).items()))
        self.place()
        if lost:
            return said
        told = reassignments.write_alter_response(said, version, 7)
        question = Question(KEY, version, 7, told, 0, "bob", False, found.plan)
        response = await self._asked(api, question, started)
        assert not isinstance(response, Forward), "a broker is asked twice at most"
        return reassignments.read_alter_response(response, version)

    def decisions(self) -> LocalDecisions:
        """What decides on requests here."""
        wait = self.conflict_wait_seconds_max
        return LocalDecisions(self.journal, SimulatedResponses(self), lambda: self.settings, self.wake, wait)

    async def _asked(
        self, api: ReassignmentApi, question: Question, started: list[asyncio.Task[None]]
    ) -> bytes | bytearray | Forward:
        responded: asyncio.Future[bytes | bytearray | Forward | Exception]
        responded = asyncio.get_running_loop().create_future()
        api.ask(question, responded.set_result)
        await started[-1]
        found = await responded
        if isinstance(found, Exception):
            raise found
        return found

    def wake(self) -> None:
        """The executor is told that there is something to do."""
        self.woken += 1

    def carried_out(self, targets: Mapping[TopicPartition, Target]) -> dict[TopicPartition, Outcome]:
        """Do what a broker was told."""
        outcomes = {}
        for key, target in targets.items():
            try:
                if target is None:
                    self.cluster.cancel(key)
                else:
                    assert not self.cluster.partitions[key].now().is_reassigned, "never an override"
                    self.cluster.alter(key, target)
                outcomes[key] = Outcome()
            except RefusedError as error:
                outcomes[key] = Outcome(85 if target is None else 39, str(error))
        return outcomes

    def turn_back(self, key: TopicPartition) -> None:
        """A cancel was accepted."""
        entry = asyncio.run(self.journal.read()).entries[key]
        self.append(replace(entry, target=entry.original, cancelled=True))

    def append(self, *entries: Entry) -> None:
        """Append to the journal; in a topic only the executor may, and nothing happens to it at that."""
        kill_at, self.kill_at = self.kill_at, 0
        if self.topic is not None:
            self.lock.take()
        asyncio.run(AsyncJournal.append(self.journal, entries))
        self.kill_at = kill_at

    def arrive(self) -> None:
        """What the process had submitted when it was stopped is carried out now, whatever is under way."""
        for key, target in self.stalled.items():
            if target is not None and key in self.cluster.partitions:
                self.cluster.alter(key, target)
        self.stalled = {}

    def topic_id(self, topic: str) -> str:
        return self.topic_ids.setdefault(topic, TOPIC_ID)

    def round(self) -> None:
        """One round, and a second later."""
        asyncio.run(self.round_while())

    def run(self, rounds: int = ROUNDS_MAX, *, catches_up: bool = True) -> int:
        """Go on until nothing is left; give how many rounds it took. A killed process is followed by another."""
        for number in range(rounds):
            try:
                self.round()
            except Killed:
                self.kill()
                self.kill_at = 0
                self.start()
                continue
            if catches_up:
                self.cluster.catch_up_all()
            if not self.journal.state.entries and self.executor.leads:
                return number
        raise AssertionError(
            f"not done after {rounds} rounds: {self.executor.problem} {self.executor.decision.waiting}"
        )


class KilledJournal(AsyncJournal):
    """A journal whose writes are places to be killed at."""

    def __init__(self, world: World, journal: Journal, process: str) -> None:
        super().__init__(journal, process)
        self._world = world

    async def append(
        self, records: Sequence[Record], *, expected: int | None = None, term: int | None = None
    ) -> JournalState:
        self._world.place()
        known = await super().append(records, expected=expected, term=term)
        self._world.place()
        return known


class SimulatedResponses(Cluster):
    """Asks and tells the simulated cluster."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def read_state(
        self, topics: Sequence[str], targets: Collection[int] = (), *, registered: bool = False
    ) -> ClusterState:
        world, cluster = self._world, self._world.cluster
        if world.unreachable:
            raise ClusterError("no broker answers")
        now = {key: one for key, one in cluster.now().items() if key[0] in topics}
        ongoing = {
            key: Ongoing(one.replicas, one.adding, one.removing)
            for key, one in cluster.now().items()
            if one.is_reassigned
        }
        ids = {topic: world.topic_id(topic) for topic, _ in now}
        return ClusterState(cluster.live, cluster.brokers, now, ids, ongoing)

    async def submit(
        self, targets: Mapping[TopicPartition, Target], may: Callable[[], bool]
    ) -> dict[TopicPartition, Outcome]:
        world = self._world
        world.place()
        if not may():
            raise WithdrawnError
        if world.stalls:
            world.stalled = dict(targets)
            raise Killed
        outcomes = world.carried_out(targets)
        world.place()
        if world.mute:
            raise ClusterError("no broker answers")
        return outcomes

    async def elect(
        self, partitions: Sequence[TopicPartition], may: Callable[[], bool]
    ) -> dict[TopicPartition, tuple[int, str]]:
        self._world.place()
        if not may():
            raise WithdrawnError
        outcomes = {}
        for key in partitions:
            try:
                self._world.cluster.elect_preferred(key)
                outcomes[key] = (0, "")
            except RefusedError as error:
                outcomes[key] = (80, str(error))
        self._world.place()
        return outcomes

    async def sizes(self, brokers: Sequence[int]) -> dict[int, dict[TopicPartition, int]]:
        return {}

    def close(self) -> None:
        """Nothing is open."""
