"""Captures a channel's requests, one row for each; traffic is handled as without capture (issue 7).

    client ──► RequestDirection ──► broker    owed: the rows whose responses are still to come, oldest first,
                 │      ▲                       in addition to `in_flight`
         handled │ owed │
                 ▼      │
               Capture ─┴──► recorder         response_begun: the row is finished and given to the recorder
                 ▲
  response_begun │
    client ◄── ResponseDirection ◄── broker

Capture is decided when a connection is made, so it costs other clients nothing. Every request and response of Produce
and Fetch is walked, as for topic quotas.

A row is one list, whose indices `Row` names; `protocol.capture` defines what is written of it. The values that all
rows of one client share are one tuple, `RowOrigin`. A row is made when the request is handled, and completed when its
response has begun, if it has one. There are no rows for SASL tokens without a Kafka header, for Sluice's own Metadata
requests, and for requests between brokers. `Keeper` keeps whole requests for replay.

Two values differ from a broker's. A muted client's socket is not read, so the arrival time of its next request is
unknown: if the request is there when the mute ends, the whole mute counts as its delay. The partition mutations are the
requested ones, as far as the topics' sizes are known without a request to a broker.

Non-obvious:

- A captured channel has an observer, chosen when the connection is made; a channel without capture only compares one
  reference for each response. The `unmeasured_version` of a captured channel is never the engine's version, so that
  `handled` is called for every request, and measures it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from protocol.api import (
    API_NAMES,
    CREATE_DELEGATION_TOKEN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    FETCH,
    PRODUCE,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
    flexible,
)
from protocol.capture import NONE
from protocol.errors import WireError
from protocol.header import REQUEST_HEAD, RequestHead
from protocol.messages import topic_mutations
from protocol.walks.captured import (
    REST_BYTES_MIN,
    CapturedFetchWalk,
    CapturedProduceWalk,
    PartitionRecords,
    PlainProduce,
    read_plain_fetch,
)
from protocol.walks.fetch import ENDPOINTS_SINCE
from protocol.walks.walk import Sizes, Walk
from proxy.channel.direction import (
    AT_ONCE_BYTES_MAX,
    ENTRY_BYTES,
    Buffer,
    ChannelDirection,
    ChannelState,
    Entry,
    Identity,
    Muting,
    Observer,
    skip_header_tags,
)
from proxy.channel.request_time import RequestTimes
from proxy.channel.requests import RequestDirection
from proxy.channel.verdict import Verdict
from quotas.definitions.kinds import BY_KEY
from quotas.definitions.kinds import PRODUCE as PRODUCE_QUOTA
from quotas.engine import Engine
from quotas.throttles.connections import UserThrottle
from quotas.throttles.mutation import MutationThrottle

# The weight of one batch. A row weighs as much as it has partitions, at least 1 (up to a kilobyte). The batch is small
# enough that converting it to columns blocks the loop for less than a millisecond, and large enough that the handover
# costs nothing. NAME_CHARACTERS of a new client id, and FRAME_BYTES of a frame, add a weight of 1.
BATCH_WEIGHT: Final = 1024
NAME_CHARACTERS: Final = 256
FRAME_BYTES: Final = 2048

INT32_MAX: Final = 0x7FFFFFFF  # the largest number of a column
NONE_NS: Final = 1000 * NONE  # which is NONE in microseconds


class RowOrigin(NamedTuple):
    """The values that all rows of a connection share, as long as its user and client id stay the same."""

    connection: int
    ip: str
    listener: str
    broker: int
    principal: str
    client_id: str


# The memory of a row with one partition: the list, its numbers, the head, the partition's own tuple.
ROW_BYTES: Final = 1024


class Row:
    """The index of each value in the row of a captured request; a row is a list, for speed."""

    HEAD: Final = 0  # of the request, as `RequestDirection` unpacks it: see `Head`
    ORIGIN: Final = 1
    SEQ: Final = 2
    HANDLED_NS: Final = 3
    SENT_NS: Final = 4
    RESPONSE_BYTES: Final = 5
    UPSTREAM_NS: Final = 6
    THROTTLE_MS: Final = 7
    DELAY_MS: Final = 8
    QUOTA: Final = 9
    MUTATIONS: Final = 10
    PARTITIONS: Final = 11
    FRAME: Final = 12  # only where frames are captured


class Head:
    """The index of each value of a request's header in the tuple that `RequestDirection` unpacks."""

    REQUEST_BYTES: Final = 0
    API_KEY: Final = 1
    API_VERSION: Final = 2
    CORRELATION_ID: Final = 3


