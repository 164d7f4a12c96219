"""Reads Kafka's protocol in both directions of a captured connection, and makes a row of each request.

The bytes come in order (`offline.imports.reassembly`), with skips where some are not known. A frame is not kept: of a
Produce request and a Fetch response the partitions are walked (`protocol.walks`) while the records pass, of others only
the fields that a row needs are read, from the frame's beginning. What is skipped inside a frame whose length is known
changes nothing but the partitions that it may hide. If a frame's end is skipped, the direction is out of step: the next
frame is searched at the beginnings of packets, where a header must be plausible in all its parts. A size is never
guessed.

Requests and responses are matched by correlation id, as Kafka's clients do. A connection is Kafka's if a plausible
request header comes first; in a connection whose beginning was not captured, wherever it comes, from either side.

The principal is only told where it is certain: by a complete SASL exchange (KIP-43, KIP-152) whose name can be read, or
ANONYMOUS if requests were served from the connection's beginning without one. It is "" otherwise. OAUTHBEARER's name is
not read: it depends on the broker's settings.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from protocol import throttle
from protocol.api import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    MAX_VERSION,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    flexible,
)
from protocol.capture import NONE
from protocol.errors import TruncatedError, WireError
from protocol.header import REQUEST_HEAD, RESPONSE_HEAD, RequestHead, body_start
from protocol.messages import metadata, produce, sasl, topic_mutations
from protocol.messages.sasl_exchange import SaslExchange
from protocol.walks.captured import UNCOUNTED, PartitionRecords, PartitionRows, records_in
from protocol.walks.fetch import PartitionsWalk
from protocol.walks.produce import ProduceWalk
from protocol.walks.walk import OTHER_TOPICS, Walk

ANONYMOUS: Final = "ANONYMOUS"
# The longest client id that is kept, as in the proxy's captures.
CLIENT_ID_MAX: Final = 1024
# Requests without a response yet; beyond it the oldest one's response counts as missing.
OWED_MAX: Final = 10_000
ROW_BYTES: Final = 1024
PARTITION_BYTES: Final = 150
# The longest frame that is kept whole to read a small field: SASL tokens, mutations, responses to Produce.
WHOLE_MAX: Final = 64 * 1024
METADATA_MAX: Final = 256 * 1024
NAMES_MAX: Final = 100_000
# Four times Kafka's default of socket.request.max.bytes; only where a boundary is searched.
PLAUSIBLE_BYTES_MAX: Final = 400 * 1024 * 1024

# A client of a later release than this one may first ask with a version that is not known yet.
_VERSIONS_LATER: Final = 3
_NO_API: Final = -1 - _VERSIONS_LATER

_HEAD_BYTES: Final = REQUEST_HEAD.size
_PREFIX_BYTES: Final = 4
_RESPONSE_HEAD_BYTES: Final = RESPONSE_HEAD.size
_LENGTH_MIN: Final = _HEAD_BYTES - _PREFIX_BYTES
_RESPONSE_LENGTH_MIN: Final = _RESPONSE_HEAD_BYTES - _PREFIX_BYTES
# A connection that waits longer was closed; `ingest` takes no longer time.
_UPSTREAM_US_MAX: Final = 86_400_000_000
_INT32: Final = Struct(">i")
_INT32_MAX: Final = 0x7FFFFFFF
_BATCH_HEADER: Final = 61
# The fields before the throttle time in a response, where it is not the last field: header tags and an error code.
_THROTTLE_WITHIN: Final = 64
_NO_FRAME: Final = -1  # in place of a frame's size: the next one has to be searched
_TOKEN_KEY: Final = -1  # of an owed SASL token without a Kafka header
_NO_CLAIM: Final = ""
_TOPIC_IDS_SINCE: Final = 10  # in Metadata responses
_SASL: Final = frozenset((SASL_HANDSHAKE, SASL_AUTHENTICATE))
_MUTATING: Final = frozenset((CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS))
_WHOLE_REQUESTS: Final = _SASL | _MUTATING
_BEFORE_USER: Final = frozenset((API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE))
# A TLS record: its type, the major version 3, a minor one.
_TLS_RECORDS: Final = frozenset(range(20, 25))
_TLS_HEAD_BYTES: Final = 5
_TLS_RECORD_MAX: Final = 16384 + 2048


@dataclass(slots=True, eq=False)
class Request:
    """A captured request; its fields become a row (`protocol.capture`).

    Attributes:
        time_us: when its header had come; sent_us: when its last byte had, as far as it was captured.
        upstream_us: from then to the response's first byte; NONE without a response.
        weight: the number of its partitions, once they wait for the response.
    """

    seq: int
    api_key: int
    api_version: int
    correlation_id: int
    request_bytes: int
    time_us: int
    sent_us: int
    client_id: str
    principal: str
    response_bytes: int = NONE
    upstream_us: int = NONE
    throttle_ms: int = 0
    mutations: int = 0
    partitions: list[PartitionRecords] = field(default_factory=list)
    weight: int = 0


@dataclass(slots=True)
class Counts:
    """What was seen of connections' contents; bytes are those of payloads.

    Attributes:
        requests: rows; unanswered: those without a response though one was owed.
        stray_responses: responses whose request was not captured.
        headers_cut: requests whose header was not captured, which have no row.
        client_ids_cut: requests whose client id was not captured whole, and could not be told from one before.
        out_of_step: how often a frame's end was not known; unread: the bytes until the next frame that was found.
    """

    requests: int = 0
    unanswered: int = 0
    stray_responses: int = 0
    headers_cut: int = 0
    client_ids_cut: int = 0
    out_of_step: int = 0
    unread: int = 0


def is_request(data: bytes) -> bool:
    """Whether `data` begins with a plausible request header: known API, (nearly) known version, printable client id."""
    if len(data) < _HEAD_BYTES:
        return False
    length, key, version, _, size = REQUEST_HEAD.unpack_from(data)
    if not _LENGTH_MIN <= length <= PLAUSIBLE_BYTES_MAX or not -1 <= size <= length - _LENGTH_MIN:
        return False
    if not 0 <= version <= MAX_VERSION.get(key, _NO_API) + _VERSIONS_LATER:
        return False
    name = data[_HEAD_BYTES : _HEAD_BYTES + max(size, 0)]
    return not any(byte < 0x20 or byte == 0x7F for byte in name)


def is_tls(data: bytes) -> bool:
    """Whether a TLS record begins here."""
    if len(data) < _TLS_HEAD_BYTES:
        return False
    length = int.from_bytes(data[3:5], "big")
    return data[0] in _TLS_RECORDS and data[1] == 3 and data[2] <= 4 and 0 < length <= _TLS_RECORD_MAX


class _Rows(PartitionRows):
    """Collects the partitions of a frame; counts the records of one that is a single batch, whose header has come.

    So the result does not depend on how the stream was cut into packets.
    """

    __slots__ = ()

    def partition(
        self,
        topic: bytes,
        index: int,
        _error_code: int,
        _high_watermark: int,
        buf: bytearray | memoryview,
        records_at: int,
        size: int,
        limit: int,
    ) -> None:
        """Add a partition of the frame (see `PartitionSink`)."""
        if size <= 0:
            self.add(topic, index, 0, 0)
            return
        known = min(size, _BATCH_HEADER)
        if records_at + known > limit:
            raise TruncatedError("the header of a record batch has not come")
        stop = records_at + size
        records = (
            UNCOUNTED if known < _BATCH_HEADER else records_in(buf, records_at, stop, records_at + known)
        )
        self.add(topic, index, size, records)


class Frames(ABC):
    """The frames of one direction: keeps the bytes that a reader needs, and passes the rest by its number.

    Attributes:
        is_lost: whether the direction is out of step.
        kept: the beginning of a frame that is not complete enough to be read; or what its walk has yet to read.
        left: the bytes of the current frame that were not passed yet, those in `kept` included; 0 between frames.
        begun_us: when the current frame's first byte came.
    """

    __slots__ = ("_through", "_walk", "begun_us", "conversation", "is_lost", "kept", "left", "rows")

    def __init__(self, conversation: "Conversation", *, is_lost: bool) -> None:
        self.conversation = conversation
        self.is_lost = is_lost
        self.kept = b""
        self.left = 0
        self.begun_us = 0
        self.rows = _Rows()
        self._walk: Walk | None = None
        self._through = 0  # bytes that pass before the walk goes on

    @abstractmethod
    def begin(self, data: bytes, time_us: int, *, partial: bool) -> int:
        """Read the frame that begins `data`; returns its size with its prefix, 0 if it needs more bytes, _NO_FRAME.

        Args:
            partial: no more bytes of its beginning will come, so it is read as far as it goes.
        """

    @abstractmethod
    def ended(self, time_us: int) -> None:
        """Complete the current frame, all of which has come or was skipped."""

    @abstractmethod
    def found(self, data: bytes) -> bool:
        """Whether a frame begins here, while the direction is out of step."""

    @abstractmethod
    def finish(self) -> None:
        """Complete a frame of which no more comes."""

    def walk(self, walk: Walk) -> None:
        """Walk through the frame that begins."""
        self._walk, self._through = walk, 0

    def receive(self, data: bytes, time_us: int) -> None:
        """Receive the next bytes of the stream."""
        if self.is_lost:
            if not self.found(data):
                self.conversation.unread += len(data)
                return
            self.is_lost = False
        if self.kept:
            data, self.kept = self.kept + data, b""
        else:
            self.begun_us = time_us
        pos, end = 0, len(data)
        while pos < end and not self.kept:
            if not self.left and not self._begin(data, pos, time_us):
                return
            pos = self._pass(data, pos, time_us)

    def skip(self, size: int, time_us: int) -> None:
        """Skip bytes of the stream that are not known."""
        if not self.is_lost and not self.left:
            self._begin_partial(time_us)
        if self.is_lost:
            self.conversation.unread += size
            return
        if self.conversation.is_over:
            return
        after = self.left - len(self.kept) - size
        if self._walk is not None and not self.kept and size <= self._through:
            self._through -= size
        else:
            self.abandon_walk()
        self.kept = b""
        self.left = max(after, 0)
        if after <= 0:
            self.ended(time_us)
        if after < 0:
            self._lose_step()

    def abandon_walk(self) -> None:
        """End the walk through the current frame, if there is one: the rest of it counts as one partition."""
        if self._walk is not None:
            self._walk = None
            # Of the last partition that was read, records may be to come.
            unread = self.left - self._through
            if unread > 0:
                self.rows.add(OTHER_TOPICS, UNCOUNTED, unread, UNCOUNTED)

    def _begin(self, data: bytes, pos: int, time_us: int) -> bool:
        """Begin the frame at `pos`; False if it needs more bytes, or is none."""
        stop = len(data)
        if stop - pos >= _PREFIX_BYTES:
            stop = min(stop, pos + _PREFIX_BYTES + max(_INT32.unpack_from(data, pos)[0], 0))
        size = self.begin(data[pos:stop], time_us, partial=False)
        if size > 0:
            self.left = size
        elif not size:
            self.kept = data[pos:]
        elif not self.conversation.is_over:
            self._lose_step()
            self.conversation.unread += len(data) - pos
        return size > 0

    def _begin_partial(self, time_us: int) -> None:
        """Begin a frame whose beginning was captured in part; without its length the direction is out of step."""
        data, self.kept = self.kept, b""
        size = self.begin(data, time_us, partial=True) if len(data) >= _PREFIX_BYTES else _NO_FRAME
        if size > 0:
            self.left = size - len(data)
            self.abandon_walk()
        elif not self.conversation.is_over:
            self._lose_step()

    def _lose_step(self) -> None:
        self.conversation.lose_step()
        self.is_lost, self.kept, self.left, self._walk = True, b"", 0, None

    def _pass(self, data: bytes, pos: int, time_us: int) -> int:
        """Pass bytes of the current frame from `pos` on; returns the position after them."""
        if self._walk is None or self._through:
            count = min(self.left, len(data) - pos)
            if self._walk is not None:
                count = min(count, self._through)
                self._through -= count
        else:
            count = self._feed(self._walk, data, pos)
            if not count and self._walk is not None:
                self.kept = data[pos:]
        self.left -= count
        if not self.left:
            self._walk = None
            self.ended(time_us)
            self.begun_us = time_us
        return pos + count

    def _feed(self, walk: Walk, data: bytes, pos: int) -> int:
        """Continue the walk at `pos`; returns how many bytes it has passed, 0 if it needs more, or has ended."""
        count = 0
        try:
            count = walk.feed(memoryview(data), pos, len(data), None)
            self._through = walk.passthrough
            if not walk.done:
                return count
        except WireError:
            self.rows.partitions.clear()  # a length may have been larger than the frame
        self._walk, self._through = None, 0
        return count


class Requests(Frames):
    """The direction from the client: a row begins with each request."""

    __slots__ = ("current", "is_unanswered")

    def __init__(self, conversation: "Conversation", *, is_lost: bool) -> None:
        super().__init__(conversation, is_lost=is_lost)
        self.current: Request | None = None
        self.is_unanswered = False  # acks=0

    def found(self, data: bytes) -> bool:
        """Whether a request begins here."""
        return is_request(data)

    def begin(self, data: bytes, time_us: int, *, partial: bool) -> int:
        """Read a request's header, and begin its row."""
        conversation = self.conversation
        if conversation.bare_tokens and not (conversation.tokens_may_have_ended() and is_request(data)):
            return self._token(data, partial=partial)
        if not conversation.requests and is_tls(data):
            conversation.give_up(tls=True)
            return _NO_FRAME
        if len(data) < _HEAD_BYTES:
            return self._shorter(data, partial=partial)
        head: RequestHead = REQUEST_HEAD.unpack_from(data)
        length, key, version, _, size = head
        if length < _LENGTH_MIN or not -1 <= size <= length - _LENGTH_MIN:
            return conversation.no_request()
        if not conversation.requests and not is_request(data):
            return conversation.no_request()
        if not partial and self._needs(data, head) > len(data):
            return 0
        self._begin_row(data, head, time_us)
        if key == PRODUCE and 0 <= version <= MAX_VERSION[PRODUCE]:
            self.walk(ProduceWalk(version, length, None, self.rows))
        return _PREFIX_BYTES + length

    def ended(self, time_us: int) -> None:
        """Complete the request: note when all of it had come."""
        request, self.current = self.current, None
        if request is not None:
            request.sent_us = time_us
            if self.is_unanswered:
                self.conversation.emit(request)
            else:
                self.conversation.weigh(request)

    def finish(self) -> None:
        """Complete a request of which no more comes."""
        self.abandon_walk()
        if self.current is not None:
            self.ended(self.current.sent_us)

    def _shorter(self, data: bytes, *, partial: bool) -> int:
        """Return as `begin` with less than a header; if it was captured in part, the request has no row."""
        if len(data) < _PREFIX_BYTES:
            return 0
        (length,) = _INT32.unpack_from(data)
        if length < _LENGTH_MIN or (partial and not self.conversation.requests):
            return self.conversation.no_request()
        if not partial:
            return 0
        self.conversation.doubt_principal()
        self.conversation.counts.headers_cut += 1
        return _PREFIX_BYTES + int(length)

    def _needs(self, data: bytes, head: RequestHead) -> int:
        """Return how many bytes of the request must have come before its row can begin; more, if they have not."""
        length, key, version, _, size = head
        frame_bytes = _PREFIX_BYTES + length
        body = _HEAD_BYTES + max(size, 0)
        if body > len(data):
            return body
        if key in _WHOLE_REQUESTS:
            return frame_bytes if frame_bytes <= WHOLE_MAX else body
        if key != PRODUCE or frame_bytes <= len(data):
            return body
        return len(data) + 1 if _acks(data, version) is None else body

    def _begin_row(self, data: bytes, head: RequestHead, time_us: int) -> None:
        length, key, version, correlation_id, size = head
        conversation = self.conversation
        conversation.served(key)
        name = self._client_id(data, size)
        request = Request(
            conversation.requests,
            key,
            version,
            correlation_id,
            length,
            time_us,
            time_us,
            name,
            conversation.principal,
        )
        conversation.add_request()
        self.rows = _Rows(request.partitions)
        self.current = request
        self.is_unanswered = key == PRODUCE and _acks(data, version) == 0
        if not self.is_unanswered:
            conversation.owe(request)
        if key in _WHOLE_REQUESTS:
            whole = len(data) >= _PREFIX_BYTES + length
            self._read_whole(request, data[: _PREFIX_BYTES + length] if whole else b"")

    def _client_id(self, data: bytes, size: int) -> str:
        """Return the client id; if it was cut off, that of the request before if it begins alike, or ""."""
        raw = data[_HEAD_BYTES : _HEAD_BYTES + max(size, 0)]
        conversation = self.conversation
        if len(raw) < size:
            if len(conversation.client_id) == size and conversation.client_id.startswith(raw) and raw:
                raw = conversation.client_id
            else:
                conversation.counts.client_ids_cut += 1
                return ""
        conversation.client_id = raw
        return raw[:CLIENT_ID_MAX].decode("utf-8", "backslashreplace")[:CLIENT_ID_MAX]

    def _read_whole(self, request: Request, frame: bytes) -> None:
        """Read a request that matters as a whole: SASL, mutations; `frame` is empty if it was not captured whole."""
        key, version = request.api_key, request.api_version
        try:
            body = body_start(frame, 0, len(frame), key, version) if frame else None
            if key in _MUTATING:
                request.mutations = NONE if body is None else mutations(frame, body, key, version)
            elif body is None:
                self.conversation.doubt_principal()
            elif key == SASL_HANDSHAKE:
                self.conversation.exchange = SaslExchange(sasl.mechanism(frame, body, len(frame)))
            else:
                self.conversation.read_token(frame, *sasl.token_span(frame, body, len(frame), version))
        except WireError:  # the broker will report the error
            request.mutations = NONE if key in _MUTATING else 0

    def _token(self, data: bytes, *, partial: bool) -> int:
        """Read a SASL token without a Kafka header, after SaslHandshake version 0; it has no row."""
        conversation = self.conversation
        if len(data) < _PREFIX_BYTES:
            return 0
        size = _PREFIX_BYTES + int(_INT32.unpack_from(data)[0])
        if not _PREFIX_BYTES <= size <= WHOLE_MAX:
            return conversation.no_request()
        if partial:
            conversation.doubt_principal()
            return size
        if len(data) < size:
            return 0
        conversation.read_token(data, _PREFIX_BYTES, size)
        conversation.owe_token()
        return size


