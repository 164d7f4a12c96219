"""The channel of a client whose requests are captured: one row a request, and nothing else differs (issue 7).

    client ──► CapturedRequests ──► broker      owed: the rows whose answers are still to come, oldest first,
                    │  ▲                               beside `in_flight`, which it leaves as it is
                   owed │
                    ▼   │
    client ◄── CapturedResponses ◄── broker     answered: the row is finished and given to the recorder

It is chosen when a connection is made, so a client that is not captured pays nothing for it. Every request and answer
of Produce and Fetch is walked here (`protocol.messages.captured_walks`), as it is for topics' quotas.

A row is one list, made when the request is handled and filled in when its answer has begun; `Row` names its places,
`protocol.capture` what is written of them. What ends without an answer (acks=0, a connection that is closed) is written
without one. Not rows are: SASL tokens without a Kafka header, Metadata that Sluice asks for itself, and what brokers
say to each other at a replication listener. No payload and no token is looked at.

Two things are not what a broker would say. Nobody reads a muted client's socket, so when its next request came is not
known: if it is there when the mute ends, all of the mute counts as its delay. And partition mutations are those asked
for, as far as the sizes of topics are known without asking.
"""

from collections import deque
from typing import Any, Final, NamedTuple, Protocol

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, FETCH, PRODUCE, flexible
from protocol.capture import NONE
from protocol.errors import WireError
from protocol.messages import topic_mutations
from protocol.messages.captured_walks import (
    CapturedFetchWalk,
    CapturedProduceWalk,
    Found,
    produced_at_hand,
)
from protocol.messages.fetch_session import SessionTable
from proxy.channel.channel import Channel
from proxy.channel.in_flight import Buffer
from proxy.channel.request_time import measure
from proxy.channel.requests import RequestSide
from proxy.channel.responses import ResponseSide
from proxy.channel.settings import ChannelSettings
from proxy.channel.side import skip_header_tags
from proxy.channel.state import ChannelState, Muting
from proxy.stats import Stats
from quotas.client_bandwidth import FETCH as FETCH_QUOTA
from quotas.client_bandwidth import PRODUCE as PRODUCE_QUOTA
from quotas.definitions import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from quotas.engine import Engine
from quotas.mutations import MutationThrottle

__all__ = ["ROWS_MAX", "CapturedChannel", "Place", "Recorder", "Row", "Tap"]

Head = tuple[int, int, int, int, int]

# Rows that are handed over at a time. So few that making columns of them keeps the loop from its turn for less than a
# millisecond, and so many that handing over costs nothing.
ROWS_MAX: Final = 1024

# A request that is there so soon after a mute has been there during it: loops and timers are late by a few ms.
_LATE_MS: Final = 10
NONE_NS: Final = 1000 * NONE  # which is NONE in microseconds
_MUTATIONS_MAX: Final = 0x7FFFFFFF
_MUTATING: Final = frozenset((CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS))
_QUOTAS: Final = {
    PRODUCE_QUOTA: "produce",
    FETCH_QUOTA: "fetch",
    REQUEST_PERCENTAGE: "request",
    CONTROLLER_MUTATION_RATE: "mutation",
}


class Place(NamedTuple):
    """What all rows of a connection share, while nobody else speaks on it."""

    connection: int
    ip: str
    listener: str
    broker: int
    principal: str
    client_id: str


class Row:
    """Places in a row's list."""

    (
        CORRELATION_ID,
        PLACE,
        SEQ,
        HANDLED_NS,
        SENT_NS,
        API_KEY,
        API_VERSION,
        REQUEST_BYTES,
        RESPONSE_BYTES,
        UPSTREAM_NS,
        THROTTLE_MS,
        DELAY_MS,
        QUOTA,
        MUTATIONS,
        PARTITIONS,
    ) = range(15)


class Recorder(Protocol):
    """Takes rows; see `proxy.capture`.

    Attributes:
        rows: those of the batch under way; whoever makes it ROWS_MAX long calls `full`.
    """

    rows: list[list[Any]]

    def full(self) -> None:
        """Begin another batch."""


class Tap(NamedTuple):
    """Where a channel's rows go, and whose they are."""

    recorder: Recorder
    connection: int
    ip: str
    listener: str


class _Always:
    """Stands in for the engine where it is asked whether Produce and Fetch have to be walked."""

    __slots__ = ()
    charges_produced_topics = True
    charges_fetched_topics = True


_ALWAYS: Final = _Always()


