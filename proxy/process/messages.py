"""The messages between the control process and its workers: a closed set of values.

State goes down as what has changed since the last message, in portions of PORTION, so that neither loop is occupied
for more than a few milliseconds. Nothing here is sent per frame of a client.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.messages.replica_session import Partition
from proxy.admin.clients import ClientPart
from proxy.channel import Forward, Question, ShownMove
from proxy.config import Address, Config
from proxy.control.cluster import KnownBrokers
from proxy.events import Tell
from proxy.events.broker_states import BrokerStates
from proxy.events.kinds import Waiting, client_waits, client_waits_ended, clients_wait
from proxy.explain.report import Query, Seen
from proxy.explain.rules import entity_text, in_force
from proxy.explain.waiting import Judgement, Waiter
from proxy.metrics.merging import Part
from proxy.metrics.series import Chosen, Weights
from proxy.system.clock import now_ms
from quotas.definitions.definitions import Definitions
from quotas.sharing.lease_values import Grants, LeaseTerms, Report

# ----------------------------------------------------------------------------------------------------
# Clients that wait for more than half of their time, in one process or in several.
#
# Each process judges the clients of its own connections (`proxy.explain.waiting`). A client waits when it
# does in one of
# the processes, since its worst connection counts; it has ended when it has in all.


class Waits:
    """The clients that wait, of all processes.

    Args:
        definitions: the quotas in force.
        mutations_rate: `quotas.partition_mutations_rate`.
    """

    def __init__(self, tell: Tell, definitions: Definitions, mutations_rate: float | None) -> None:
        self._tell = tell
        self._definitions = definitions
        self._mutations_rate = mutations_rate
        self._sources: dict[tuple[str, str], set[int]] = {}

    def take(self, source: int, judgement: Judgement) -> None:
        """Take one process's judgement."""
        for waiter in judgement.begun:
            sources = self._sources.setdefault((waiter.user, waiter.client_id), set())
            if not sources:
                self._tell(client_waits(self._described(waiter)))
            sources.add(source)
        for waiter in judgement.ended:
            self._end(source, waiter)
        if judgement.others:
            self._tell(clients_wait(judgement.others))

    def ended(self, source: int) -> None:
        """A process has ended, and its connections with it."""
        gone = [key for key, sources in self._sources.items() if source in sources]
        for user, client_id in gone:
            self._end(source, Waiter(user, client_id, 0.0, None))

    def _end(self, source: int, waiter: Waiter) -> None:
        key = waiter.user, waiter.client_id
        sources = self._sources.get(key, set())
        sources.discard(source)
        if not sources and self._sources.pop(key, None) is not None:
            self._tell(client_waits_ended(Waiting(waiter.user, waiter.client_id, waiter.part)))

    def _described(self, waiter: Waiter) -> Waiting:
        user, client_id, part, rule = waiter.user, waiter.client_id, waiter.part, waiter.rule
        if rule is None:
            return Waiting(user, client_id, part)
        found = in_force(rule, self._definitions, user, client_id, self._mutations_rate)
        if found is None:
            return Waiting(user, client_id, part, rule.key)
        return Waiting(user, client_id, part, rule.key, entity_text(found), found.value)


# ----------------------------------------------------------------------------------------------------
# What the processes of Sluice have seen of clients and brokers, as events: this one's part, and what workers
# send.


class Judged(NamedTuple):
    """Clients have begun or ended to wait for much of their time."""

    judgement: Judgement


class Dialled(NamedTuple):
    """Connections to a broker fail; without a problem, they do not any more."""

    broker: int
    problem: str


class ProcessEvents:
    """Takes what is seen, with the process that has seen it."""

    def __init__(self, waits: Waits, brokers: BrokerStates) -> None:
        self._waits = waits
        self._brokers = brokers

    def take(self, source: int, seen: Judged | Dialled) -> None:
        """Take what one process has seen."""
        if isinstance(seen, Judged):
            self._waits.take(source, seen.judgement)
        else:
            self._brokers.reported(source, seen.broker, seen.problem, now_ms())

    def ended(self, source: int) -> None:
        """A worker has ended, and its connections with it."""
        self._waits.ended(source)
        self._brokers.ended(source, now_ms())


