"""The events that there are, each with its sentence and fields (docs/api.md)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from commandline.amounts import rate
from quotas.definitions.kinds import BYTE_RATES, REQUEST_PERCENTAGE

Field = str | int | float | bool | None


class Event(NamedTuple):
    """One event.

    Args:
        text: one sentence.
        line: the constant message of its log line; "" if another line already says it.
        warning: whether the line is a warning.
        audit: whether the line belongs to the audit log.
    """

    kind: str
    text: str
    fields: Mapping[str, Field]
    line: str = ""
    warning: bool = False
    audit: bool = False


Tell = Callable[[Event], None]
"""Takes an event; any thread may call it."""


def untold(_: Event) -> None:
    """Keep nothing: for components that run without events."""


class By(NamedTuple):
    """The author of a change.

    Args:
        name: a principal, a file, a signal; "" if unknown.
        address: the host it came from; "" for none.
    """

    name: str = ""
    address: str = ""

    @property
    def text(self) -> str:
        """The end of a sentence that names the author."""
        by = f" by {self.name}" if self.name else ""
        return f"{by} from {self.address}" if self.address else by


class Waiting(NamedTuple):
    """A client that waits.

    Args:
        part: of its time.
        key: the quota key it waits for most; "" if it is not known.
        limit: the limit and its entity, for people.
    """

    user: str
    client_id: str
    part: float
    key: str = ""
    entity: str = ""
    value: float | None = None

    @property
    def name(self) -> str:
        """The client, for people."""
        name = self.client_id or "(no client id)"
        return name if self.user in ("", "ANONYMOUS") else f"{name} of {self.user}"


def started(version: str, *, enforcing: bool) -> Event:
    """The process serves."""
    effect = "quotas are enforced" if enforcing else "quotas are not enforced"
    return Event(
        "started", f"Sluice {version} serves; {effect}.", {"version": version, "enforcing": enforcing}
    )


def quota_changed(
    entity: str, key: str, old: float | None, new: float | None, by: By, *, audited: bool = False
) -> Event:
    """One limit of an entity has changed.

    Args:
        audited: whether the audit log has a line for it.
    """
    if new is None:
        change = f"{key} of {entity} was removed{by.text}; it was {_limit(key, old)}"
    elif old is None:
        change = f"{key} of {entity} was set to {_limit(key, new)}{by.text}"
    else:
        change = f"{key} of {entity} was changed from {_limit(key, old)} to {_limit(key, new)}{by.text}"
    fields = {"entity": entity, "key": key, "old": old, "new": new, **_by(by)}
    return Event("quota_changed", f"{change}.", fields, "" if audited else "quota changed")


def config_reloaded(cause: str, keys: str, quotas_changed: int, problem: str = "") -> Event:
    """The configuration was read again, and is in force; or it was rejected."""
    if problem:
        text = f"The changed configuration was rejected, the old one stays in use: {problem}"
    else:
        text = f"The configuration was reloaded: {keys or 'no key'} changed, and {quotas_changed} quotas."
    fields: dict[str, Field] = {"ok": not problem, "cause": cause, "keys": keys}
    return Event("config_reloaded", text, {**fields, "quotas_changed": quotas_changed, "problem": problem})


def enforcement_switched(*, enforcing: bool, by: By, reason: str) -> Event:
    """All enforcement was switched off, or on."""
    why = f": {reason}" if reason else ""
    text = f"Enforcement was switched {'on' if enforcing else 'off'}{by.text}{why}."
    fields = {"enforcing": enforcing, **_by(by), "reason": reason}
    return Event("enforcement_switched", text, fields, "enforcement switched", warning=True, audit=True)


def mode_changed(old: str, new: str) -> Event:
    """`quotas.mode` has changed."""
    return Event("mode_changed", f"The mode was changed from {old} to {new}.", {"old": old, "new": new})


def broker_lost(broker: int, problem: str = "") -> Event:
    """A broker cannot be connected to, or the cluster's metadata has it no more.

    Args:
        problem: why connections to it fail; "" if it is the metadata.
    """
    why = f"connections to it fail: {problem}" if problem else "the cluster's metadata does not list it"
    fields: dict[str, Field] = {"broker": broker, "problem": problem}
    return Event("broker_lost", f"Broker {broker} is lost: {why}.", fields, "broker lost", warning=True)


def broker_back(broker: int) -> Event:
    """The cluster's metadata has a lost broker again, and connections to it do not fail."""
    return Event("broker_back", f"Broker {broker} is back.", {"broker": broker}, "broker back")