class CapturedState(ChannelState):
    """What both sides share, with the rows that are not finished.

    Attributes:
        owed: the rows whose answers are owed.
        produced: the partitions of the Produce seen last; they may still be growing in number.
        told_ms, told_by: the longest mute that was decided on since somebody asked, and what for.
    """

    __slots__ = ("_recorder", "owed", "produced", "tap", "told_by", "told_ms")

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats, tap: Tap
    ) -> None:
        super().__init__(settings, engine, sessions, stats)
        self.charges = _ALWAYS
        self._recorder = tap.recorder
        self.tap = tap
        self.owed: deque[list[Any]] = deque()
        self.produced: list[Found] | None = None
        self.told_ms = 0
        self.told_by: Muting | None = None

    def produce_walk(
        self, buf: Buffer, pos: int, end: int, body: int, head: Head
    ) -> CapturedProduceWalk | None:
        """Walk for the partitions' sake unless they are all at hand; to the end where topics are charged."""
        length, _, version, _, _ = head
        if not self.engine.charges_produced_topics:
            frame_end = pos + 4 + length
            limit = min(frame_end, end)
            self.produced = produced_at_hand(buf, body, limit, frame_end, version)
            if self.produced is not None:
                return None
            walk = CapturedProduceWalk(version, length)
        else:
            walk = CapturedProduceWalk(version, length, {})
        self.produced = walk.found
        return walk

    def fetch_walk(self, version: int, length: int) -> CapturedFetchWalk:
        """The same of an answer."""
        return CapturedFetchWalk(version, length, {} if self.engine.charges_fetched_topics else None)

    def mute(self, throttle: Muting, throttle_ms: int, now_ms: int) -> int:
        """As always, and note what is told."""
        told_ms = noted_ms = super().mute(throttle, throttle_ms, now_ms)
        if self.group_session_timeout_ms is None and isinstance(throttle, MutationThrottle):
            noted_ms = throttle_ms  # which is told in full (`handlers.topic_mutations`)
        if noted_ms > self.told_ms:
            self.told_ms, self.told_by = noted_ms, throttle
        return told_ms

    def decide(self, row: list[Any]) -> None:
        """Put into the row what was decided since the last one."""
        if self.told_ms > row[Row.THROTTLE_MS]:
            row[Row.THROTTLE_MS] = self.told_ms
            row[Row.QUOTA] = _QUOTAS.get(getattr(self.told_by, "key", ""), "")
        self.told_ms, self.told_by = 0, None

    def write(self, row: list[Any]) -> None:
        """The row is finished."""
        recorder = self._recorder
        rows = recorder.rows
        rows.append(row)
        if len(rows) >= ROWS_MAX:
            recorder.full()


