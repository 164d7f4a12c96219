"""Decides on a caller's request: validates it, journals it, and later its result (KIP-435).

Where the executor's journal may be appended to, `LocalDecisions` does so; in a fleet whose journal is a topic, members
that are not the holder have the holder decide (`proxy.reassign.forwarding`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple, Protocol, TypeAlias

from protocol.messages.reassignments import AlterRequest, AlterResponse, Outcome, Target
from proxy.config import ReassignmentSettings
from proxy.reassign.async_journal import AsyncJournal
from proxy.reassign.cluster import Cluster
from proxy.reassign.journal import ConflictError, JournalError
from proxy.reassign.planning import PER_OCCURRENCE, Plan, outcomes_of, plan_request, records_of
from proxy.system.threads import run_in_thread
from quotas.reassignment.step import TopicPartition

_CONFLICTS_MAX: Final = 20
# How long a request waits for another one. Two seconds without a response, and the executor relies on the cluster.
CONFLICT_WAIT_SECONDS_MAX: Final = 5.0
_NEW_TOPIC_SECONDS_MAX: Final = 1.0  # until a new topic is known to every broker
_PAUSE_SECONDS: Final = 0.4

Outcomes: TypeAlias = Sequence[tuple[TopicPartition, Outcome]]


class NoExecutorError(Exception):
    """No process executes for now, or it cannot be reached; nothing was journaled, and a retry may succeed."""


class Planned(NamedTuple):
    """A request that is journaled, for as long as the broker decides.

    Attributes:
        sent: the broker's part; nothing: it is not asked.
        journaled: whether a partition is in the journal.
        token: what `conclude` needs to know it again.
    """

    request: AlterRequest
    sent: Mapping[TopicPartition, Target]
    journaled: bool
    token: object


class Decisions(Protocol):
    """Decides on callers' requests."""

    async def plan(self, request: AlterRequest) -> Planned:
        """Validate a request and journal it.

        Raises:
            ClusterError, JournalError: it cannot be done; a retry may succeed.
            NoExecutorError: nor could anything be written.
        """

    async def conclude(self, planned: Planned, response: AlterResponse) -> Outcomes:
        """Journal the broker's response; return the outcome of each partition, in the request's order.

        Raises:
            JournalError: the result cannot be written; the executor finds out what has happened.
        """


class LocalDecisions:
    """Decides in this process.

    Args:
        settings: returns the settings in force.
        wake: called when there are new moves.
        conflict_wait_seconds_max: how long a request waits for the decision on another one; for a new
            topic a second at most.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        cluster: Cluster,
        settings: Callable[[], ReassignmentSettings],
        wake: Callable[[], None],
        conflict_wait_seconds_max: float = CONFLICT_WAIT_SECONDS_MAX,
    ) -> None:
        self._journal = journal
        self._cluster = cluster
        self._settings = settings
        self._wake = wake
        self._conflict_wait_seconds_max = conflict_wait_seconds_max
        self._new_topic_seconds_max = min(conflict_wait_seconds_max, _NEW_TOPIC_SECONDS_MAX)
        self._request_numbers = count(1)

    async def plan(self, request: AlterRequest) -> Planned:
        """Read the cluster, validate, choose first steps and journal; again if another process was faster.

        A controller handles requests one after the other. So a request that conflicts with an undecided one waits for a
        while: the caller may be the same, after a lost connection. A controller also knows a topic before the brokers:
        an unknown topic is looked up again, since it may just have been created.
        """
        by = f"{self._journal.process}/{next(self._request_numbers)}"
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(_CONFLICTS_MAX):
            async with self._journal.planning_lock:
                state = await self._journal.read()
                topics = {topic for topic, _ in (*state.entries, *(key for key, _ in request.wanted))}
                cluster = await self._cluster.read_state(sorted(topics), registered=True)
                plan = await run_in_thread(plan_request, request, state, cluster, self._settings(), by)
                patience = self._conflict_wait_seconds_max if plan.has_conflict else 0.0
                if plan.has_unknown_partition:
                    patience = max(patience, self._new_topic_seconds_max)
                if loop.time() - began >= patience:
                    try:
                        await self._journal.append(list(plan.entries.values()), expected=state.sequence)
                    except ConflictError:
                        continue
                    return Planned(request, plan.sent, bool(plan.entries), plan)
            await asyncio.sleep(_PAUSE_SECONDS)
        raise JournalError("other processes keep writing to it")

    async def conclude(self, planned: Planned, response: AlterResponse) -> Outcomes:
        """Accept or remove the entries."""
        plan = planned.token
        assert isinstance(plan, Plan), "planned here"
        outcomes = outcomes_of(plan, response)
        for _ in range(_CONFLICTS_MAX):
            state = await self._journal.read()
            records = await run_in_thread(records_of, plan, outcomes, state)
            try:
                await self._journal.append(records, expected=state.sequence)
            except ConflictError:
                continue
            break
        else:
            raise JournalError("other processes keep writing to it")
        self._wake()
        return await run_in_thread(_in_order, plan, outcomes, bool(response.outcome.error_code))


def _in_order(plan: Plan, outcomes: Mapping[TopicPartition, Outcome], failed: bool) -> Outcomes:
    return [
        (one.key, outcomes[one.key] if failed or one.kind not in PER_OCCURRENCE else one.outcome)
        for one in plan.verdicts
    ]
