"""What both sides of a captured channel share: the rows that are not finished, and what was decided for them."""

from collections import deque
from typing import Any, Final

from protocol.messages.captured_walks import (
    REST_BYTES_MIN,
    CapturedFetchWalk,
    CapturedProduceWalk,
    Found,
)
from protocol.messages.fetch_session import SessionTable
from protocol.messages.plain_produce import PlainProduce
from protocol.messages.walk import Sizes
from proxy.channel.capture_rows import FRAME_BYTES, Row, Tap
from proxy.channel.in_flight import Buffer
from proxy.channel.settings import ChannelSettings
from proxy.channel.state import ChannelState, Muting
from proxy.stats import Stats
from quotas.client_bandwidth import FETCH as FETCH_QUOTA
from quotas.client_bandwidth import PRODUCE as PRODUCE_QUOTA
from quotas.definitions import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from quotas.engine import Engine
from quotas.mutations import MutationThrottle
from quotas.user_connections import UserThrottle

__all__ = ["INT32_MAX", "CapturedState", "FramedState"]

Head = tuple[int, int, int, int, int]

_QUOTAS: Final = {
    PRODUCE_QUOTA: "produce",
    FETCH_QUOTA: "fetch",
    REQUEST_PERCENTAGE: "request",
    CONTROLLER_MUTATION_RATE: "mutation",
}


class _Always:
    """Stands in for the engine where it is asked whether Produce and Fetch have to be walked."""

    __slots__ = ()
    charges_produced_topics = True
    charges_fetched_topics = True


INT32_MAX: Final = 0x7FFFFFFF
_GOLDEN_RATIO: Final = 0.6180339887
_ALWAYS: Final = _Always()
_PARTITIONS: Final = Row.PARTITIONS


class CapturedState(ChannelState):
    """What both sides share, with the rows that are not finished.

    Attributes:
        owed: the rows whose answers are owed.
        produced: the partitions of the Produce seen last; they may still be growing in number.
        told_ms, told_by: the longest mute that was decided on since somebody asked, and what for.
    """

    __slots__ = ("_plain", "_recorder", "_share", "owed", "produced", "tap", "told_by", "told_ms")

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats, tap: Tap
    ) -> None:
        super().__init__(settings, engine, sessions, stats)
        self.charges = _ALWAYS
        self._recorder = tap.recorder
        self._plain = PlainProduce()
        # Connections are out of step with each other, and many short ones have their share all the same.
        self._share = tap.connection * _GOLDEN_RATIO % 1
        self.tap = tap
        self.owed: deque[list[Any]] = deque()
        self.produced: list[Found] = []
        self.told_ms = 0
        self.told_by: Muting | None = None

    def produce_walk(
        self, buf: Buffer, pos: int, end: int, body: int, head: Head
    ) -> CapturedProduceWalk | None:
        """Walk for the partitions' sake unless they are all at hand; to the end where topics are charged."""
        charged = self.engine.charges_produced_topics
        if not charged:
            found = self._plain.found(buf, body, end, pos + 4 + head[0], head[2])
            if found is not None:
                self.produced = found
                return None
        walk = CapturedProduceWalk(head[2], head[0], {} if charged else None, whole=self._whole(head[0]))
        self.produced = walk.found
        return walk

    def fetch_walk(self, version: int, length: int) -> CapturedFetchWalk:
        """The same of an answer."""
        sizes: Sizes | None = {} if self.engine.charges_fetched_topics else None
        return CapturedFetchWalk(version, length, sizes, whole=self._whole(length))

    def _whole(self, length: int) -> bool:
        """Whether a frame is walked to its end, though it is large: evenly that share of them."""
        if length < REST_BYTES_MIN:
            return True
        self._share += self.tap.partition_sample
        if self._share < 1:
            return False
        self._share -= 1
        return True

    def mute(self, throttle: Muting, throttle_ms: int, now_ms: int) -> int:
        """As always, and note what is told: of a connection's rate nothing is."""
        told_ms = noted_ms = super().mute(throttle, throttle_ms, now_ms)
        if isinstance(throttle, UserThrottle):
            return told_ms
        if self.group_session_timeout_ms is None and isinstance(throttle, MutationThrottle):
            noted_ms = throttle_ms  # which is told in full (`handlers.topic_mutations`)
        if noted_ms > self.told_ms:
            self.told_ms, self.told_by = noted_ms, throttle
        return told_ms

    def decide(self, row: list[Any]) -> None:
        """Put into the row what was decided since the last one."""
        if self.told_ms > row[Row.THROTTLE_MS]:
            row[Row.THROTTLE_MS] = min(self.told_ms, INT32_MAX)
            row[Row.QUOTA] = _QUOTAS.get(getattr(self.told_by, "key", ""), "")
        self.undecide()

    def undecide(self) -> None:
        """Nobody was told."""
        self.told_ms, self.told_by = 0, None

    def write(self, row: list[Any]) -> None:
        """The row is finished."""
        recorder = self._recorder
        recorder.rows.append(row)
        left = recorder.left = recorder.left - (len(row[_PARTITIONS]) or 1)
        if left <= 0:
            recorder.full()


class FramedState(CapturedState):
    """The same where more is kept than rows."""

    __slots__ = ()

    def write(self, row: list[Any]) -> None:
        """The row is finished, and its frame goes with it."""
        self._recorder.left -= len(row[Row.FRAME]) // FRAME_BYTES
        super().write(row)