class Responses(Frames):
    """The direction from the broker: responses complete the rows of their requests."""

    __slots__ = ("current",)

    def __init__(self, conversation: "Conversation", *, is_lost: bool) -> None:
        super().__init__(conversation, is_lost=is_lost)
        self.current: Request | None = None

    def found(self, data: bytes) -> bool:
        """Whether a response begins here: to a request that was seen."""
        if len(data) < _RESPONSE_HEAD_BYTES:
            return False
        length, correlation_id = RESPONSE_HEAD.unpack_from(data)
        return (
            _RESPONSE_LENGTH_MIN <= length <= PLAUSIBLE_BYTES_MAX and correlation_id in self.conversation.owed
        )

    def begin(self, data: bytes, time_us: int, *, partial: bool) -> int:  # noqa: ARG002 - see Frames
        """Read a response's head, and complete the row of its request."""
        conversation = self.conversation
        request, length, correlation_id = None, 0, 0
        if len(data) >= _RESPONSE_HEAD_BYTES:
            length, correlation_id = RESPONSE_HEAD.unpack_from(data)
            request = conversation.owed.get(correlation_id)
        if request is None and conversation.token_owed():
            return self._token(data, partial=partial)
        if len(data) < _RESPONSE_HEAD_BYTES:
            return self._shorter(data, partial=partial)
        if length < _RESPONSE_LENGTH_MIN:
            return _NO_FRAME
        frame_bytes = _PREFIX_BYTES + length
        if request is None:
            conversation.counts.stray_responses += 1
            return frame_bytes
        if not partial and len(data) < _response_needs(request, frame_bytes):
            return 0
        conversation.answered(correlation_id)
        self.current = request
        self._complete(request, data, length)
        return frame_bytes

    def _shorter(self, data: bytes, *, partial: bool) -> int:
        """Return as `begin` with less than a head."""
        if len(data) < _PREFIX_BYTES:
            return 0
        (length,) = _INT32.unpack_from(data)
        if length < _RESPONSE_LENGTH_MIN:
            return _NO_FRAME
        return _PREFIX_BYTES + int(length) if partial else 0

    def ended(self, time_us: int) -> None:  # noqa: ARG002 - see Frames
        """Complete the row."""
        request, self.current = self.current, None
        if request is not None:
            self.conversation.emit(request)

    def finish(self) -> None:
        """Complete a response of which no more comes."""
        self.abandon_walk()
        self.ended(self.begun_us)

    def _complete(self, request: Request, data: bytes, length: int) -> None:
        """Put the response into the request's row."""
        key, version = request.api_key, request.api_version
        # As Kafka charges a Fetch: without the tags of the header.
        request.response_bytes = length - (key == FETCH and flexible(FETCH, version))
        request.upstream_us = min(max(self.begun_us - request.sent_us, 0), _UPSTREAM_US_MAX)
        frame = data[: _PREFIX_BYTES + length]
        with suppress(WireError):  # it was not captured, or is malformed
            at = throttle.locate(frame, key, version)
            if at != throttle.NONE:
                request.throttle_ms = max(_INT32.unpack_from(frame, at)[0], 0)
        if key == FETCH:
            self._walk_fetch(request, length)
        elif len(frame) == _PREFIX_BYTES + length:
            self.conversation.read_response(request, frame)
        elif key in _SASL:
            self.conversation.doubt_principal()

    def _walk_fetch(self, request: Request, length: int) -> None:
        self.rows = _Rows(request.partitions)
        with suppress(WireError):  # the layout of this version is not known
            self.walk(PartitionsWalk(request.api_version, length, None, self.rows))

    def _token(self, data: bytes, *, partial: bool) -> int:
        """Read a broker's SASL token without a Kafka header."""
        conversation = self.conversation
        if len(data) < _PREFIX_BYTES:
            return 0
        size = _PREFIX_BYTES + int(_INT32.unpack_from(data)[0])
        if not _PREFIX_BYTES <= size <= WHOLE_MAX:
            return _NO_FRAME
        if len(data) < size and not partial:
            return 0
        conversation.token_came()
        if partial:
            conversation.doubt_principal()
        else:
            conversation.token_answered(data, _PREFIX_BYTES, size)
        return size


