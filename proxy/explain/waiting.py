"""Detects clients that begin, and stop, to wait for more than half of their time; called now and then.

The wait of a client is the larger of two parts of the last minute: the part that its worst connection was held or
muted, and that of all its connections together, for a client that reconnects again and again. Waits of less than
WAITED_MS_MIN are ignored. A client begins above BEGIN and ends below END, so that a client near the threshold causes no
stream of events. Only clients that were throttled since the last call are judged, and those that have begun.
"""

from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice
from typing import Final

import msgspec

from proxy.explain import parts
from proxy.explain.parts import MINUTE
from proxy.explain.report import waited_part
from proxy.explain.rules import Rule
from proxy.explain.watch import Client, Watch
from quotas.definitions.kinds import BY_NAME
from quotas.throttles.figures import QuotaView

BEGIN: Final = 0.5
END: Final = 0.25
WAITED_MS_MIN: Final = 10_000
NAMED_MAX: Final = 10  # that begin in one judgement: those that wait longest
_CLIENTS_MAX: Final = 2_000  # of those that were throttled, in one judgement
_CONNECTIONS_MAX: Final = 100  # of one client
_PORTION: Final = 200  # windows added up in one turn of the loop, about 1 ms

_Key = tuple[str, str]


class Waiter(msgspec.Struct, frozen=True, array_like=True):
    """A client that has begun to wait for more than half of its time, or has stopped.

    Args:
        part: the share of the last minute (0 to 1) that it has waited.
        rule: the rule that it waits for most; None if it is not known.
    """

    user: str
    client_id: str
    part: float
    rule: Rule | None


class Judgement(msgspec.Struct, frozen=True, array_like=True):
    """The clients that have begun to wait for more than half of their time (`begun`), or have stopped (`ended`).

    Args:
        others: the number of clients that have begun but are not in `begun`, which has NAMED_MAX at most.
    """

    begun: tuple[Waiter, ...]
    ended: tuple[Waiter, ...]
    others: int


class Waiting:
    """Tracks which clients of one process wait for quotas most of their time: `judge` now and then, then `take`."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, tuple[Client, bool]] = {}  # and whether the client was named
        self._begun: dict[_Key, tuple[Client, float]] = {}
        self._ended: list[Waiter] = []

    def judge(self, watch: Watch, now_ms: int) -> Iterator[None]:
        """Find which clients have begun or stopped waiting; the work is done while the caller iterates, then `take`."""
        looked = 0
        candidates = {key: client for key, (client, _) in self._waiting.items()}
        candidates.update(watch.take_throttled(_CLIENTS_MAX))
        for key, client in candidates.items():
            self._judge(key, client, now_ms)
            looked += 1 + min(len(client.meters), _CONNECTIONS_MAX)
            if looked >= _PORTION:
                looked = 0
                yield

    def take(self, now_ms: int) -> Judgement | None:
        """Return which clients have begun or stopped waiting since the last call; None if none has."""
        begun, ended = self._begun, self._ended
        if not begun and not ended:
            return None
        self._begun, self._ended = {}, []
        named = nlargest(NAMED_MAX, begun, key=lambda key: begun[key][1])
        for key, (client, _) in begun.items():
            self._waiting[key] = client, False
        for key in named:
            self._waiting[key] = begun[key][0], True
        waiters = tuple(Waiter(*key, begun[key][1], _rule(begun[key][0], now_ms)) for key in named)
        return Judgement(waiters, tuple(ended), len(begun) - len(named))

    def _judge(self, key: _Key, client: Client, now_ms: int) -> None:
        part = part_waited(client, now_ms)
        if key not in self._waiting:
            if part > BEGIN:
                self._begun[key] = client, part
        elif part < END:
            _, named = self._waiting.pop(key)
            if named:
                self._ended.append(Waiter(*key, part, None))


def part_waited(client: Client, now_ms: int) -> float:
    """Return the share of the last minute (0 to 1) for which a client was held or muted.

    It is the largest of its connections' shares and of the share of all together. Waits below WAITED_MS_MIN
    in the minute count as 0.
    """
    meters = islice(client.meters, _CONNECTIONS_MAX)
    windows = (client.windows, *(meter.windows for meter in meters if meter.windows is not None))
    found = (one.sums(MINUTE, now_ms) for one in windows)
    return max(
        (waited_part(times) for times in found if times[parts.HELD] + times[parts.MUTED] >= WAITED_MS_MIN),
        default=0.0,
    )


def _rule(client: Client, now_ms: int) -> Rule | None:
    rules = client.rules
    return max(rules, key=lambda rule: rules[rule].sums(MINUTE, now_ms)[0], default=None)


# ----------------------------------------------------------------------------------------------------
# Clients' waits as rows for metrics, under Kafka's names of the kinds of quotas.


def wait_views(clients: Iterable[Client]) -> Iterator[QuotaView]:
    """Yield, for metrics, a view for each client and kind of quota; its `bytes_total` is the waits in ms, not bytes."""
    for client in clients:
        for kind, all_ms, longest_ms in client.waits:
            yield QuotaView(
                client.user,
                client.client_id,
                BY_NAME[kind].type,
                byte_rate=0.0,
                quota=None,
                bytes_total=int(all_ms),
                throttle_ms_total=0,
                throttled_total=0,
                would_throttle_ms_total=0,
                would_throttled_total=0,
                debt_bytes=0.0,
                longest_wait_ms_total=int(longest_ms),
            )
