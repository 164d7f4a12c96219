"""A journal in a topic, put together: the thread, the topic, the fence, and the fleet whose holder decides.

It is loaded where `[reassignment] journal = "topic"`, and nowhere else, since it needs aiokafka.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from proxy.fleet.calls import Respond
from proxy.metrics.replication import Family
from proxy.quota_topic import journal_spec
from proxy.reassign import topic_metrics
from proxy.reassign.async_journal import AsyncJournal
from proxy.reassign.decisions import Decisions
from proxy.reassign.forwarding import FleetMember, Forwarding, HolderService
from proxy.reassign.journal import Journal, Leadership
from proxy.reassign.places import process_name
from proxy.reassign.topic_journal import TopicJournal
from proxy.topics.log import TopicLog
from proxy.topics.records import Seal
from proxy.topics.topic import Access, LoopThread
from proxy.topics.writers import FencedLog


class AnsweringMember(FleetMember, Protocol):
    """The fleet, whose holder answers other members."""

    def answer(self, respond: Respond) -> None:
        """Answer other members' questions, as the holder."""


class TopicPlace:
    """One process's view of the journal.

    Args:
        access: the way to the topic's cluster.
        fleet: returns the fleet, once there is one; None: this process is alone.
        seal: signs records; None without a secret.
    """

    def __init__(
        self,
        topic: str,
        access: Access,
        fleet: Callable[[], AnsweringMember | None] | None,
        seal: Seal | None = None,
    ) -> None:
        self.process = process_name()
        self._fleet = fleet
        self._thread = LoopThread("journal")
        self._log = TopicLog(self._thread, access, journal_spec(topic), committed=True)
        # The fence has the topic's name: one executor for each journal.
        writer = FencedLog(self._thread, access, topic, topic)
        self._kept = TopicJournal(
            self._log, writer, self.process, self._tenure, alone=fleet is None, seal=seal
        )
        self._forwarding: Forwarding | None = None
        self._service: HolderService | None = None

    @property
    def journal(self) -> Journal:
        """The journal."""
        return self._kept

    @property
    def lock(self) -> Leadership:
        """The choice of the executor: the holder of the fleet, or this process if it is alone."""
        return self._kept

    def decisions(self, local: Decisions, executes: Callable[[], bool], journal: AsyncJournal) -> Decisions:
        """Decide here while this process executes; otherwise the holder does."""
        self._service = HolderService(local, executes, lambda: journal.state.sequence)
        self._forwarding = Forwarding(local, executes, self._member, journal)
        return self._forwarding

    def start(self) -> None:
        """Begin to read the topic, and to answer other members."""
        self._log.start()
        member = self._member()
        if member is not None and self._service is not None:
            member.answer(self._service.answer)

    def families(self) -> Iterator[Family]:
        """Return the metrics of the topic, and of what was forwarded."""
        forwarded = None if self._forwarding is None else self._forwarding.forwarded
        return topic_metrics.families(self._kept.problem, self._kept.records, forwarded, self._kept.fenced)

    def close(self) -> None:
        """End the thread; blocks for a bounded time."""
        self._thread.close()

    def _member(self) -> AnsweringMember | None:
        return None if self._fleet is None else self._fleet()

    def _tenure(self) -> int:
        """The number of this process's tenure; a process that is alone has one, for ever."""
        if self._fleet is None:
            return 1
        member = self._fleet()
        return 0 if member is None else member.tenure
