"""The walks of a captured channel: every Produce and Fetch, for its partitions, and for its topics where they count."""

from typing import Final

from protocol.header import RequestHead
from protocol.walks.captured import REST_BYTES_MIN, CapturedFetchWalk, CapturedProduceWalk, Found
from protocol.walks.plain_produce import PlainProduce
from protocol.walks.walk import Sizes
from proxy.channel.capture_rows import Tap
from proxy.channel.in_flight import Buffer
from quotas.engine import Engine

__all__ = ["CapturedWalks"]

_GOLDEN_RATIO: Final = 0.6180339887


class CapturedWalks:
    """In place of `TopicWalks`, and of the engine where it is asked whether Produce and Fetch have to be walked.

    Attributes:
        produced: the partitions of the Produce seen last; they may still be growing in number.
    """

    __slots__ = ("_engine", "_plain", "_sample", "_share", "produced")

    charges_produced_topics = True
    charges_fetched_topics = True

    def __init__(self, engine: Engine, tap: Tap) -> None:
        self._engine = engine
        self._plain = PlainProduce()
        self._sample = tap.partition_sample
        # Connections are out of step with each other, and many short ones have their share all the same.
        self._share = tap.connection * _GOLDEN_RATIO % 1
        self.produced: list[Found] = []

    def produce(
        self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead
    ) -> CapturedProduceWalk | None:
        """Walk for the partitions' sake unless they are all at hand; to the end where topics are charged."""
        charged = self._engine.charges_produced_topics
        if not charged:
            found = self._plain.found(buf, body, end, pos + 4 + head[0], head[2])
            if found is not None:
                self.produced = found
                return None
        walk = CapturedProduceWalk(head[2], head[0], {} if charged else None, whole=self._whole(head[0]))
        self.produced = walk.found
        return walk

    def fetch(self, version: int, length: int) -> CapturedFetchWalk:
        """The same of a response."""
        sizes: Sizes | None = {} if self._engine.charges_fetched_topics else None
        return CapturedFetchWalk(version, length, sizes, whole=self._whole(length))

    def _whole(self, length: int) -> bool:
        """Whether a frame is walked to its end, though it is large: evenly that share of them."""
        if length < REST_BYTES_MIN:
            return True
        self._share += self._sample
        if self._share < 1:
            return False
        self._share -= 1
        return True