def brokers_without_port(listener: str, brokers: str, problem: str) -> Event:
    """Brokers have joined whose ids are above a listener's `broker_id_max`.

    Args:
        brokers: their ids, with commas.
        problem: what that means, and what to write.
    """
    fields: dict[str, Field] = {"listener": listener, "brokers": brokers, "problem": problem}
    text = f"{problem[:1].upper()}{problem[1:]}."
    return Event("brokers_without_port", text, fields, "brokers without a port", warning=True)


def cluster_lost(problem: str) -> Event:
    """No broker responds."""
    return Event("cluster_lost", f"No broker responds: {problem}", {"problem": problem})


def cluster_back(brokers: int) -> Event:
    """A broker responds again."""
    return Event("cluster_back", f"The cluster responds again, with {brokers} brokers.", {"brokers": brokers})


def holder_moved(old: str, new: str, address: str) -> Event:
    """The fleet has another holder, or none."""
    text = f"{new} is the fleet's holder now" if new else "The fleet has no holder"
    fields = {"old": old, "new": new, "address": address}
    return Event("holder_moved", f"{text}{f', after {old}' if old else ''}.", fields, "holder moved")


def reassignment_step(topic: str, partition: int, replicas: str, problem: str = "") -> Event:
    """A step was submitted, or refused."""
    what = f"refused: {problem}" if problem else "submitted"
    text = f"The step of {topic}-{partition} to replicas {replicas} was {what}."
    fields: dict[str, Field] = {
        "topic": topic,
        "partition": partition,
        "replicas": replicas,
        "problem": problem,
    }
    return Event("reassignment_step", text, fields, "" if problem else "a step was submitted")


def reassignment_ended(topic: str, partition: int, how: str, target: str) -> Event:
    """A move has ended: done, cancelled, refused, gone, or lost."""
    text = f"The reassignment of {topic}-{partition} to {target} has ended: {how}."
    return Event(
        "reassignment_ended", text, {"topic": topic, "partition": partition, "how": how, "target": target}
    )


def worker_ended(worker: int, cause: str) -> Event:
    """A worker has ended, and is started again."""
    text = f"Worker {worker} has ended ({cause}); its connections were closed, and it is started again."
    return Event("worker_ended", text, {"worker": worker, "cause": cause})


def client_waits(client: Waiting) -> Event:
    """A client has begun to wait for more than half of its time."""
    limit = ""
    if client.key:
        value = "" if client.value is None else f" {_limit(client.key, client.value)} of {client.entity}"
        limit = f" for {client.key}{value}"
    text = f"{client.name} waits {client.part:.0%} of its time{limit}."
    fields: dict[str, Field] = {"user": client.user, "client_id": client.client_id}
    rule: dict[str, Field] = {"key": client.key, "entity": client.entity, "value": client.value}
    return Event("client_waits", text, {**fields, "part": round(client.part, 3), **rule}, "client waits")


def client_waits_ended(client: Waiting) -> Event:
    """A client waits for less than a quarter of its time again, or is gone."""
    fields: dict[str, Field] = {
        "user": client.user,
        "client_id": client.client_id,
        "part": round(client.part, 3),
    }
    text = f"{client.name} no longer waits for more than half of its time."
    return Event("client_waits_ended", text, fields, "client waits no longer")


def clients_wait(clients: int) -> Event:
    """More clients have begun to wait than are named."""
    text = f"{clients} more clients wait for more than half of their time."
    return Event("clients_wait", text, {"clients": clients}, "more clients wait")


def _by(by: By) -> dict[str, Field]:
    return {"by": by.name, "from": by.address}


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