class Recorder(Protocol):
    """The interface to which a channel gives the rows of captured requests, for a file (`proxy.capture`).

    Attributes:
        add: adds a finished row to the current batch; its partitions do not grow any more.
        left: the weight of the rows that still fit into the batch, at first `BATCH_WEIGHT`; the channel subtracts each
            row's weight, and calls `full` at 0.
    """

    add: Callable[[list[Any]], None]
    left: int

    def full(self) -> None:
        """Queue the current batch, and begin another one."""

    def reserve(self, size: int) -> bool:
        """Reserve memory for a frame of this size until its row is written; False if there is no room."""


class Tap(NamedTuple):
    """The settings of a captured channel: where its rows go, and what is captured of its requests.

    Attributes:
        frames: which requests are kept whole (`kept_frames`).
        partition_sample: the part (0 to 1) of large frames that are read to the end, to capture all of their
            partitions.
    """

    recorder: Recorder
    connection: int
    ip: str
    listener: str
    frames: str = "off"
    partition_sample: float = 1.0


# Whole requests are kept with their rows, for replay, without secrets (issue 7).
#
#     blank    every request unchanged, except Produce, whose payload is generated from its row
#     keep     also Produce with its payload
#
# Secrets are never kept: in requests that contain any (SASL tokens, SCRAM credentials, delegation tokens, configs that
# may be passwords, requests in an Envelope), and in unknown APIs, all bytes after the client id are replaced by zeros.
# Tokens without a Kafka header have no rows. Responses are not kept.
#
# A request larger than one read is only kept in mode `keep`, which assembles it as it is forwarded. A request is not
# kept if it is larger than FRAME_BYTES_MAX, if RESERVED_ROWS_MAX others of its connection await responses, or if the
# recorder has no room: its row has no frame. Room for the whole request is reserved when it begins, and released when
# its row is written, with or without the frame.

KEEP: Final = "keep"
NOT_KEPT: Final = b""
FRAME_BYTES_MAX: Final = 2 * 1024 * 1024  # twice Java's max.request.size
RESERVED_ROWS_MAX: Final = 64

_ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM, _ENVELOPE = 33, 44, 51, 58
_SECRET: Final = frozenset(
    (
        SASL_AUTHENTICATE, CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN, _ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS, _ALTER_SCRAM, _ENVELOPE,
    )
)  # fmt: skip


class Keeper:
    """Keeps copies of one connection's requests, for replay.

    Args:
        mode: KEEP to keep also the payloads of Produce requests.
        reserve: reserves memory for a request of this size; returns False if there is none.
    """

    __slots__ = ("_frame_bytes", "_partial", "_reserve", "payloads")

    def __init__(self, mode: str, reserve: Callable[[int], bool]) -> None:
        self.payloads = mode == KEEP
        self._reserve = reserve
        self._partial: bytearray | None = None  # the part of the current request that was forwarded
        self._frame_bytes = 0

    def keep(
        self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, owed: int
    ) -> bytes | bytearray:
        """Return a copy of the request at `pos`, or NOT_KEPT; `passed` extends the copy of an incomplete request.

        Args:
            owed: the number of the connection's rows that await responses; if there are too many, nothing is kept.
        """
        length, key, _, _, _ = head
        frame_end = pos + 4 + length
        self._partial = None
        if length > FRAME_BYTES_MAX or owed >= RESERVED_ROWS_MAX or (key == PRODUCE and not self.payloads):
            return NOT_KEPT
        secret = key in _SECRET or key not in API_NAMES
        if frame_end > end and not self.payloads and not secret:
            return NOT_KEPT
        if not self._reserve(4 + length):
            return NOT_KEPT
        if secret:
            return bytes(buf[pos : min(body, frame_end)]) + bytes(max(frame_end - body, 0))
        if frame_end <= end:
            return bytes(buf[pos:frame_end])
        self._partial = bytearray()
        self._frame_bytes = 4 + length
        return self._partial

    def incomplete(self) -> bool:
        """Whether the last kept request has bytes that were not forwarded yet."""
        return self._partial is not None

    def passed(self, buf: Buffer, start: int, stop: int) -> None:
        """Add forwarded bytes to the copy of the incomplete request; bytes after its end belong to the next one."""
        partial = self._partial
        if partial is None:
            return
        partial += memoryview(buf)[start : min(stop, start + self._frame_bytes - len(partial))]
        if len(partial) >= self._frame_bytes:
            self._partial = None


