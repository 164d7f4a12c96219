"""The events that there are: one struct each, with its fields and its sentence (docs/api.md).

The ring's JSON and the log line are made from the same struct. A kind's name on the wire is its struct's in snake case.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from commandline.amounts import rate
from quotas.definitions.kinds import BYTE_RATES, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

_WORD: Final = re.compile("(?<!^)(?=[A-Z])")


def _wire_name(struct: str) -> str:
    """Return the name of a kind.

    >>> _wire_name("BrokersWithoutPort")
    'brokers_without_port'
    """
    return _WORD.sub("_", struct).lower()


class Event(msgspec.Struct, frozen=True, tag_field="kind", tag=_wire_name):
    """Something that has happened, for `/v1/events`, the log and metrics: the base class of all kinds of events.

    Attributes:
        message: the constant message of its log line; "" if it is not logged, since another line already says it.
        sentence: the template of `text`, with fields as `{0.name}`; "" if the kind overrides `text`.
        warning: whether the log line is a warning.
        audit: whether the log line belongs to the audit log.
    """

    message: ClassVar[str] = ""
    sentence: ClassVar[str] = ""
    warning: ClassVar[bool] = False
    audit: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """The name of its kind in JSON, such as `quota_changed`."""
        return str(self.__struct_config__.tag)

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        return self.sentence.format(self)

    @property
    def line(self) -> str:
        """The message of its log line; "" for none."""
        return self.message

    @property
    def fields(self) -> dict[str, Any]:
        """The values that its JSON and its log line have, by name."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["kind"]
        return fields


Tell = Callable[[Event], None]
"""Takes an event; any thread may call it."""


def untold(_: Event) -> None:
    """Ignore an event: the `Tell` of components that run without events."""


class By(NamedTuple):
    """Who has made a change, and from where.

    Args:
        name: a principal, a file, a signal; "" if unknown.
        address: the host it came from; "" for none.
    """

    name: str = ""
    address: str = ""

    @property
    def text(self) -> str:
        """The end of a sentence, such as " by User:ops from 10.0.0.7"; "" if nothing is known."""
        by = f" by {self.name}" if self.name else ""
        return f"{by} from {self.address}" if self.address else by


class Started(Event, frozen=True):
    """The process has started, and serves clients."""

    version: str
    enforcing: bool

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        effect = "quotas are enforced" if self.enforcing else "quotas are not enforced"
        return f"Sluice {self.version} serves; {effect}."


class QuotaChanged(Event, frozen=True):
    """One limit of an entity has changed.

    Args:
        old, new: the limit before and after; None if there is none.
        by, from_: who has changed it, and from which address (`By`).
    """

    message: ClassVar[str] = "quota changed"

    entity: str
    key: str
    old: float | None
    new: float | None
    by: str
    from_: str = msgspec.field(name="from")

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        limit, by = f"{self.key} of {self.entity}", By(self.by, self.from_).text
        old, new = _limit(self.key, self.old), _limit(self.key, self.new)
        if self.new is None:
            return f"{limit} was removed{by}; it was {old}."
        if self.old is None:
            return f"{limit} was set to {new}{by}."
        return f"{limit} was changed from {old} to {new}{by}."


class AuditedQuotaChanged(QuotaChanged, frozen=True, tag="quota_changed"):
    """One limit of an entity has changed, and the audit log has a line for it."""

    message: ClassVar[str] = ""


class ConfigReloaded(Event, frozen=True, kw_only=True):
    """The configuration was read again, and is in force; or it was rejected.

    Args:
        ok: whether it is in force.
        cause: why it was read again.
        keys: the changed settings, separated by spaces.
        quotas_changed: the number of changed quotas.
        problem: why it was rejected; "" if it is in force.
    """

    ok: bool
    cause: str
    keys: str = ""
    quotas_changed: int = 0
    problem: str = ""

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        if not self.ok:
            return f"The changed configuration was rejected, the old one stays in use: {self.problem}"
        keys = self.keys or "no key"
        return f"The configuration was reloaded: {keys} changed, and {self.quotas_changed} quotas."


