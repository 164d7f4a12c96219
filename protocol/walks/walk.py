"""A resumable walk through a message that is forwarded as it arrives: through a response to the addresses at its end
(KIP-951), and through a response or a request for the bytes of each topic.

How a relay walks::

    walk = FetchWalk(version, frame_length)
    while not walk.done:
        n = walk.feed(buf, start, end, address_map)   # the first time, `start` is at the length prefix
        # send buf[start:start + n]; keep what follows, it is shown again at the front of the next feed
        # pass walk.unseen bytes more without showing them; they follow buf[start + n] once n reached `end`

A feed that gives 0 and leaves `unseen` 0 needs more bytes behind those it was shown: never more than
`PART_MAX` in all, so a buffer of that size is enough. One that leaves `resting` set has taken STEPS_MAX steps and has
bytes at hand for more: the loop may do something else before the next. `done` is set as soon as no feed is needed any
more; `unseen` bytes may be left then.

The walk is a table of steps, one state each, between which only numbers are kept. A step reads a whole part,
gives the position after it, which may lie beyond the bytes at hand, and sets the next state; or it raises
TruncatedError and has changed nothing, so that it is tried again with more bytes. Everything is passed on as
it came; only the last step writes, and as many bytes as it found, because the frame's length has long been
sent.

With `sizes` given it notes there how many bytes each topic's part has: name or id, partitions, records, tags. The
sum is the same however the stream is cut. A topic's is complete when its last byte is passed, all of them when
`done`. With `full` set, a feed has ended early: the relay takes what is noted (`take_sizes`) and goes on.

With a `sink` given, it is told of each partition as soon as the length of its records is known.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError
from protocol.messages.endpoints import AddressMap
from protocol.primitives import skip, skip_tags, streamed_count, string_span

# The states every walk has. A frame begins in HEAD and ends in TAIL; after a topic's last partition come its
# tags where versions are flexible, then the next topic. A walk's own states follow from 6.
HEAD, TOPIC, PARTITION, PARTITION_TAGS, TOPIC_TAGS, TAIL = range(6)

# The largest part that is kept until it is whole. A tail of 64 KiB names more than 500 brokers with long
# names.
PART_MAX: Final = 65536

# Steps of one feed. One takes about 1 us, and 64 KiB hold up to 30,000 of the smallest parts; of what clients and
# brokers send, a few hundred.
STEPS_MAX: Final = 1500

# Topics that are noted before they have to be taken away: a frame of 100 MB could name millions.
TOPICS_MAX: Final = 250
# What no topic can be called for its length (Kafka: 249 characters of ASCII) is noted under OTHER_TOPICS, which is no
# topic's name.
NAME_BYTES_MAX: Final = 249
TOPIC_SIZE_BYTES: Final = 512  # what a topic takes in memory while a frame that names it is walked
OTHER_TOPICS: Final = b""

_STEPS: Final = range(STEPS_MAX)

Sizes = dict[bytes, int]
"""Bytes by the topic's name as it stands, or its id."""


class FullError(Exception):
    """So much is noted that it has to be taken away first; the step has changed nothing."""


class PartitionSink(Protocol):
    """What a walk tells of each partition, once."""

    def partition(
        self,
        topic: bytes,
        index: int,
        error_code: int,
        high_watermark: int,
        buf: bytearray | memoryview,
        records_at: int,
        size: int,
        limit: int,
    ) -> None:
        """Take a partition.

        Args:
            topic: name or id, as it stands in the frame; OTHER_TOPICS if it is too long for a name.
            error_code: 0 in a request.
            high_watermark: -1 in a request.
            records_at: where the records begin in `buf`; of `size` bytes those before `limit` are at hand.
            size: of the records in bytes; -1 for null.

        Raises:
            FullError: the relay has to take away first what is noted. The walk tells of the partition again.
            TruncatedError: more of the records has to be at hand. The same.
        """