def complete_frame(frame: Any, request_bytes: int) -> bytes:
    """Return the kept bytes of a request; empty if not all of them were forwarded before the connection ended."""
    return bytes(frame) if len(frame) == request_bytes + 4 else b""


def requested_mutations(
    engine: Engine, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, now_ms: int
) -> int:
    """Return how many partition mutations a request asks for; NONE if it is incomplete or too large to be parsed."""
    length, key, version, _, _ = head
    frame_end = pos + 4 + length
    fields_at = skip_header_tags(buf, body, min(end, frame_end), flexible=flexible(key, version))
    if end < frame_end or fields_at is None or length + 4 > AT_ONCE_BYTES_MAX:
        return NONE
    try:
        asked = topic_mutations.read_request(bytes(buf[pos:frame_end]), fields_at - pos, key, version)
    except WireError:  # the broker will report the error
        return NONE
    quotas = engine.mutations
    total = 0
    for topic in asked.topics:
        size = quotas.sizes.get(topic.topic_id if topic.name is None else topic.name, now_ms) or 0
        cost = topic.partitions
        if key == DELETE_TOPICS:
            cost = size or 1
        elif key == CREATE_PARTITIONS:
            cost -= size or max(cost - 1, 0)
        elif cost < 0:
            cost = quotas.default_partitions
        total += max(cost, 0)
    return min(total, INT32_MAX)


_GOLDEN_RATIO: Final = 0.6180339887


# The longest part of a client id that is kept, in bytes or characters; bounds the rows of a client with many ids.
CLIENT_ID_MAX: Final = 1024
# A request that arrives this soon after a mute has arrived during it: loops and timers are late by a few ms.
_LATE_MS: Final = 10
_MUTATING: Final = frozenset((CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS))
_PARTITIONS: Final = Row.PARTITIONS