class Conversation:
    """What is known of one connection's content.

    Args:
        client: the index of the client's direction; NONE if it is not known.
        begun: whether the connection's first bytes were captured.
        counts: of all connections.
        emit: receives each complete row.
        names: topics by id, which Metadata responses have told; shared by all connections.

    Attributes:
        owed: requests whose responses are still to come, by correlation id, oldest first.
        requests: how many were read.
        unread, out_of_step: as in `Counts`, of this connection.
        is_over: whether the connection is none of Kafka's, and the rest of it is ignored.
        is_tls: whether TLS was seen.
        exchange: the SASL exchange under way; bare_tokens: whether its tokens have no Kafka header.
    """

    __slots__ = (
        "_begins", "_emit", "_is_authenticated", "_is_settled", "_names", "_tokens", "_weight", "bare_tokens", "client",
        "client_id", "counts", "exchange", "frames", "is_over", "is_tls", "out_of_step", "owed", "principal",
        "requests", "unread",
    )  # fmt: skip

    def __init__(
        self,
        client: int,
        counts: Counts,
        emit: Callable[[Request], None],
        names: dict[bytes, str],
        *,
        begun: bool,
    ) -> None:
        self.counts = counts
        self._emit = emit
        self._names = names
        self.client = client
        self.frames: tuple[Frames, Frames] | None = None
        self.owed: OrderedDict[int, Request] = OrderedDict()
        self.requests = 0
        self.client_id = b""
        self.principal = ANONYMOUS if begun else ""
        self.exchange: SaslExchange | None = None
        self.bare_tokens = False
        self.is_over = self.is_tls = False
        self._is_settled = self._is_authenticated = False
        self._begins = begun  # as long as nothing but its beginning has come
        self._tokens = 0
        self._weight = self.unread = self.out_of_step = 0
        if client != NONE:
            self._orient(client, is_lost=not begun)

    # The streams.

    def receive(self, index: int, data: bytes, time_us: int) -> None:
        """Receive the next bytes of a direction."""
        if self.is_over:
            return
        if not self.requests:
            self.is_tls |= is_tls(data)
        if self.frames is None:
            if not is_request(data):
                return
            self._orient(index, is_lost=True)
        assert self.frames is not None, "set just now"
        self.frames[index].receive(data, time_us)

    def skip(self, index: int, size: int, time_us: int) -> None:
        """Skip the next bytes of a direction, which are not known."""
        if self.frames is not None and not self.is_over:
            self.frames[index].skip(size, time_us)

    def finish(self) -> None:
        """Emit the rows that are not complete: no more bytes come."""
        if self.frames is not None and not self.is_over:
            self.frames[1 - self.client].finish()
            self.frames[self.client].finish()
            while self.owed:
                self._unanswered()
        if self.requests:
            self.counts.unread += self.unread
            self.counts.out_of_step += self.out_of_step

    @property
    def held_bytes(self) -> int:
        """The memory of what is kept."""
        kept = sum(len(each.kept) for each in self.frames or ())
        return kept + ROW_BYTES * len(self.owed) + PARTITION_BYTES * self._weight

    def _orient(self, client: int, *, is_lost: bool) -> None:
        self.client = client
        found: tuple[Frames, Frames] = (Requests(self, is_lost=is_lost), Responses(self, is_lost=is_lost))
        self.frames = found if client == 0 else found[::-1]

    # Rows.

    def emit(self, request: Request) -> None:
        """Give a complete row away."""
        self._emit(request)

    def add_request(self) -> None:
        """Count a request."""
        self.requests += 1
        self.counts.requests += 1
        self._begins = False

    def owe(self, request: Request) -> None:
        """Note that a response is owed; the oldest one is given up if there are too many."""
        known = self.owed.pop(request.correlation_id, None)
        if known is not None:
            self._give_up(known)
        elif len(self.owed) >= OWED_MAX:
            self._unanswered()
        self.owed[request.correlation_id] = request

    def weigh(self, request: Request) -> None:
        """Count the memory of a request's partitions until its response comes."""
        if self.owed.get(request.correlation_id) is request:
            request.weight = len(request.partitions)
            self._weight += request.weight

    def answered(self, correlation_id: int) -> None:
        """Take the request of this response from those owed; those before it have none: Kafka keeps the order."""
        while True:
            found, request = self.owed.popitem(last=False)
            if found == correlation_id:
                self._weight -= request.weight
                return
            self._give_up(request)

    def _unanswered(self) -> None:
        _, request = self.owed.popitem(last=False)
        self._give_up(request)

    def _give_up(self, request: Request) -> None:
        """Emit a request without its response."""
        self._weight -= request.weight
        request.weight = 0
        if request.api_key != _TOKEN_KEY:
            self.counts.unanswered += 1
            self._emit(request)

    # What kind of connection it is.

    def no_request(self) -> int:
        """Handle bytes that are no request: at its beginning, the connection is none of Kafka's."""
        if self._begins:
            self.give_up(tls=False)
        return _NO_FRAME

    def lose_step(self) -> None:
        """Note that a direction is out of step."""
        self.out_of_step += 1
        self._begins = False
        self.doubt_principal()

    def give_up(self, *, tls: bool) -> None:
        """Ignore the rest of the connection."""
        self.is_over, self.is_tls = True, tls
        self.frames = None

    # The principal.

    def served(self, key: int) -> None:
        """Note that a request of this API came: with some, the client has its user by now."""
        if key not in _BEFORE_USER:
            self._is_settled = True

    def doubt_principal(self) -> None:
        """Note that bytes are missing which may have changed the principal."""
        if not self._is_settled:
            self.principal = ""
        self.exchange, self.bare_tokens = None, False

    def read_token(self, data: bytes, start: int, stop: int) -> None:
        """Read the client's token in a SASL exchange; without one it is not known what it is."""
        if self.exchange is not None:
            self.exchange.read_token(data, start, stop, _NO_CLAIM)

    def owe_token(self) -> None:
        """Note that the broker owes a token without a Kafka header."""
        self._tokens += 1
        token = Request(0, _TOKEN_KEY, 0, _INT32_MAX + self._tokens, 0, 0, 0, "", "")
        self.owe(token)

    def token_owed(self) -> bool:
        """Whether the next response is a token without a Kafka header."""
        return bool(self.bare_tokens and self.owed) and next(iter(self.owed.values())).api_key == _TOKEN_KEY

    def token_came(self) -> None:
        """Take the oldest owed token from those owed."""
        self.owed.popitem(last=False)

    def tokens_may_have_ended(self) -> bool:
        """Whether a request may follow: how many tokens a mechanism has is only known of those that can be read."""
        return self.exchange is None or (self.exchange.tokens > 0 and not self.exchange.readable)

    def token_answered(self, data: bytes, start: int, stop: int) -> None:
        """Read the broker's token: the exchange goes on, or has succeeded."""
        exchange = self.exchange
        if exchange is None:
            return
        if not exchange.readable:
            self._authenticate(None)
        elif exchange.succeeded(data, start, stop):
            self.bare_tokens = False
            self._authenticate(exchange.name)

    def read_response(self, request: Request, frame: bytes) -> None:
        """Read a complete response that matters as a whole."""
        key, version = request.api_key, request.api_version
        try:
            if key == SASL_HANDSHAKE:
                self._begin_exchange(sasl.handshake_error(frame, 0, len(frame)), version)
            elif key == SASL_AUTHENTICATE and self.exchange is not None:
                self._continue_exchange(self.exchange, frame, version)
            elif key == METADATA and version >= _TOPIC_IDS_SINCE and len(self._names) < NAMES_MAX:
                for topic in metadata.read_topics(frame, version, NAMES_MAX):
                    if topic.name is not None:
                        self._names[topic.topic_id] = topic.name
        except WireError:
            if key in _SASL:
                self.doubt_principal()

    def _begin_exchange(self, error_code: int, version: int) -> None:
        if error_code:
            self.exchange = None
        self.bare_tokens = version == 0 and self.exchange is not None

    def _continue_exchange(self, exchange: SaslExchange, frame: bytes, version: int) -> None:
        result = sasl.verdict(frame, 0, len(frame), version)
        if result.error_code:
            self.exchange = None
        elif not exchange.readable:
            self._authenticate(None)
        elif exchange.succeeded(frame, result.start, result.stop):
            self.exchange = None
            self._authenticate(exchange.name)

    def _authenticate(self, name: str | None) -> None:
        """Set the principal that the broker has accepted; None if its name cannot be read."""
        if name is not None:
            self.principal, self._is_authenticated = name, True
        elif not self._is_authenticated:
            self.principal = ""
        self._is_settled = True


