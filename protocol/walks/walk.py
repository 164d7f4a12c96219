"""The base class of a walk: a resumable reader of a message that is forwarded while it arrives.

A walk rewrites the addresses at the end of a response (KIP-951), and counts the bytes of each topic in a request or a
response. A relay uses it as follows::

    walk = FetchWalk(version, frame_length)
    while not walk.done:
        n = walk.feed(buf, start, end, address_map)   # in the first call, `start` is at the length prefix
        # send buf[start:start + n]; keep the rest, and show it again at the beginning of the next feed
        # then forward the next walk.passthrough bytes of the stream without showing them

If a feed returns 0 and leaves `passthrough` 0, the next feed needs more bytes after those shown, at most `PART_MAX` in
all, so a buffer of that size is enough. `paused` means that the feed has taken STEPS_MAX steps and could continue: the
loop may do other work first. `done` is set as soon as no further feed is needed; `passthrough` bytes may remain.

A walk is a table of steps, one per state; only numbers are kept between them. A step reads one complete part of the
message, returns the position after it, which may be beyond the buffered bytes, and sets the next state. Or it raises
TruncatedError without any change, and is repeated with more bytes. Everything is forwarded unchanged, except that the
last step may rewrite addresses, to the same number of bytes, because the frame's length was sent before.

If `sizes` is given, the walk counts the bytes of each topic there: name or id, partitions, records, tags. The sums do
not depend on how the stream is cut. A topic's sum is complete when its last byte was passed, all of them when the walk
is `done`. `full` means that a feed has ended early: the relay calls `take_sizes`, and continues.

If a `watch` is set, it is shown the place of each topic's name or id, once, and may put another of the same length
there; the walk then goes on to the end of the frame.

If a `sink` is given, each partition is reported to it as soon as the length of its records is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from protocol.errors import MalformedFieldError, OversizedError, TruncatedError
from protocol.messages.addresses import AddressMap
from protocol.primitives import skip, skip_tags, streamed_count, string_span

# The states of every walk. A frame begins in HEAD and ends in TAIL. In flexible versions, tags follow a topic's last
# partition; then the next topic. Further states of a subclass begin at 6.
HEAD, TOPIC, PARTITION, PARTITION_TAGS, TOPIC_TAGS, TAIL = range(6)

# The largest part that is kept until it is complete. A tail of 64 KiB has more than 500 brokers with long names.
PART_MAX: Final = 65536

# The most steps of one feed. A step takes about 1 us. 64 KiB may have 30,000 of the smallest parts; those of real
# clients and brokers have a few hundred.
STEPS_MAX: Final = 1500

# The most topics before `take_sizes` must be called: a frame of 100 MB could name millions.
TOPICS_MAX: Final = 250
# A longer name cannot be a topic's (Kafka: 249 ASCII characters); its bytes are counted under OTHER_TOPICS.
NAME_BYTES_MAX: Final = 249
TOPIC_SIZE_BYTES: Final = 512  # the memory of a topic while its frame is walked
OTHER_TOPICS: Final = b""

_STEPS: Final = range(STEPS_MAX)

Sizes = dict[bytes, int]
"""The bytes of each topic, by its name or id as bytes of the frame."""

TopicWatch = Callable[[bytearray | memoryview, int, int], None]
"""Is shown a topic's name or id: the buffer, and where in it they begin and end."""


class FullError(Exception):
    """Raised by a sink or step when the caller must first take the collected values; the step is then repeated."""


class PartitionSink(Protocol):
    """An object to which a walk reports each partition of a frame once."""

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
        """Receive one partition.

        Args:
            topic: the name or id, as bytes of the frame; OTHER_TOPICS if it is too long for a name.
            error_code: 0 in a request.
            high_watermark: -1 in a request.
            records_at: the offset of the records in `buf`; their bytes before `limit` have arrived.
            size: the size of the records in bytes; -1 for null.

        Raises:
            FullError: earlier partitions must be taken first; the walk will report this one again.
            TruncatedError: more of the records must arrive first; the walk will report this one again.
        """


