"""Why a client waits, in a few words, from its row in the list; and what is said of workers that a list lacks. Pure.

The sentence of /v1/client says it whole; there is not one for each of 10,000 rows.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from commandline.amounts import duration
from proxy.explain.documents import SLOW_MS, BrokerTimes, ClientRow, Missing, Quota, Rule, ShortRule
from proxy.explain.parts import BROKER, CLIENT, IDLE, NAMES, POLL, SLUICE, amount

WAITS_MIN: Final = 0.01
_MOSTLY: Final = 0.5
_SLUICE_MIN: Final = 0.2
_NAMED_MAX: Final = 4
_PROBLEM_CHARACTERS_MAX: Final = 100


class Cause(NamedTuple):
    """Why a client waits; if it does not wait, what takes most of its time.

    Args:
        kind: it waits for a `quota`; it waited for one that is not enforced now (`observed`); most time passes at the
            `broker`, on the `client` or in `sluice`; it is `over` a limit but hardly waits; or all is well (`calm`).
        text: the cause in words.
        part: the share of the client's time (0 to 1) that `kind` refers to; 0 for over.
    """

    kind: str
    text: str
    part: float


def cause(client: ClientRow, brokers: Sequence[BrokerTimes]) -> Cause:
    """Return why the client waits; if it does not wait, what takes most of its time."""
    times, rule = client.time.parts, client.rule
    wait = client.time.waited
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
    if limit is not None and limit.is_over:
        return Cause("over", f"over its {limit.kind} quota, and hardly waits", 0.0)
    busiest = max((part for part in range(len(NAMES)) if part != IDLE), key=lambda part: times[part])
    if times[busiest] < _SLUICE_MIN:
        return Cause("calm", "asks for little", times[IDLE])
    words = {BROKER: "at its broker", POLL: "waits for records", CLIENT: "partly on the client"}
    return Cause("calm", words.get(busiest, "in Sluice"), times[busiest])


def trouble(client: ClientRow, brokers: Sequence[BrokerTimes]) -> float:
    """Return a sort key: the higher it is, the more the client needs an operator.

    First come clients that wait for a quota, then those that wait for something else, then those over a limit without
    waiting, then all others, the busiest first.
    """
    found = cause(client, brokers)
    rank = {"quota": 2.0, "observed": 2.0, "calm": 0.0}.get(found.kind, 1.0)
    return rank + (found.part if rank else 1 - client.time.parts[IDLE]) / 1.001


def limit_text(rule: Rule | ShortRule) -> str:
    """Return a limit in words: its quota key, value and entity."""
    value = "" if rule.value is None else f" {amount(rule.kind, rule.value)}"
    return f"{rule.key}{value}{f' of {rule.holder}' if rule.holder else ''}"


def heaviest(client: ClientRow) -> Quota | None:
    """Return the quota of which the client uses the largest share; None if it has none."""
    found = [quota for quota in client.quotas if quota.value > 0]
    return max(found, key=lambda quota: quota.rate / quota.value, default=None)


def missing_workers(missing: Iterable[Missing]) -> tuple[str, ...]:
    """Return, as text for people, each worker process whose clients are missing in a document, with the reason.

    >>> missing_workers([Missing(2, "no response within 4 s")])
    ('worker 2 (no response within 4 s)',)
    """
    return tuple(f"worker {one.worker} ({one.problem[:_PROBLEM_CHARACTERS_MAX]})" for one in missing)


def lacks(name: str, missing: Sequence[str]) -> str:
    """Return a warning that the clients of some of a member's worker processes are not shown.

    Args:
        missing: the result of `missing_workers`.

    >>> lacks("gw-1", ("worker 2 (it does not run)",))
    'gw-1 lacks worker 2 (it does not run): clients connected there are not shown'
    """
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    return f"{name} lacks {', '.join(missing[:_NAMED_MAX])}{more}: clients connected there are not shown"
