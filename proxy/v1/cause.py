"""Why a client waits, in a few words, from its row in the list. Pure.

The sentence of /v1/client says it whole; there is not one for each of 10,000 rows.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from commandline.amounts import duration
from proxy.explain.parts import BROKER, CLIENT, IDLE, NAMES, POLL, SLUICE, amount
from proxy.v1.documents import Broker, Client, Quota, Rule, waited

WAITS_MIN: Final = 0.01
_KINDS: Final = frozenset(("produce", "fetch", "topic", "request", "mutation", "connection", "replication"))
_MOSTLY: Final = 0.5
_SLUICE_MIN: Final = 0.2
_OVER_MIN: Final = 1.1  # of a limit
SLOW_MS: Final = 100.0  # a broker's p99
PART_NAMES: Final = {
    "held": "held before its payload is read",
    "muted": "muted for a quota",
    "client": "on the client",
    "sluice": "in Sluice",
    "broker": "at the broker",
    "poll": "waits for records by its own wish",
    "idle": "asks for nothing",
}


class Cause(NamedTuple):
    """A cause.

    Args:
        kind: quota, observed, broker, client, sluice, over (a limit, without waiting), or calm.
        part: of the time that is meant.
    """

    kind: str
    text: str
    part: float


def cause(client: Client, brokers: Sequence[Broker]) -> Cause:
    """Return why the client waits, or what it does."""
    times, rule = client.times, client.rule
    wait = waited(times)
    if wait >= WAITS_MIN and rule is not None:
        return Cause("quota" if rule.enforced else "observed", limit_text(rule), wait)
    if wait >= WAITS_MIN:
        return Cause("quota", "a quota that is gone now", wait)
    slow = max(brokers, key=lambda broker: broker.p99_ms, default=None)
    if times[BROKER] >= _MOSTLY and slow is not None and slow.p99_ms >= SLOW_MS:
        text = f"at its broker; the slowest is broker {slow.broker}, p99 {duration(slow.p99_ms / 1000)}"
        return Cause("broker", text, times[BROKER])
    if times[CLIENT] >= _MOSTLY:
        return Cause("client", "slow client: reads or sends slowly", times[CLIENT])
    if times[SLUICE] >= _SLUICE_MIN:
        return Cause("sluice", "its requests are in Sluice", times[SLUICE])
    limit = heaviest(client)
    if limit is not None and is_over(limit):
        return Cause("over", f"over its {limit.kind} quota, and hardly waits", 0.0)
    return _calm(times)


def _calm(times: Sequence[float]) -> Cause:
    busiest = max((part for part in range(len(NAMES)) if part != IDLE), key=lambda part: times[part])
    if times[busiest] < _SLUICE_MIN:
        return Cause("calm", "asks for little", times[IDLE])
    words = {BROKER: "at its broker", POLL: "waits for records", CLIENT: "partly on the client"}
    return Cause("calm", words.get(busiest, "in Sluice"), times[busiest])


def trouble(client: Client, brokers: Sequence[Broker]) -> float:
    """Sort key: clients that wait for a quota, those with another cause, those over a limit, then the busiest."""
    found = cause(client, brokers)
    rank = {"quota": 2.0, "observed": 2.0, "calm": 0.0}.get(found.kind, 1.0)
    return rank + (found.part if rank else 1 - client.times[IDLE]) / 1.001


def limit_text(rule: Rule) -> str:
    """Return a rule in words: key, value, entity."""
    value = "" if rule.value is None else f" {amount_of(rule.kind, rule.value)}"
    whose = rule.entity or rule.name
    return f"{rule.key}{value}{f' of {whose}' if whose else ''}"


def amount_of(kind: str, value: float) -> str:
    """Return a rate with its unit; of a kind that this version does not know, the number.

    >>> amount_of("produce", 2e6), amount_of("new", 2.5)
    ('2.0 MB/s', '2.5')
    """
    return amount(kind, value) if kind in _KINDS else f"{value:g}"


def is_over(quota: Quota) -> bool:
    """Whether the client's own rate is above the limit, and not only by what windows and bursts make of it."""
    return quota.rate > _OVER_MIN * quota.value


def heaviest(client: Client) -> Quota | None:
    """Return the limit that the client is closest to, or furthest over."""
    found = [quota for quota in client.quotas if quota.value > 0]
    return max(found, key=lambda quota: quota.rate / quota.value, default=None)