class CapturedRequests(RequestSide):
    """Requests on their way to the broker."""

    __slots__ = ("_held", "_large", "_name_of", "_place", "_seq", "_silent", "_waits_ns")

    state: CapturedState

    def __init__(self, state: CapturedState) -> None:
        super().__init__(state)
        self._seq = 0
        self._place: Place | None = None
        self._name_of = b""
        self._large: list[Any] | None = None  # the request seen last, where its end was not there
        self._silent: list[Any] | None = None  # the same of one with acks=0
        self._waits_ns = 0  # since when the next request waits; 0 where none does
        self._held = False

    def wait(self, until_ms: int, *, held: bool) -> int:
        """Order to wait, and note since when."""
        if until_ms:
            self._waits_ns = self._waits_ns or self.state.now_ns
            self._held = self._held or held
        return super().wait(until_ms, held=held)

    def handled(self, buf: Buffer, pos: int, end: int, body: int, head: Head, now_ms: int) -> int:
        """Begin the row of a request that was handled."""
        state = self.state
        if state.requests is not None or state.requests_version is not state.engine.version:
            order = measure(self, buf, pos, end, body, head, now_ms)
            state.unmeasured = None  # nobody is passed over here
            if order:
                return order
        length, key, version, correlation_id, _ = head
        now_ns = state.now_ns
        if self._large is not None:
            self.sent(self._large)
        place = self._place
        if place is None or self._client_id is not self._name_of or state.user != place.principal:
            place = self._introduced()
        row: list[Any] = [
            correlation_id,
            place,
            self._seq,
            now_ns,
            now_ns,
            key,
            version,
            length,
            NONE,
            NONE_NS,
            0,
            0,
            "",
            0,
            (),
        ]
        self._seq += 1
        if self._waits_ns:
            self._note_delay(row, now_ns, now_ms)
        if state.told_ms:
            state.decide(row)
        if pos + 4 + length > end:
            self._large = row
        if key == PRODUCE:
            return self._note_produce(row)
        if key in _MUTATING:
            row[Row.MUTATIONS] = self._mutations(buf, pos, end, body, head, now_ms)
        state.owed.append(row)
        return 0

    def _introduced(self) -> Place:
        """Somebody else speaks."""
        tap = self.state.tap
        self._name_of = self._client_id
        name = self._name_of.decode("utf-8", "backslashreplace")
        place = Place(tap.connection, tap.ip, tap.listener, self.state.settings.broker, self.state.user, name)
        self._place = place
        return place

    def sent(self, row: list[Any]) -> None:
        """The next request is here, or the answer to this one: if it was large, all of it has passed by now."""
        if row is self._large:
            row[Row.SENT_NS] = max(self.moved_ns, row[Row.HANDLED_NS])
            self._large = None

    def close(self) -> None:
        """The connection is over."""
        if self._silent is not None:
            self.state.write(self._silent)
            self._silent = None

    def _walk_on(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        pos = super()._walk_on(buf, pos, end, now_ms)
        if self.walk is None and self._silent is not None:
            silent, self._silent = self._silent, None
            self.state.decide(silent)
            self.state.write(silent)
        return pos

    def _note_produce(self, row: list[Any]) -> int:
        row[Row.PARTITIONS] = self.state.produced or ()  # a list that may grow yet
        if self.walk_answered:
            self.state.owed.append(row)
        elif self.walk is None:
            self.state.write(row)
        else:
            self._silent = row
        return 0

    def _note_delay(self, row: list[Any], now_ns: int, now_ms: int) -> None:
        if self._held or now_ms <= self.wait_until_ms + _LATE_MS:
            row[Row.DELAY_MS] = (now_ns - self._waits_ns) // 1_000_000
        if self._held:
            row[Row.QUOTA] = _QUOTAS[PRODUCE_QUOTA]
        self._waits_ns = 0
        self._held = False

    def _mutations(self, buf: Buffer, pos: int, end: int, body: int, head: Head, now_ms: int) -> int:
        """Partition mutations that are asked for."""
        length, key, version, _, _ = head
        frame_end = pos + 4 + length
        fields_at = skip_header_tags(buf, body, min(end, frame_end), flexible=flexible(key, version))
        if end < frame_end or fields_at is None:
            return NONE
        try:
            asked = topic_mutations.read_request(bytes(buf[pos:frame_end]), fields_at - pos, key, version)
        except WireError:  # the broker will say so
            return NONE
        quotas = self.state.engine.mutations
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
        return min(total, _MUTATIONS_MAX)


class CapturedResponses(ResponseSide):
    """Answers on their way to the client."""

    __slots__ = ("_requests", "_walked")

    state: CapturedState

    def __init__(self, state: CapturedState, requests: CapturedRequests) -> None:
        super().__init__(state)
        self._requests = requests
        self._walked: list[Any] | None = None  # the row of the answer that is walked

    def close(self) -> None:
        """The connection is over."""
        if self._walked is not None:
            self.state.write(self._walked)
            self._walked = None

    def _answered(self) -> None:
        state = self.state
        correlation_id = state.in_flight[0][0]
        super()._answered()
        owed = state.owed
        if not owed or owed[0][Row.CORRELATION_ID] != correlation_id:
            return  # asked by Sluice itself, or a bare token
        row = owed.popleft()
        self._requests.sent(row)
        row[Row.UPSTREAM_NS] = max(0, state.now_ns - row[Row.SENT_NS])
        length = self.frame_bytes - 4
        # Kafka charges a Fetch without the tag section of a flexible header.
        if row[Row.API_KEY] == FETCH and flexible(FETCH, row[Row.API_VERSION]):
            length -= 1
        row[Row.RESPONSE_BYTES] = length
        if state.told_ms:
            state.decide(row)
        walk = self.walk
        if isinstance(walk, CapturedFetchWalk):
            row[Row.PARTITIONS] = walk.found
            self._walked = row
        else:
            state.write(row)

    def _answer_here(self) -> None:
        state = self.state
        correlation_id = state.in_flight[0][0]
        super()._answer_here()
        owed = state.owed
        if owed and owed[0][Row.CORRELATION_ID] == correlation_id:
            row = owed.popleft()
            row[Row.RESPONSE_BYTES] = max(len(self.insert) - 4, 0)
            state.write(row)

    def _walk_on(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        pos = super()._walk_on(buf, pos, end, now_ms)
        if self.walk is None and self._walked is not None:
            row, self._walked = self._walked, None
            self.state.decide(row)
            self.state.write(row)
        return pos


class CapturedChannel(Channel):
    """The two sides of a connection whose requests are captured."""

    __slots__ = ()

    requests: CapturedRequests
    responses: CapturedResponses

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats, tap: Tap
    ) -> None:
        self.state: CapturedState = CapturedState(settings, engine, sessions, stats, tap)
        self.requests = CapturedRequests(self.state)
        self.responses = CapturedResponses(self.state, self.requests)

    def close(self, now_ms: int) -> None:
        """The connection is over: what is owed an answer never gets one."""
        super().close(now_ms)
        self.requests.close()
        self.responses.close()
        while self.state.owed:
            self.state.write(self.state.owed.popleft())
