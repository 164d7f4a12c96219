"""The progress of moves: as JSON on the admin port, as metrics, and in `sluice reassign status` (KIP-435).

Totals cover all moves since there were last none, with ended ones, so that they do not shrink. Bytes are those that
moves add to brokers; a replica in place counts with all its bytes. The rate is the difference between the first and the
last kept sample; the time to finish is the rest at that rate. Only the executing process reads sizes.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from proxy.config import ReassignmentSettings
from proxy.control.reassign.cluster import Sizes
from proxy.control.reassign.journal import EndedTotals, Entry
from proxy.control.reassign.reconcile import Decision
from proxy.metrics.families import Family
from proxy.system.stats import Stats
from quotas.reassignment.step import PartitionState, Step, TopicPartition

PARTITIONS_SHOWN_MAX: Final = 1000
_SAMPLES: Final = 7
_MS_A_SECOND: Final = 1000


class Progress(NamedTuple):
    """The progress of one move.

    Args:
        entry: the move's journal entry.
        now: the partition's state in the cluster; None if it is not known.
        step: the step under way; None for none.
        reason: why the move waits; "" if it does not.
        replicas_total: the number of replicas that the move adds.
        replicas_done: the number of those that are complete.
        bytes_total: the size of these replicas when complete, in bytes.
        bytes_done: how many of these bytes have arrived.
    """

    entry: Entry
    now: PartitionState | None
    step: Step | None  # under way
    reason: str
    replicas_total: int
    replicas_done: int
    bytes_total: int
    bytes_done: int

    @property
    def state(self) -> str:
        """The state of the move: "asked" (a request is undecided), "step" (a step is under way) or "waiting"."""
        if self.entry.asked is not None:
            return "asked"
        if self.step is not None:
            return "step"
        return "waiting"


class Rate:
    """Computes the rate at which moves copy bytes, from the last samples of their progress."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Mapping[TopicPartition, int]]] = deque(maxlen=_SAMPLES)

    def sample(self, now_ms: int, moves: Sequence[Progress]) -> None:
        """Add a sample of all moves, which was read at `now_ms`; a second one of the same time is ignored."""
        if not self._samples or self._samples[-1][0] != now_ms:
            self._samples.append((now_ms, {one.entry.key: one.bytes_done for one in moves}))

    def forget(self) -> None:
        """Remove all samples; called when there are no moves, or another process executes them."""
        self._samples.clear()

    def per_second(self) -> float | None:
        """Return the rate in bytes/s over the kept samples; None with fewer than two."""
        if len(self._samples) < 2:
            return None
        came = 0
        for (_, before), (_, after) in zip(self._samples, islice(self._samples, 1, None), strict=False):
            came += sum(max(0, size - before.get(key, size)) for key, size in after.items())
        took_ms = self._samples[-1][0] - self._samples[0][0]
        return came * _MS_A_SECOND / took_ms


def progress(
    entries: Mapping[TopicPartition, Entry],
    now: Mapping[TopicPartition, PartitionState],
    decision: Decision,
    sizes: Sizes,
) -> list[Progress]:
    """Return the progress of every move in the journal.

    Args:
        entries: the journal's entries.
        now: the state of their partitions in the cluster.
        decision: the executor's last decision, with the reasons why moves wait.
        sizes: the sizes of replicas, as last read.
    """
    return [_progress(entry, now.get(key), decision, sizes) for key, entry in entries.items()]


def _progress(entry: Entry, now: PartitionState | None, decision: Decision, sizes: Sizes) -> Progress:
    key = entry.key
    step = entry.step
    if step is not None and (now is None or not step.is_under_way(now)):
        step = None
    settled: set[int] = set()
    if now is not None:
        settled = set(now.replicas) - set(now.adding)
    coming: Sequence[int] = entry.added_brokers
    if entry.cancelled:
        coming = [broker for broker in entry.wanted if broker not in settled]
    size = 0 if now is None else sizes.partition(key)
    done = sum(size if broker in settled else min(size, sizes.replica(broker, key)) for broker in coming)
    waiting = decision.waiting.get(key)
    return Progress(
        entry=entry,
        now=now,
        step=step,
        # A step under way is the reason itself, unless it waits for a dead broker.
        reason="" if waiting is None or (step is not None and not waiting.brokers) else waiting.reason,
        replicas_total=len(coming),
        replicas_done=sum(broker in settled for broker in coming),
        bytes_total=size * len(coming),
        bytes_done=done,
    )


