"""The walks of a captured channel: every Produce and Fetch, for partitions, and for topics if these have quotas."""

from collections.abc import Sequence
from typing import Final

from protocol.header import RequestHead
from protocol.walks.captured import (
    REST_BYTES_MIN,
    CapturedFetchWalk,
    CapturedProduceWalk,
    PartitionRecords,
    PlainProduce,
    read_plain_fetch,
)
from protocol.walks.fetch import ENDPOINTS_SINCE
from protocol.walks.walk import Sizes
from proxy.channel.capture_rows import Tap
from proxy.channel.in_flight import Buffer
from quotas.engine import Engine

_GOLDEN_RATIO: Final = 0.6180339887


class CapturedWalks:
    """Replaces `TopicWalks`, and the engine as the `Charges` that says whether to walk Produce and Fetch.

    Attributes:
        produced: the partitions of the last Produce; their number may still grow.
        read_plain: reads the partition of an ordinary Produce (`PlainProduce`); bound once, for every Produce.
    """

    __slots__ = ("_engine", "_fetched", "_sample", "_sample_position", "produced", "read_plain")

    charges_produced_topics = True
    charges_fetched_topics = True

    def __init__(self, engine: Engine, tap: Tap) -> None:
        self._engine = engine
        self.read_plain = PlainProduce().read
        self._sample = tap.partition_sample
        # Connections start at different points of the sequence, so that many short ones also have their share.
        self._sample_position = tap.connection * _GOLDEN_RATIO % 1
        self.produced: list[PartitionRecords] = []
        self._fetched: Sequence[PartitionRecords] = ()

    def produce(self, head: RequestHead) -> CapturedProduceWalk:
        """Return a walk; to the end if topics are charged."""
        sizes: Sizes | None = {} if self._engine.charges_produced_topics else None
        walk = CapturedProduceWalk(head[2], head[0], sizes, whole=self._walks_whole(head[0]))
        self.produced = walk.partitions
        return walk

    def fetch(
        self, buf: Buffer, pos: int, end: int, frame_bytes: int, version: int, *, gateway: bool
    ) -> CapturedFetchWalk | None:
        """Return a walk through a Fetch response, unless all partitions are in the buffer.

        Args:
            gateway: whether addresses at its end are rewritten.
        """
        sizes: Sizes | None = {} if self._engine.charges_fetched_topics else None
        frame_end = pos + frame_bytes
        if sizes is None and (frame_end <= end or not gateway or version < ENDPOINTS_SINCE):
            found = read_plain_fetch(buf, pos, end, frame_end, version)
            if found is not None:
                self._fetched = found
                return None
        return CapturedFetchWalk(version, frame_bytes - 4, sizes, whole=self._walks_whole(frame_bytes - 4))

    def take_fetched(self) -> Sequence[PartitionRecords]:
        """Return the partitions of a Fetch response that was not walked, once."""
        found, self._fetched = self._fetched, ()
        return found

    def _walks_whole(self, length: int) -> bool:
        """Whether a frame is walked to its end: every small one, and an evenly distributed share of large ones."""
        if length < REST_BYTES_MIN:
            return True
        self._sample_position += self._sample
        if self._sample_position < 1:
            return False
        self._sample_position -= 1
        return True