@dataclass(slots=True, eq=False)
class Capture(Observer):
    """Captures the requests of one channel: makes a row for each, from the channel's events.

    Args:
        state: the channel's state, which is made with this observer.
        times: measures the broker time of its requests.

    Attributes:
        keeper: keeps whole requests; None if they are not kept.
        kept_from: the position in the receive buffer of the first byte not yet copied for the kept request.
    """

    entry_bytes: ClassVar[int] = ENTRY_BYTES + ROW_BYTES
    walks_all: ClassVar[bool] = True

    _state: ChannelState
    _tap: Tap
    _times: RequestTimes
    _recorder: Recorder = field(init=False)
    keeper: Keeper | None = field(init=False)
    kept_from: int = 0
    _read_plain: Callable[[Buffer, int, int, int, int], list[PartitionRecords] | None] = field(init=False)
    _sample_position: float = field(init=False)
    _produced: list[PartitionRecords] = field(default_factory=list)  # of the last Produce; it may still grow
    _fetched: Sequence[PartitionRecords] = ()  # of a Fetch response whose partitions were read at once
    # The rows whose responses are still to come.
    _awaiting_response: deque[list[Any]] = field(default_factory=deque)
    _seq: int = 0
    _origin: RowOrigin | None = None
    _origin_identity: Identity | None = None  # the identity of `RowOrigin`
    _incomplete: list[Any] | None = None  # the row of the last request, if that is not complete yet
    _acks_zero: list[Any] | None = None  # the same for a request with acks=0
    _walked_row: list[Any] | None = None  # the row of the response being walked
    _request_walk: Walk | None = None  # the walk through the large request, which continues
    _waiting_since_ns: int = 0  # 0 if no request waits
    _held: bool = False
    # The longest mute since the last row, and its reason.
    _mute_ms: int = 0
    _muting_throttle: Muting | None = None

    def __post_init__(self) -> None:
        tap = self._tap
        self._recorder = tap.recorder
        self.keeper = None if tap.frames == "off" else Keeper(tap.frames, tap.recorder.reserve)
        self._read_plain = PlainProduce().read
        # Connections start at different points of the sequence, so that many short ones also have their share.
        self._sample_position = tap.connection * _GOLDEN_RATIO % 1

    def request_direction(self) -> RequestDirection:
        """Return the channel's request direction; if whole requests are kept, it passes their bytes to the keeper."""
        if self.keeper is None:
            return RequestDirection(self._state, self.handled)
        return _KeptRequests(self._state, self)

    # Events of the two directions.

    def handled(  # noqa: C901 - a call a request costs 3 %
        self,
        direction: RequestDirection,
        buf: Buffer,
        pos: int,
        end: int,
        body: int,
        head: RequestHead,
        now_ms: int,
    ) -> int:
        """Begin the row of a handled request; returns 0, or the order MORE if more of the request is needed."""
        state = self._state
        known = state.request_throttle_version is state.engine.version and not self._times.armed
        if state.request_throttle is not None or not known:
            order = self._times.measure(direction, buf, pos, end, body, head, now_ms)
            state.unmeasured_version = None  # every request of a captured client comes to `handled`
            if order:
                return order
        now_ns = state.now_ns
        if self._incomplete is not None:
            self._note_sent(self._incomplete)
        if state.identity is not self._origin_identity:
            self._update_origin(buf, pos, body)
        seq = self._seq
        row: list[Any] = [head, self._origin, seq, now_ns, now_ns, NONE, NONE_NS, 0, 0, "", 0, ()]
        self._seq = seq + 1
        if self.keeper is not None:
            self._keep(self.keeper, row, buf, pos, end, body, head)
        if self._waiting_since_ns or self._mute_ms:
            self._note_decisions(row, direction.verdict, now_ns, now_ms)
        if pos + 4 + head[0] > end:
            self._incomplete = row
            self._request_walk = direction.walk
        key = head[1]
        if key == PRODUCE:
            row[_PARTITIONS] = self._produced  # a list that may still grow
            if not direction.response_owed:
                return self._finish_acks_zero(direction, row)
        elif key in _MUTATING:
            row[Row.MUTATIONS] = requested_mutations(state.engine, buf, pos, end, body, head, now_ms)
        self._awaiting_response.append(row)
        return 0

    def waits(self, held: bool) -> None:
        """Note that the next request waits from now on; the time until it is handled will be its delay in the row.

        Args:
            held: whether it is held at its header; otherwise the channel is muted.
        """
        self._waiting_since_ns = self._waiting_since_ns or self._state.now_ns
        self._held = self._held or held

    def muted(self, throttle: Muting, throttle_ms: int, mute_ms: int) -> None:
        """Store the mute and its throttle for the next row if it is the longest one since the last row.

        A mute by a connection rate is ignored, since no response contains it.
        """
        if isinstance(throttle, UserThrottle):
            return
        limits = self._state.mute_limits
        if limits.group_session_timeout_ms is None and isinstance(throttle, MutationThrottle):
            mute_ms = throttle_ms  # the response has the full throttle time (`handlers.topic_mutations`)
        if mute_ms > self._mute_ms:
            self._mute_ms, self._muting_throttle = mute_ms, throttle

    def walked(self, direction: ChannelDirection, walk: Walk, now_ms: int) -> None:  # noqa: ARG002 - see Observer
        """At the end of a walked frame, complete its row.

        For a Produce, store the throttle time of its topics; for a Fetch response, write the row.
        """
        if direction.walk is not None:
            return
        if direction is not self._state.requests:
            self._clear_decision()  # its response cannot contain the topics' throttle time: the head has passed
            if self._walked_row is not None:
                row, self._walked_row = self._walked_row, None
                self._write(row)
        elif walk is self._request_walk:
            self._request_walk = None
            incomplete = self._acks_zero or self._incomplete
            if incomplete is not None:
                self._put_decision(incomplete)
            else:
                self._clear_decision()  # its response came first, without a throttle time
            if self.keeper is None or not self.keeper.incomplete():
                self._write_acks_zero()

    def response_begun(self, direction: ChannelDirection, entry: Entry) -> None:
        """Complete the row of the request to which this response belongs; requests of Sluice's own have none."""
        owed = self._awaiting_response
        if not owed or owed[0][Row.HEAD][Head.CORRELATION_ID] != entry[0]:
            return  # a request of Sluice's own, or a bare token
        row = owed.popleft()
        if row is self._incomplete:
            self._note_sent(row)
        row[Row.UPSTREAM_NS] = self._state.now_ns - row[Row.SENT_NS]
        row[Row.RESPONSE_BYTES] = direction.frame_bytes - 4
        if self._mute_ms:
            self._put_decision(row)
        head = row[Row.HEAD]
        if head[Head.API_KEY] == FETCH:
            self._finish_fetch(row, head[Head.API_VERSION], direction.walk)
        else:
            self._write(row)

    def divided(self) -> None:
        """Store the throttle time of a Fetch response in its row, which is written when all of it was walked."""
        if self._walked_row is not None:
            self._put_decision(self._walked_row)

    def local_response_sent(self, entry: Entry, response: bytes | bytearray | memoryview) -> None:
        """Complete the row of a request that got a local response."""
        owed = self._awaiting_response
        if owed and owed[0][Row.HEAD][Head.CORRELATION_ID] == entry[0]:
            row = owed.popleft()
            row[Row.RESPONSE_BYTES] = int.from_bytes(response[:4], "big")
            self._write(row)

    def broker_changed(self, broker: int) -> None:
        """Correct the broker in all unfinished rows, since the connection leads to a different one than intended."""
        origins: dict[RowOrigin, RowOrigin] = {}
        rows = list(self._awaiting_response)
        if self._acks_zero is not None:
            rows.append(self._acks_zero)
        for row in rows:
            origin: RowOrigin = row[Row.ORIGIN]
            row[Row.ORIGIN] = origins.setdefault(origin, origin._replace(broker=broker))
        if self._origin is not None:
            self._origin = origins.get(self._origin, self._origin._replace(broker=broker))

    def close(self, now_ms: int) -> Iterator[None]:  # noqa: ARG002 - see Observer
        """Write the rows whose responses can no longer come."""
        self._write_acks_zero()
        if self._walked_row is not None:
            self._write(self._walked_row)
            self._walked_row = None
        while self._awaiting_response:
            self._write(self._awaiting_response.popleft())
        return iter(())

    # Walks.

    def produce_walk(self, buf: Buffer, pos: int, end: int, body: int, head: RequestHead) -> Walk | None:
        """Return a walk that captures the partitions of a Produce; None if its only partition could be read at once.

        All bytes before the request have been forwarded.
        """
        if self._incomplete is not None:
            self._note_sent(self._incomplete)
        charges = self._state.engine.charges_produced_topics
        if not charges:
            found = self._read_plain(buf, body, end, pos + 4 + head[0], head[2])
            if found is not None:
                self._produced = found
                return None
        sizes: Sizes | None = {} if charges else None
        walk = CapturedProduceWalk(head[2], head[0], sizes, whole=self._walks_whole(head[0]))
        self._produced = walk.partitions
        return walk

    def fetch_walk(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, version: int
    ) -> Walk | None:
        """Return a walk that captures a Fetch response's partitions; None if all could be read from `buf` at once."""
        state, frame_bytes = self._state, direction.frame_bytes
        sizes: Sizes | None = {} if state.engine.charges_fetched_topics else None
        frame_end = pos + frame_bytes
        rewritten = state.settings.address_map is not None and version >= ENDPOINTS_SINCE
        divided = direction.dividing is not None
        if sizes is None and not divided and (frame_end <= end or not rewritten):
            found = read_plain_fetch(buf, pos, end, frame_end, version)
            if found is not None:
                self._fetched = found
                return None
        whole = divided or self._walks_whole(frame_bytes - 4)
        return CapturedFetchWalk(version, frame_bytes - 4, sizes, whole=whole)

    def _walks_whole(self, length: int) -> bool:
        """Whether a frame is walked to its end: every small one, and an evenly distributed share of large ones."""
        if length < REST_BYTES_MIN:
            return True
        self._sample_position += self._tap.partition_sample
        if self._sample_position < 1:
            return False
        self._sample_position -= 1
        return True

    # Kept requests.

    def end_buffer(self, direction: RequestDirection, buf: Buffer, stop: int) -> None:
        """Keep the forwarded bytes of an incomplete request: all before `stop` have been forwarded."""
        keeper = self.keeper
        if keeper is not None and keeper.incomplete():
            keeper.passed(buf, self.kept_from, stop)
            if direction.walk is None and not keeper.incomplete():
                self._write_acks_zero()

    def _keep(
        self, keeper: Keeper, row: list[Any], buf: Buffer, pos: int, end: int, body: int, head: RequestHead
    ) -> None:
        """Keep the request, and append its bytes to its row."""
        if keeper.incomplete():  # the previous request ends where this one begins
            keeper.passed(buf, self.kept_from, pos)
        self._write_acks_zero()
        self.kept_from = pos
        row.append(keeper.keep(buf, pos, end, body, head, len(self._awaiting_response)))

    # Rows.

    def _update_origin(self, buf: Buffer, pos: int, body: int) -> None:
        """Use the client id of this request for rows from now on."""
        state, tap = self._state, self._tap
        self._origin_identity = state.identity
        raw = bytes(buf[pos + REQUEST_HEAD.size : min(body, pos + REQUEST_HEAD.size + CLIENT_ID_MAX)])
        name = raw.decode("utf-8", "backslashreplace")[:CLIENT_ID_MAX]
        tap.recorder.left -= len(name) // NAME_CHARACTERS
        self._origin = RowOrigin(
            tap.connection, tap.ip, tap.listener, state.settings.broker, state.user, name
        )

    def _note_sent(self, row: list[Any]) -> None:
        """Store when all of the request had been forwarded: its response, or the next request, has arrived."""
        self._incomplete = None
        row[Row.SENT_NS] = min(max(self._state.requests.moved_ns, row[Row.HANDLED_NS]), self._state.now_ns)

    def _finish_acks_zero(self, direction: RequestDirection, row: list[Any]) -> int:
        """Complete the row of a Produce with acks=0 when all of it has been forwarded."""
        self._acks_zero = row
        if direction.walk is None and (self.keeper is None or not self.keeper.incomplete()):
            self._write_acks_zero()
        return 0

    def _finish_fetch(self, row: list[Any], version: int, walk: Walk | None) -> None:
        """Complete the row of a Fetch, at the end of its response if that is walked."""
        if flexible(FETCH, version):  # Kafka charges without the tag section of the header
            row[Row.RESPONSE_BYTES] -= 1
        if isinstance(walk, CapturedFetchWalk):
            row[_PARTITIONS] = walk.partitions
            self._walked_row = row
        else:
            row[_PARTITIONS], self._fetched = self._fetched, ()
            self._write(row)

    def _write_acks_zero(self) -> None:
        """Write the row of a Produce with acks=0, if one is pending."""
        if self._acks_zero is not None:
            row, self._acks_zero = self._acks_zero, None
            if self._incomplete is row:  # it has no response, so its sent time is not needed
                self._incomplete = None
            self._write(row)

    def _note_decisions(self, row: list[Any], verdict: Verdict, now_ns: int, now_ms: int) -> None:
        """Put the request's waiting time in ms, and the decisions made during it, into the row."""
        self._put_decision(row)
        if not self._waiting_since_ns:
            return
        if self._held or now_ms <= verdict.until_ms + _LATE_MS:
            row[Row.DELAY_MS] = min((now_ns - self._waiting_since_ns) // 1_000_000, INT32_MAX)
        if self._held:
            row[Row.QUOTA] = row[Row.QUOTA] or PRODUCE_QUOTA.name
        self._waiting_since_ns = 0
        self._held = False

    def _put_decision(self, row: list[Any]) -> None:
        """Put the throttle decisions since the last row into the row, and clear them."""
        if self._mute_ms > row[Row.THROTTLE_MS]:
            row[Row.THROTTLE_MS] = min(self._mute_ms, INT32_MAX)
            kind = BY_KEY.get(getattr(self._muting_throttle, "key", ""))
            row[Row.QUOTA] = "" if kind is None else kind.name
        self._clear_decision()

    def _clear_decision(self) -> None:
        """Clear the decisions that wait for a row."""
        self._mute_ms, self._muting_throttle = 0, None

    def _write(self, row: list[Any]) -> None:
        """Give a complete row to the recorder, with its frame if that is kept."""
        recorder = self._recorder
        if self.keeper is not None:
            recorder.left -= len(row[Row.FRAME]) // FRAME_BYTES
        recorder.add(row)
        left = recorder.left = recorder.left - (len(row[_PARTITIONS]) or 1)
        if left <= 0:
            recorder.full()


class _KeptRequests(RequestDirection):
    """The request direction of a channel whose whole requests are kept."""

    __slots__ = ("_capture",)

    def __init__(self, state: ChannelState, capture: Capture) -> None:
        super().__init__(state, capture.handled)
        self._capture = capture

    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """Handle the bytes as `RequestDirection` does, and report what is forwarded."""
        self._capture.kept_from = start
        verdict = super().receive(buf, start, end, now_ns)
        self._capture.end_buffer(self, buf, start + verdict.passing)
        return verdict
