"""The walks of a captured channel: every Produce and Fetch, for partitions, and for topics if these have quotas."""

from typing import Final

from protocol.header import RequestHead
from protocol.walks.captured import REST_BYTES_MIN, CapturedFetchWalk, CapturedProduceWalk, PartitionRecords
from protocol.walks.plain_produce import PlainProduce
from protocol.walks.walk import Sizes
from proxy.channel.capture_rows import Tap
from proxy.channel.in_flight import Buffer
from quotas.engine import Engine

__all__ = ["CapturedWalks"]

_GOLDEN_RATIO: Final = 0.6180339887


class CapturedWalks:
    """Replaces `TopicWalks`, and the engine as the `Charges` that says whether to walk Produce and Fetch.

    Attributes:
        produced: the partitions of the last Produce; their number may still grow.
    """

    __slots__ = ("_engine", "_plain_produce", "_sample", "_sample_position", "produced")

    charges_produced_topics = True
    charges_fetched_topics = True

    def __init__(self, engine: Engine, tap: Tap) -> None:
        self._engine = engine
        self._plain_produce = PlainProduce()
        self._sample = tap.partition_sample
        # Connections start at different points of the sequence, so that many short ones also have their share.
        self._sample_position = tap.connection * _GOLDEN_RATIO % 1
        self.produced: list[PartitionRecords] = []

    def produce(
        self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead
    ) -> CapturedProduceWalk | None:
        """Return a walk, unless all partitions are in the buffer; to the end if topics are charged."""
        charged = self._engine.charges_produced_topics
        if not charged:
            found = self._plain_produce.read(buf, body, end, pos + 4 + head[0], head[2])
            if found is not None:
                self.produced = found
                return None
        walk = CapturedProduceWalk(
            head[2], head[0], {} if charged else None, whole=self._walks_whole(head[0])
        )
        self.produced = walk.partitions
        return walk

    def fetch(self, version: int, length: int) -> CapturedFetchWalk:
        """Return a walk through a Fetch response."""
        sizes: Sizes | None = {} if self._engine.charges_fetched_topics else None
        return CapturedFetchWalk(version, length, sizes, whole=self._walks_whole(length))

    def _walks_whole(self, length: int) -> bool:
        """Whether a frame is walked to its end: every small one, and an evenly distributed share of large ones."""
        if length < REST_BYTES_MIN:
            return True
        self._sample_position += self._sample
        if self._sample_position < 1:
            return False
        self._sample_position -= 1
        return True