class EnforcementSwitched(Event, frozen=True):
    """The enforcement of all quotas was switched off, or on; `by`, `from_`: who did it, and from where (`By`)."""

    message: ClassVar[str] = "enforcement switched"
    warning: ClassVar[bool] = True
    audit: ClassVar[bool] = True

    enforcing: bool
    by: str
    from_: str = msgspec.field(name="from")
    reason: str

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        why = f": {self.reason}" if self.reason else ""
        by = By(self.by, self.from_).text
        return f"Enforcement was switched {'on' if self.enforcing else 'off'}{by}{why}."


class ModeChanged(Event, frozen=True):
    """The setting `quotas.mode` (enforce or observe) has changed."""

    sentence: ClassVar[str] = "The mode was changed from {0.old} to {0.new}."

    old: str
    new: str


class BrokerLost(Event, frozen=True):
    """Connections to a broker fail, or the cluster's metadata no longer lists it.

    Args:
        problem: why connections to it fail; "" if the metadata no longer lists it.
    """

    message: ClassVar[str] = "broker lost"
    warning: ClassVar[bool] = True

    broker: int
    problem: str = ""

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        if self.problem:
            return f"Broker {self.broker} is lost: connections to it fail: {self.problem}."
        return f"Broker {self.broker} is lost: the cluster's metadata does not list it."


class BrokerBack(Event, frozen=True):
    """A lost broker is back: the cluster's metadata lists it, and connections to it do not fail."""

    message: ClassVar[str] = "broker back"
    sentence: ClassVar[str] = "Broker {0.broker} is back."

    broker: int


class BrokersWithoutPort(Event, frozen=True):
    """Brokers have joined that have no port at a listener, since their ids are above its `broker_id_max`.

    Args:
        brokers: their ids, separated by commas.
        problem: what that means, and what to change in the configuration.
    """

    message: ClassVar[str] = "brokers without a port"
    warning: ClassVar[bool] = True

    listener: str
    brokers: str
    problem: str

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        return f"{self.problem[:1].upper()}{self.problem[1:]}."


class ClusterLost(Event, frozen=True):
    """No broker of the cluster responds."""

    sentence: ClassVar[str] = "No broker responds: {0.problem}"

    problem: str


class ClusterBack(Event, frozen=True):
    """The cluster responds again, after `ClusterLost`.

    Args:
        brokers: the number of its brokers.
    """

    sentence: ClassVar[str] = "The cluster responds again, with {0.brokers} brokers."

    brokers: int


class HolderMoved(Event, frozen=True):
    """The fleet has another holder (the member that divides quotas among all members), or none."""

    message: ClassVar[str] = "holder moved"

    old: str
    new: str
    address: str

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        what = f"{self.new} is the fleet's holder now" if self.new else "The fleet has no holder"
        return f"{what}{f', after {self.old}' if self.old else ''}."


class ReassignmentStep(Event, frozen=True):
    """A step of a reassignment was submitted to the cluster, or was refused; `problem` says why, else it is ""."""

    topic: str
    partition: int
    replicas: str
    problem: str = ""

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        what = f"refused: {self.problem}" if self.problem else "submitted"
        return f"The step of {self.topic}-{self.partition} to replicas {self.replicas} was {what}."

    @property
    def line(self) -> str:
        """The message of its log line; "" for a refusal, which is logged elsewhere."""
        return "" if self.problem else "a step was submitted"


class ReassignmentEnded(Event, frozen=True):
    """The reassignment of one partition has ended.

    Args:
        how: done, cancelled, refused (by the broker), gone (the topic was deleted), or lost (its record was damaged, or
            the cluster does not confirm that it was accepted).
        target: the replicas that it was to have.
    """

    sentence: ClassVar[str] = "The reassignment of {0.topic}-{0.partition} to {0.target} has ended: {0.how}."

    topic: str
    partition: int
    how: str
    target: str


class WorkerEnded(Event, frozen=True):
    """A worker process has ended, and is started again."""

    sentence: ClassVar[str] = (
        "Worker {0.worker} has ended ({0.cause}); its connections were closed, and it is started again."
    )

    worker: int
    cause: str