class Walk:
    """The common part: counts off the frame's bytes and runs the steps of a subclass."""

    __slots__ = (
        "_address_map",
        "_compact",
        "_frame_end",
        "_left",
        "_name",
        "_noted",
        "_partitions",
        "_state",
        "_topic_key",
        "_topic_left",
        "_topics",
        "by_id",
        "done",
        "full",
        "resting",
        "sink",
        "sizes",
        "unseen",
    )

    # Steps by state: (walk, buf, pos, limit) -> the position after the part.
    STEPS: ClassVar[tuple[Callable[[Any, bytearray | memoryview, int, int], int], ...]] = ()

    def __init__(
        self,
        frame_length: int,
        compact: bool,
        sizes: Sizes | None = None,
        sink: PartitionSink | None = None,
        *,
        by_id: bool = False,
    ) -> None:
        """Take a frame by the number in its length prefix.

        Args:
            compact: whether its version is flexible.
            sizes: where topics' sizes are noted; None for not at all.
            sink: what is told of each partition; None for nothing.
            by_id: whether its version names topics by id.
        """
        self.sizes = sizes
        self.sink = sink
        self._name = OTHER_TOPICS  # of the topic under way, for the sink
        self.by_id = by_id
        self._topic_key: bytes | None = (
            None  # the topic under way, and what was left of the frame at its begin
        )
        self._topic_left = 0
        self._noted = 0
        self.unseen = 0
        self.done = False
        self.resting = False
        self.full = False
        self._compact = compact
        self._left = frame_length + 4
        self._state = HEAD
        self._topics = 0
        self._partitions = 0
        self._frame_end = 0
        self._address_map: AddressMap | None = None

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """Walk on through `buf[start:end]`, where `start` is the first byte not yet passed.

        Returns:
            How many bytes from `start` may be sent on.

        Raises:
            WireError: the frame ends before its fields do, or a part of it is larger than `PART_MAX`.
        """
        frame_end = start + self._left
        limit = min(frame_end, end)
        self._frame_end = frame_end
        self._address_map = address_map
        steps = self.STEPS
        pos = start
        self.resting = False
        try:
            for _ in _STEPS:
                if pos >= limit or self.done:
                    break
                pos = steps[self._state](self, buf, pos, limit)
            else:
                self.resting = pos < limit and not self.done
        except FullError:
            self.full = True
        except TruncatedError:
            if limit == frame_end:
                raise
            if limit - pos >= PART_MAX:
                raise OversizedError(f"a part of more than {PART_MAX} bytes at byte {pos}") from None
        if pos >= frame_end:
            self._finish(pos)
        self._left = frame_end - pos
        if pos <= limit:
            self.unseen = 0
            return pos - start
        self.unseen = pos - limit
        return limit - start

    def take_sizes(self) -> Sizes:
        """What is noted by now, for the relay to act on; noting begins anew."""
        taken = self.sizes or {}
        if self.sizes is not None:
            self.sizes = {}
        self._noted = 0
        self.full = False
        return taken

    @property
    def left(self) -> int:
        """Bytes of the frame that were not yet passed when it was fed last."""
        return self._left

    def _finish(self, pos: int) -> None:
        """The frame's last byte is passed: nothing may be missing."""
        if pos > self._frame_end:
            raise MalformedFieldError(
                f"a field ends {pos - self._frame_end} bytes after the end of its frame"
            )
        # Versions that are not flexible have nothing behind the last topic.
        if not self.done and (self._compact or self._state != TAIL):
            raise TruncatedError("the frame ends before its fields do")
        self.done = True
        if self.sizes is not None:
            self._topic_over(pos)

    def _begin_topics(self, topics: int) -> None:
        self._topics = topics
        self._state = TOPIC if topics > 0 else TAIL

    def _begin_partitions(self, partitions: int) -> None:
        self._partitions = partitions
        if partitions > 0:
            self._state = PARTITION
        else:
            self._end_topic()

    def _end_partition(self) -> None:
        self._begin_partitions(self._partitions - 1)

    def _end_topic(self) -> None:
        if self._compact:
            self._state = TOPIC_TAGS
        else:
            self._begin_topics(self._topics - 1)

    def _partition_tags(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        pos = skip_tags(buf, pos, limit)
        self._end_partition()
        return pos

    def _topic_tags(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        pos = skip_tags(buf, pos, limit)
        self._begin_topics(self._topics - 1)
        if self.sizes is not None:
            self._topic_over(pos)
        return pos

    def _rest_is_read(self) -> bool:
        """Whether anything behind the last partition's records is of interest."""
        return True

    def _over(self, after: int) -> bool:
        """Whether the walk ends with the topic's last partition, whose records end at `after`."""
        if self._topics != 1 or after > self._frame_end or self._rest_is_read():
            return False
        self.done = True
        return True

    def _topic_at(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """Begin the topic at `pos`: its name or id, and the number of its partitions, whose first one follows."""
        if self.by_id:
            start, stop = pos, skip(pos, 16, limit)
        else:
            start, stop = string_span(buf, pos, limit, self._compact)
        partitions, after = streamed_count(buf, max(start, stop), limit, self._compact)
        if self.sizes is not None:
            self._topic_begins(buf, start, stop, pos)
        if self.sink is not None:
            self._name = bytes(buf[start:stop]) if stop - start <= NAME_BYTES_MAX else OTHER_TOPICS
        self._begin_partitions(partitions)
        return after

    def _records_at(
        self,
        head: tuple[int, int, int],
        buf: bytearray | memoryview,
        pos: int,
        size: int,
        limit: int,
    ) -> int:
        """Pass a partition's records of `size` bytes at `pos`; `head`: index, error code, high watermark."""
        after = pos + max(size, 0)
        if self.sink is not None:
            index, error_code, high_watermark = head
            self.sink.partition(self._name, index, error_code, high_watermark, buf, pos, size, limit)
            if self._partitions == 1 and self._over(after):
                return self._frame_end
        if self._compact:
            self._state = PARTITION_TAGS
        else:
            self._end_partition()
        return after

    def _topic_begins(self, buf: bytearray | memoryview, start: int, stop: int, pos: int) -> None:
        """From `pos` on the bytes are the topic's whose name or id lies there.

        Raises:
            FullError: too many are noted; nothing has changed.
        """
        if self._noted >= TOPICS_MAX and self.sizes is not None:
            raise FullError
        self._noted += 1
        self._topic_over(pos)
        self._topic_key = bytes(buf[start:stop]) if stop - start <= NAME_BYTES_MAX else OTHER_TOPICS
        self._topic_left = self._frame_end - pos

    def _topic_over(self, pos: int) -> None:
        """The topic under way, if there is one, ends here."""
        key, sizes = self._topic_key, self.sizes
        if key is None or sizes is None:
            return
        sizes[key] = sizes.get(key, 0) + self._topic_left - (self._frame_end - pos)
        self._topic_key = None

    def _replace_tail(
        self,
        buf: bytearray | memoryview,
        pos: int,
        limit: int,
        fit: Callable[[bytearray | memoryview, int, int, AddressMap], bytes | None],
    ) -> int:
        """Replace the addresses in all that is left of the frame, once it is at hand; without a map it
        passes.
        """
        frame_end = self._frame_end
        if self._address_map is not None:
            if limit < frame_end:
                if frame_end - pos > PART_MAX:
                    raise OversizedError(f"{frame_end - pos} bytes after the last topic at byte {pos}")
                raise TruncatedError(f"the tail at byte {pos} is cut off at {limit}")
            fitted = fit(buf, pos, frame_end, self._address_map)
            if fitted is not None:
                assert len(fitted) == frame_end - pos, "the frame's length has been sent"
                buf[pos:frame_end] = fitted
        self.done = True
        return frame_end
