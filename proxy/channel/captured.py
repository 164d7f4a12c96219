"""The channel of a client whose requests are captured: one row a request, and nothing else differs (issue 7).

    client ──► CapturedRequests ──► broker      owed: the rows whose answers are still to come, oldest first,
                    │  ▲                               beside `in_flight`, which it leaves as it is
                   owed │
                    ▼   │
    client ◄── CapturedResponses ◄── broker     answered: the row is finished and given to the recorder

It is chosen when a connection is made, so a client that is not captured pays nothing for it. Every request and answer
of Produce and Fetch is walked here (`protocol.messages.captured_walks`), as it is for topics' quotas.

A row (`capture_rows`) is made when the request is handled and filled in when its answer has begun. What ends without an
answer (acks=0, a connection that is closed) is written without one. Not rows are: SASL tokens without a Kafka header,
Metadata that Sluice asks for itself, and what brokers say to each other at a replication listener. No payload and no
token is looked at; where whole requests are kept for replay, `kept_frames` does it.

Two things are not what a broker would say. Nobody reads a muted client's socket, so when its next request came is not
known: if it is there when the mute ends, all of the mute counts as its delay. And partition mutations are those asked
for, as far as the sizes of topics are known without asking.
"""

from collections.abc import Iterator
from typing import Any

from protocol.api import FETCH, flexible
from protocol.messages.captured_walks import CapturedFetchWalk
from protocol.messages.fetch_session import SessionTable
from proxy.channel.capture_rows import ROW_BYTES, Head, Row, Tap
from proxy.channel.captured_requests import CapturedRequests, FramedRequests
from proxy.channel.captured_state import CapturedState, FramedState
from proxy.channel.channel import Channel
from proxy.channel.in_flight import ENTRY_BYTES, Buffer, Entry
from proxy.channel.responses import ResponseSide
from proxy.channel.settings import ChannelSettings
from proxy.stats import Stats
from quotas.engine import Engine

__all__ = ["CapturedChannel"]


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

    def _answered(self) -> Entry:
        state = self.state
        entry = super()._answered()
        owed = state.owed
        if not owed or owed[0][Row.HEAD][Head.CORRELATION_ID] != entry[0]:
            return entry  # asked by Sluice itself, or a bare token
        row = owed.popleft()
        if row is self._requests.large:
            self._requests.sent()
        row[Row.UPSTREAM_NS] = state.now_ns - row[Row.SENT_NS]
        row[Row.RESPONSE_BYTES] = self.frame_bytes - 4
        if state.told_ms:
            state.decide(row)
        head = row[Row.HEAD]
        if head[Head.API_KEY] == FETCH:
            self._fetched(row, head[Head.API_VERSION])
        else:
            state.write(row)
        return entry

    def _fetched(self, row: list[Any], version: int) -> None:
        """Finish the row of a Fetch, at its answer's end where that is walked."""
        if flexible(FETCH, version):  # Kafka charges without the tag section of the header
            row[Row.RESPONSE_BYTES] -= 1
        walk = self.walk
        if isinstance(walk, CapturedFetchWalk):
            row[Row.PARTITIONS] = walk.found
            self._walked = row
        else:
            self.state.write(row)

    def _answer_here(self) -> None:
        state = self.state
        correlation_id = state.in_flight[0][0]
        super()._answer_here()
        owed = state.owed
        if owed and owed[0][Row.HEAD][Head.CORRELATION_ID] == correlation_id:
            row = owed.popleft()
            row[Row.RESPONSE_BYTES] = int.from_bytes(self.verdict.insert[:4], "big")
            state.write(row)

    def _walk_on(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        pos = super()._walk_on(buf, pos, end, now_ms)
        if self.walk is None:
            self.state.undecide()  # what its topics cost it can not tell: the answer's head has passed
            if self._walked is not None:
                row, self._walked = self._walked, None
                self.state.write(row)
        return pos


class CapturedChannel(Channel):
    """The two sides of a connection whose requests are captured."""

    __slots__ = ()

    entry_bytes = ENTRY_BYTES + ROW_BYTES

    requests: CapturedRequests
    responses: CapturedResponses

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats, tap: Tap
    ) -> None:
        framed = tap.frames != "off"
        state = (FramedState if framed else CapturedState)(settings, engine, sessions, stats, tap)
        self.state: CapturedState = state
        self.requests = (FramedRequests if framed else CapturedRequests)(state)
        self.responses = CapturedResponses(self.state, self.requests)

    def joined(self, broker: int) -> None:
        """Another broker is behind the bootstrap port: rows are of it."""
        super().joined(broker)
        self.requests.joined(broker)

    def close(self, now_ms: int) -> Iterator[None]:
        """The connection is over: what is owed an answer never gets one."""
        rest = super().close(now_ms)
        self.requests.close()
        self.responses.close()
        while self.state.owed:
            self.state.write(self.state.owed.popleft())
        return rest