def mutations(frame: bytes, body: int, key: int, version: int) -> int:
    """Return the partition mutations that a complete request asks for (KIP-599).

    Sizes of topics are not known: a topic that is deleted or grows counts as one, and so does the broker's default.

    Raises:
        WireError: it is malformed.
    """
    topics = topic_mutations.read_request(frame, body, key, version).topics
    if key != CREATE_TOPICS:
        return len(topics)
    return min(sum(1 if topic.partitions < 0 else topic.partitions for topic in topics), _INT32_MAX)


def _acks(data: bytes, version: int) -> int | None:
    """Return the acks of the Produce request that begins `data`; None if they have not come."""
    try:
        body = body_start(data, 0, len(data), PRODUCE, version)
        return None if body is None else produce.acks(data, body, len(data), version)
    except WireError:
        return NONE


def _response_needs(request: Request, frame_bytes: int) -> int:
    """Return how many bytes of a response must have come before it can complete the row of its request."""
    key, version = request.api_key, request.api_version
    if key in _SASL or throttle.position(key, version) == throttle.LAST:
        return frame_bytes if frame_bytes <= WHOLE_MAX else _RESPONSE_HEAD_BYTES
    if key == METADATA and version >= _TOPIC_IDS_SINCE:
        return frame_bytes if frame_bytes <= METADATA_MAX else _THROTTLE_WITHIN
    return min(frame_bytes, _THROTTLE_WITHIN)