@dataclass(slots=True, eq=False)
class Walk:
    """The base class of walks: reads a frame step by step while it is forwarded, by the steps of a subclass.

    Args:
        _left: the number of bytes of the frame that are not passed yet, with its length prefix.
        _compact: whether its version is flexible.
        sizes: where to count the bytes of each topic; None if they are not counted.
        sink: receives the partitions; None if they are not reported.
        by_id: whether topics are named by id in this version, not by name.
    """

    # Steps by state: (walk, buf, pos, limit) -> the position after the part.
    STEPS: ClassVar[tuple[Callable[[Any, bytearray | memoryview, int, int], int], ...]] = ()

    _left: int
    _compact: bool
    sizes: Sizes | None = None
    sink: PartitionSink | None = None
    by_id: bool = False
    watch: TopicWatch | None = None
    _name: bytes = OTHER_TOPICS  # the current topic, for the sink
    # The current topic, and the bytes of the frame that were left at its beginning.
    _topic_key: bytes | None = None
    _topic_left: int = 0
    _topics_noted: int = 0
    passthrough: int = 0
    done: bool = False
    paused: bool = False
    full: bool = False
    _state: int = HEAD
    _topics: int = 0
    _partitions: int = 0
    _frame_end: int = 0
    _address_map: AddressMap | None = None

    def feed(self, buf: bytearray | memoryview, start: int, end: int, address_map: AddressMap | None) -> int:
        """Continue the walk through buf[start:end]; `start` is the first byte not yet passed.

        Returns:
            The number of bytes from `start` that may be forwarded.

        Raises:
            WireError: the frame ends before its fields do, or a part of it is larger than `PART_MAX`.
        """
        frame_end = start + self._left
        limit = min(frame_end, end)
        self._frame_end = frame_end
        self._address_map = address_map
        steps = self.STEPS
        pos = start
        self.paused = False
        try:
            for _ in _STEPS:
                if pos >= limit or self.done:
                    break
                pos = steps[self._state](self, buf, pos, limit)
            else:
                self.paused = pos < limit and not self.done
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
            self.passthrough = 0
            return pos - start
        self.passthrough = pos - limit
        return limit - start

    @property
    def is_past_records(self) -> bool:
        """Whether the sizes of all partitions' records are known: no further partition is reported to the sink."""
        if self.done or self._state == TAIL:
            return True
        last = self._partitions == 1 and self._state == PARTITION_TAGS
        return self._topics == 1 and (last or self._state == TOPIC_TAGS)

    def take_sizes(self) -> Sizes:
        """Return the sizes counted so far, and set them to zero."""
        taken = self.sizes or {}
        if self.sizes is not None:
            self.sizes = {}
        self._topics_noted = 0
        self.full = False
        return taken

    def _finish(self, pos: int) -> None:
        """End the walk at the end of the frame.

        Raises:
            WireError: the frame ends before or after its fields.
        """
        if pos > self._frame_end:
            raise MalformedFieldError(
                f"a field ends {pos - self._frame_end} bytes after the end of its frame"
            )
        # Versions that are not flexible have nothing after the last topic.
        if not self.done and (self._compact or self._state != TAIL):
            raise TruncatedError("the frame ends before its fields do")
        self.done = True
        if self.sizes is not None:
            self._close_topic(pos)

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
            self._close_topic(pos)
        return pos

    def _rest_is_read(self) -> bool:
        """Whether any bytes after the last partition's records must be read."""
        return True

    def _ends_early(self, after: int) -> bool:
        """Whether the walk ends at this last partition of its topic, whose records end at `after`."""
        if self._topics != 1 or after > self._frame_end or self.watch is not None or self._rest_is_read():
            return False
        self.done = True
        return True

    def _topic_at(self, buf: bytearray | memoryview, pos: int, limit: int) -> int:
        """Pass the head of the topic at `pos`: its name or id, and the number of its partitions."""
        if self.by_id:
            start, stop = pos, skip(pos, 16, limit)
        else:
            start, stop = string_span(buf, pos, limit, self._compact)
        partitions, after = streamed_count(buf, max(start, stop), limit, self._compact)
        if self.sizes is not None:
            self._open_topic(buf, start, stop, pos)
        if self.sink is not None:
            self._name = bytes(buf[start:stop]) if stop - start <= NAME_BYTES_MAX else OTHER_TOPICS
        if self.watch is not None:
            self.watch(buf, start, stop)
        self._begin_partitions(partitions)
        return after

    def _records_at(
        self, head: tuple[int, int, int], buf: bytearray | memoryview, pos: int, size: int, limit: int
    ) -> int:
        """Pass a partition's records of `size` bytes at `pos`.

        Args:
            head: the partition's index, error code and high watermark.
        """
        after = pos + max(size, 0)
        if self.sink is not None:
            index, error_code, high_watermark = head
            self.sink.partition(self._name, index, error_code, high_watermark, buf, pos, size, limit)
            if self._partitions == 1 and self._ends_early(after):
                return self._frame_end
        if self._compact:
            self._state = PARTITION_TAGS
        else:
            self._end_partition()
        return after

    def _open_topic(self, buf: bytearray | memoryview, start: int, stop: int, pos: int) -> None:
        """Count the bytes from `pos` on for the topic whose name or id is buf[start:stop].

        Raises:
            FullError: too many topics were counted; nothing has changed.
        """
        if self._topics_noted >= TOPICS_MAX and self.sizes is not None:
            raise FullError
        self._topics_noted += 1
        self._close_topic(pos)
        self._topic_key = bytes(buf[start:stop]) if stop - start <= NAME_BYTES_MAX else OTHER_TOPICS
        self._topic_left = self._frame_end - pos

    def _close_topic(self, pos: int) -> None:
        """Add the bytes up to `pos` to the current topic, which ends there; do nothing if there is none."""
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
        """Rewrite the addresses in the rest of the frame once all of it has arrived; without a map it stays
        unchanged.
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