class _Client(Event, frozen=True):
    """A client.

    Args:
        part: of its time, that it waits.
    """

    user: str
    client_id: str
    part: float

    @property
    def name(self) -> str:
        """The client's id and user, for people."""
        name = self.client_id or "(no client id)"
        return name if self.user in ("", "ANONYMOUS") else f"{name} of {self.user}"

    @property
    def fields(self) -> dict[str, Any]:
        """The values that its JSON and its log line have, by name."""
        return {**super().fields, "part": round(self.part, 3)}


class ClientWaits(_Client, frozen=True):
    """A client has begun to wait for more than half of its time.

    Args:
        key: the quota key that it waits for most; "" if it is not known.
        entity, value: whose limit it is, for people, and the limit; "" and None if there is no such limit any more.
    """

    message: ClassVar[str] = "client waits"

    key: str = ""
    entity: str = ""
    value: float | None = None

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        limit = ""
        if self.key:
            value = "" if self.value is None else f" {_limit(self.key, self.value)} of {self.entity}"
            limit = f" for {self.key}{value}"
        return f"{self.name} waits {self.part:.0%} of its time{limit}."


class ClientWaitsEnded(_Client, frozen=True):
    """A client that waited for more than half of its time now waits for less than a quarter, or has gone."""

    message: ClassVar[str] = "client waits no longer"
    sentence: ClassVar[str] = "{0.name} no longer waits for more than half of its time."


class ClientsWait(Event, frozen=True):
    """More clients have begun to wait than get an event `ClientWaits` each; `clients` is the number of the others."""

    message: ClassVar[str] = "more clients wait"
    sentence: ClassVar[str] = "{0.clients} more clients wait for more than half of their time."

    clients: int


class _Capacity(Event, frozen=True):
    """A capacity.

    Args:
        key: producer_byte_rate for what brokers take, consumer_byte_rate for what they give.
        broker: the broker's id; -1 for all brokers together.
    """

    key: str
    broker: int

    @property
    def name(self) -> str:
        """The capacity, for people, such as "the capacity of broker 1 (in)"."""
        direction = "in" if self.key == PRODUCER_BYTE_RATE else "out"
        return (
            f"the capacity of {'all brokers' if self.broker < 0 else f'broker {self.broker}'} ({direction})"
        )


class PromisesExceedCapacity(_Capacity, frozen=True):
    """The rates that classes use now are together above the capacity: each has a part of its rate.

    Args:
        value: the capacity in bytes/s.
        part: the part of its rate (0 to 1) that each class has.
    """

    message: ClassVar[str] = "more is promised than there is"
    warning: ClassVar[bool] = True

    value: float
    part: float

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        what = f"More is promised than {self.name}, {rate(self.value)}, has"
        return f"{what}: classes have {self.part:.0%} of their rates."


class PromisesFitCapacity(_Capacity, frozen=True):
    """The rates that classes use are together within the capacity again."""

    message: ClassVar[str] = "no more is promised than there is"
    sentence: ClassVar[str] = "Promised rates are within {0.name} again."


class CapacityUsedUp(_Capacity, frozen=True):
    """A class could use more than it has, and nothing of the capacity is left for it.

    Args:
        value: the capacity in bytes/s.
        waiting: how many classes could use more.
    """

    message: ClassVar[str] = "a capacity is used up"

    value: float
    waiting: int

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        classes = "1 class waits" if self.waiting == 1 else f"{self.waiting} classes wait"
        return f"{self.name[:1].upper()}{self.name[1:]}, {rate(self.value)}, is used up: {classes} for more."


class CapacityNotUsedUp(_Capacity, frozen=True):
    """No class waits for more of the capacity any longer."""

    message: ClassVar[str] = "a capacity is no longer used up"

    @property
    def text(self) -> str:
        """The event as one sentence, for people."""
        return f"{self.name[:1].upper()}{self.name[1:]} is no longer used up."


def _limit(key: str, value: float | None) -> str:
    """Return a limit with its unit.

    >>> _limit("producer_byte_rate", 2e6), _limit("request_percentage", 50.0), _limit("x", None)
    ('2.0 MB/s', '50 %', 'none')
    """
    if value is None:
        return "none"
    if key in BYTE_RATES:
        return rate(value)
    return f"{value:g} %" if key == REQUEST_PERCENTAGE else f"{value:g}/s"