def describe(
    moves: Sequence[Progress], settings: ReassignmentSettings, rate: float | None, over: EndedTotals
) -> dict[str, object]:
    """Return the JSON document of all moves for the admin port.

    Args:
        rate: the bytes/s at which moves copy; None if it is not known.
        over: the totals of ended moves.
    """
    total, done = sum(one.bytes_total for one in moves), sum(one.bytes_done for one in moves)
    return {
        "moves": len(moves),
        "moves_total": len(moves) + over.done + over.not_done,
        "moves_done": over.done,
        "moves_not_done": over.not_done,
        "steps": sum(one.step is not None for one in moves),
        "replicas_total": over.replicas + sum(one.replicas_total for one in moves),
        "replicas_done": over.replicas + sum(one.replicas_done for one in moves),
        "bytes_total": over.size + total,
        "bytes_done": over.size + done,
        "bytes_per_second": rate,
        "finish_seconds": (total - done) / rate if rate else None,
        "limits": asdict(settings.limits),
        "partitions": [_row(one) for one in moves[:PARTITIONS_SHOWN_MAX]],
    }


def _row(one: Progress) -> dict[str, object]:
    entry, step = one.entry, one.step
    return {
        "topic": entry.topic,
        "partition": entry.partition,
        "original": list(entry.original),
        "target": list(entry.wanted),
        "current": [] if one.now is None else list(one.now.replicas),
        "cancelled": entry.cancelled,
        "state": one.state,
        "step": None if step is None else {"current": list(step.current), "target": list(step.replicas)},
        "reason": one.reason,
        "replicas_total": one.replicas_total,
        "replicas_done": one.replicas_done,
        "bytes_total": one.bytes_total,
        "bytes_done": one.bytes_done,
    }


def gauges(moves: Sequence[Progress], decision: Decision, rate: float | None, leads: bool) -> list[Family]:
    """Return the gauges of the moves under way.

    Args:
        rate: the bytes/s at which moves copy; None if it is not known.
        leads: whether this process executes them.
    """
    states = {"asked": 0, "step": 0, "waiting": 0}
    for one in moves:
        states[one.state] += 1
    catching_up = sum(len(one.step.adds) for one in moves if one.step is not None)
    lost = sum(1 for one in moves if not decision.lost.isdisjoint(one.entry.wanted))
    total, done = sum(one.bytes_total for one in moves), sum(one.bytes_done for one in moves)
    finish = (total - done) / rate if rate else (inf if moves else 0.0)
    rows = [((state,), number) for state, number in states.items()]
    found = [Family("sluice_reassignments", "gauge", "Partitions under way, by state", ("state",), rows)]
    for name, text, value in (
        ("sluice_reassignment_leader", "1 where this process carries reassignments out", float(leads)),
        ("sluice_reassignment_replicas_catching_up", "Replicas that steps under way add", catching_up),
        ("sluice_reassignment_stalled", "Moves with a broker that has been dead for too long", lost),
        ("sluice_reassignment_bytes", "Bytes that the moves under way bring to new brokers", total),
        ("sluice_reassignment_moved_bytes", "Bytes of them that have arrived", done),
        ("sluice_reassignment_byte_rate", "Bytes/s at which they arrive", rate or 0.0),
        ("sluice_reassignment_finish_seconds", "Time until all moves are done, at that rate", finish),
    ):
        found.append(Family(name, "gauge", text, (), [((), value)]))
    return found


def counters(stats: Stats) -> Iterator[Family]:
    """Yield the counters of requests, steps and moves as metrics."""
    for name, label, text, counter in (
        ("sluice_reassignment_requests", "result", "Reassignment requests", stats.reassignment_requests),
        ("sluice_reassignment_steps", "result", "Steps, by result", stats.reassignment_steps),
        ("sluice_reassignment_ends", "how", "Moves that ended", stats.reassignment_ends),
    ):
        yield Family(name, "counter", text, (label,), [((key,), n) for key, n in sorted(counter.items())])
