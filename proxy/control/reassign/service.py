"""The components of `mode = "batch"`, assembled for the application (KIP-435)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final

from proxy.channel import Question
from proxy.config import Config, ReassignmentSettings
from proxy.control.cluster import BrokerClient
from proxy.control.reassign import status
from proxy.control.reassign.api import LocalDecisions, ReadFrame, ReassignmentApi, Respond
from proxy.control.reassign.cluster import Cluster
from proxy.control.reassign.executor import Executor
from proxy.control.reassign.file_journal import FilePlace
from proxy.control.reassign.journal import AsyncJournal
from proxy.events import Tell, untold
from proxy.metrics.families import Family
from proxy.system.clock import now_ms
from proxy.system.stats import Stats

if TYPE_CHECKING:
    from proxy.control.reassign.topic_place import RespondingMember, TopicPlace
    from proxy.topics.topic import Access


_WATCH_SECONDS: Final = 1.0


class Reassignments:
    """All of `[reassignment] mode = "batch"` in one process: takes requests, executes moves, and has the metrics.

    Args:
        place: the journal, in a file or a topic, and the choice of the executing process.
        start: starts a background task.
        now_ms: the monotonic clock, in ms.
        read: parses a caller's frame, in a thread if it is large.
        tell: called with each event.

    Attributes:
        shown: the reassignments that ListPartitionReassignments shows to clients.
    """

    def __init__(
        self,
        settings: ReassignmentSettings,
        place: "FilePlace | TopicPlace",
        client: BrokerClient,
        start: Callable[[Coroutine[object, object, None]], object],
        now_ms: Callable[[], int],
        read: ReadFrame,
        stats: Stats,
        tell: Tell = untold,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._place = place
        self._journal = AsyncJournal(place.journal, place.process)
        self.shown = self._journal.shown
        self._executor = executor = Executor(
            self._journal, Cluster(client), place.lock, self.settings, now_ms, stats, tell
        )
        # A separate connection, so that callers do not wait for a round.
        local = LocalDecisions(self._journal, Cluster(client), self.settings, executor.wake)
        decisions = place.decisions(local, lambda: executor.leads and place.lock.held, self._journal)
        self._api = ReassignmentApi(decisions, start, read, stats)
        self._rate = status.Rate()
        self._families: list[Family] = []

    def settings(self) -> ReassignmentSettings:
        """Return the settings of `[reassignment]` in force: those of the start, or of the last `configure`."""
        return self._settings

    def configure(self, settings: ReassignmentSettings) -> None:
        """Apply new settings of `[reassignment]`; changed limits apply to steps that are not submitted yet."""
        self._settings = settings
        self._executor.wake()

    def ask(self, question: Question, respond: Respond) -> None:
        """Begin to handle an AlterPartitionReassignments request; see `ReassignmentApi.ask`."""
        self._api.ask(question, respond)

    async def run(self) -> None:
        """Execute moves while this process is chosen for it, until cancelled by the application."""
        await self._executor.run()

    def start(self) -> None:
        """Begin to read a journal in a topic; a journal in a file needs no start."""
        self._place.start()

    def close(self) -> None:
        """End the thread of a journal in a topic, after all tasks have ended; blocks for a bounded time."""
        self._place.close()

    async def page(self) -> dict[str, object]:
        """Return the JSON document of the admin page /reassignments."""
        moves = await self._look()
        described = await asyncio.to_thread(
            status.describe, moves, self._settings, self._rate.per_second(), self._journal.state.ended_totals
        )
        return {
            "mode": self._settings.mode,
            "process": self._journal.process,
            "leads": self._executor.leads,
            "holder": await asyncio.to_thread(self._executor.holder),
            "problem": self._journal.problem or self._executor.problem,
            **described,
        }

    def families(self) -> list[Family]:
        """Return the metrics: moves as of the last update by `watch`, counters as of now."""
        return [*self._families, *status.counters(self._stats), *self._place.families()]

    async def watch(self) -> None:
        """Update the metrics of moves every second, until cancelled.

        With thousands of moves, computing them at each scrape would block the event loop for too long.
        """
        while True:
            moves = await self._look()
            decision, rate, leads = self._executor.decision, self._rate.per_second(), self._executor.leads
            self._families = await asyncio.to_thread(status.gauges, moves, decision, rate, leads)
            await asyncio.sleep(_WATCH_SECONDS)

    async def _look(self) -> list[status.Progress]:
        executor, journal = self._executor, self._journal
        moves = await asyncio.to_thread(
            status.progress, journal.state.entries, journal.partitions, executor.decision, executor.sizes
        )
        if executor.sizes.by_broker:
            self._rate.sample(executor.sizes_ms, moves)
        else:
            self._rate.forget()
        return moves


# The reassignments that a configuration asks for; None where they pass unchanged.


def make_reassignments(
    config: Config,
    client: BrokerClient,
    start: Callable[[Coroutine[object, object, None]], object],
    read: ReadFrame,
    stats: Stats,
    access: "Callable[[], Access]",
    fleet: "Callable[[], RespondingMember | None]",
    tell: Tell = untold,
) -> Reassignments | None:
    """Create the executor of reassignments with its API; None if the configuration does not execute any.

    Args:
        start: starts a background task.
        read: parses a caller's frame, in a thread if it is large.
        access: returns brokers, login and TLS of the cluster with the journal's topic.
        fleet: returns this process as a member of the fleet, which may be created later; None without `[fleet]`.
        tell: called with each event.

    Raises:
        StartError: the journal is in a topic, and aiokafka is not installed, or the secret cannot be read.
    """
    settings = config.reassignment
    if not settings.batches:
        return None
    return Reassignments(settings, _place(config, access, fleet), client, start, now_ms, read, stats, tell)


def _place(
    config: Config, access: "Callable[[], Access]", fleet: "Callable[[], RespondingMember | None]"
) -> "FilePlace | TopicPlace":
    settings = config.reassignment
    if not settings.in_topic:
        assert settings.directory is not None, "the configuration was checked"
        return FilePlace(settings.directory)
    from proxy.control.quotas.quota_topic import require_aiokafka, seal_of

    require_aiokafka('[reassignment] journal = "topic"')
    from proxy.control.reassign.topic_place import TopicPlace

    topic = settings.journal_topic
    seal = seal_of(config, "journal", topic)
    return TopicPlace(topic, access(), fleet if config.fleet.configured else None, seal)