PORTION: Final = 500  # entities, names, or moves in one message


# From control to a worker.


class Start(NamedTuple):
    """The first message.

    Args:
        number: the worker's, from 1.
        config: its part of the limits is in it.
        run: identifies this life of the worker.
        terms: the leases between control and its workers.
    """

    number: int
    config: Config
    run: int
    terms: LeaseTerms
    enforcing: bool


class Configure(NamedTuple):
    """A reload has changed the configuration."""

    config: Config


class QuotaBatch(NamedTuple):
    """Quota entities with all their limits, by code; without limits the entity is removed.

    Args:
        complete: the worker has all quotas now.
    """

    entries: Mapping[str, Mapping[str, float]]
    complete: bool


class Brokers(NamedTuple):
    """The broker map."""

    known: KnownBrokers


class TopicsNamed(NamedTuple):
    """Names of topics by id."""

    names: Mapping[bytes, str]


class Moves(NamedTuple):
    """Reassignments in steps, as clients see them; None: a move has ended."""

    changes: Mapping[Partition, ShownMove | None]


class ReadCertificates(NamedTuple):
    """SIGHUP: read all certificates again."""


class Enforce(NamedTuple):
    """SIGUSR1: enforcement on or off."""

    on: bool


class Granted(NamedTuple):
    """Shares of budgets; None: the report was refused, and a new session is needed."""

    grants: Grants | None


class Refusal(NamedTuple):
    """An error as the outcome of a question: the connection ends with this cause."""

    cause: str
    detail: str


class Answer(NamedTuple):
    """The outcome of a question."""

    number: int
    outcome: bytes | Forward | Refusal


class Scrape(NamedTuple):
    """A request for figures: `clients` for the page of that name, or the first part of `/metrics`, `weights`."""

    number: int
    page: str


class TakeRows(NamedTuple):
    """The second part of `/metrics`: the clients that have rows of their own."""

    number: int
    chosen: Chosen


class Look(NamedTuple):
    """A question about clients' time."""

    number: int
    query: Query


class Drain(NamedTuple):
    """SIGTERM: accept nothing more, and end; `hurried`: at once."""

    hurried: bool


# From a worker to control.


class Ready(NamedTuple):
    """All ports are bound, all quotas are known, and the first shares are there."""


class Failed(NamedTuple):
    """The worker cannot start."""

    problem: str


class Beat(NamedTuple):
    """Sent every second: the worker is alive.

    Args:
        not_accepting: why a listener accepts nothing; "" if all do.
    """

    connections: int
    not_accepting: str = ""


class Reported(NamedTuple):
    """The report of the worker's lessee."""

    report: Report


class Ask(NamedTuple):
    """A question that control responds to; numbers are not used again."""

    number: int
    question: Question


class Withdraw(NamedTuple):
    """The client of a question is gone."""

    number: int


class BrokersSeen(NamedTuple):
    """Addresses of brokers from responses to clients."""

    addresses: Mapping[int, Address]


class TopicsWanted(NamedTuple):
    """Topic ids without a known name."""

    topic_ids: tuple[bytes, ...]


class Figures(NamedTuple):
    """The response to `Scrape`, `TakeRows` or `Look`, or a portion of it.

    Args:
        more: whether another portion follows.
    """

    number: int
    figures: ClientPart | Weights | Part | Seen
    more: bool = False


MESSAGES: Final = (
    *(Start, Configure, QuotaBatch, Brokers, TopicsNamed, Moves, ReadCertificates, Enforce, Granted, Answer),
    *(
        Scrape,
        TakeRows,
        Look,
        Drain,
        Ready,
        Failed,
        Beat,
        Reported,
        Ask,
        Withdraw,
        BrokersSeen,
        Judged,
        Dialled,
        TopicsWanted,
        Figures,
    ),
)
