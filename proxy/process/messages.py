"""The messages between the control process and its workers: a closed set of values.

State goes down as what has changed since the last message, in portions of PORTION, so that neither loop is occupied
for more than a few milliseconds. Nothing here is sent per frame of a client.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.messages.replica_session import Partition
from proxy.admin.clients import ClientPart
from proxy.channel import Forward, Question, ShownMove
from proxy.cluster import KnownBrokers
from proxy.config import Address, Config
from proxy.explain.seen import Query, Seen
from proxy.metrics.merging import Part
from proxy.metrics.quota_series import Chosen, Weights
from proxy.process.process_events import Dialled, Judged
from quotas.sharing.lease_values import Grants, LeaseTerms, Report

__all__ = [
    "MESSAGES",
    "PORTION",
    "Answer",
    "Ask",
    "Beat",
    "Brokers",
    "BrokersSeen",
    "Configure",
    "Dialled",
    "Drain",
    "Enforce",
    "Failed",
    "Figures",
    "Granted",
    "Judged",
    "Look",
    "Moves",
    "QuotaBatch",
    "ReadCertificates",
    "Ready",
    "Refusal",
    "Reported",
    "Scrape",
    "Start",
    "TakeRows",
    "TopicsNamed",
    "TopicsWanted",
    "Withdraw",
]

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
