"""Requests on their way to the broker where they are captured: rows begin here (`captured` says what a row is)."""

from typing import Any, Final

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, PRODUCE
from protocol.capture import NONE
from protocol.messages.walk import Walk
from proxy.channel.capture_rows import NAME_CHARACTERS, NONE_NS, Place, Row
from proxy.channel.captured_mutations import mutations_asked
from proxy.channel.captured_state import INT32_MAX, CapturedState
from proxy.channel.identity import Identity
from proxy.channel.in_flight import Buffer
from proxy.channel.kept_frames import Keeper
from proxy.channel.request_time import measure
from proxy.channel.requests import RequestSide
from proxy.channel.verdict import Verdict

__all__ = ["CLIENT_ID_MAX", "CapturedRequests", "FramedRequests"]

Unpacked = tuple[int, int, int, int, int]

# More of a client id is not kept, in bytes or characters: who speaks by ever new ones makes each row so much larger.
CLIENT_ID_MAX: Final = 1024
# A request that is there so soon after a mute has been there during it: loops and timers are late by a few ms.
_LATE_MS: Final = 10
_MUTATING: Final = frozenset((CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS))


class CapturedRequests(RequestSide):
    """Requests on their way to the broker; `large`: the row of the one seen last, where its end was not there."""

    __slots__ = (
        "_begun_walk",
        "_frame_at",
        "_held",
        "_keeper",
        "_place",
        "_seq",
        "_silent",
        "_waits_ns",
        "_whose",
        "large",
    )

    state: CapturedState

    def __init__(self, state: CapturedState) -> None:
        super().__init__(state)
        self._seq = 0
        self._place: Place | None = None
        self._whose: Identity | None = None  # whose place it is
        self.large: list[Any] | None = None
        self._silent: list[Any] | None = None  # the same of one with acks=0
        self._begun_walk: Walk | None = None  # through it, which goes on
        self._waits_ns = 0  # since when the next request waits; 0 where none does
        self._held = False
        self._frame_at = 0  # where in the buffer the request that is growing goes on
        tap = state.tap
        self._keeper = None if tap.frames == "off" else Keeper(tap.frames, tap.recorder.reserve)

    def wait(self, until_ms: int, *, held: bool) -> int:
        """Order to wait, and note since when."""
        if until_ms:
            self._waits_ns = self._waits_ns or self.state.now_ns
            self._held = self._held or held
        return super().wait(until_ms, held=held)

    def handled(  # noqa: C901 - a call a request costs 3 %
        self, buf: Buffer, pos: int, end: int, body: int, head: Unpacked, now_ms: int
    ) -> int:
        """Begin the row of a request that was handled."""
        state = self.state
        if state.requests is not None or state.requests_version is not state.engine.version:
            order = measure(self, buf, pos, end, body, head, now_ms)
            state.unmeasured = None  # nobody is passed over here
            if order:
                return order
        now_ns = state.now_ns
        if self.large is not None:
            self.sent()
        if state.identity is not self._whose:
            self._introduced()
        seq = self._seq
        row: list[Any] = [head, self._place, seq, now_ns, now_ns, NONE, NONE_NS, 0, 0, "", 0, ()]
        self._seq = seq + 1
        if self._keeper is not None:
            self._keep(self._keeper, row, buf, pos, end, body, head)
        if self._waits_ns or state.told_ms:
            self._note_decisions(row, now_ns, now_ms)
        if pos + 4 + head[0] > end:
            self.large = row
            self._begun_walk = self.walk
        key = head[1]
        if key == PRODUCE:
            row[Row.PARTITIONS] = state.produced  # a list that may grow yet
            if not self.walk_answered:
                return self._silenced(row)
        elif key in _MUTATING:
            row[Row.MUTATIONS] = mutations_asked(state.engine, buf, pos, end, body, head, now_ms)
        state.owed.append(row)
        return 0

    def _keep(
        self, keeper: Keeper, row: list[Any], buf: Buffer, pos: int, end: int, body: int, head: Unpacked
    ) -> None:
        """Keep the request itself beside its row."""
        if keeper.begun():  # the one before it ends where this one begins
            keeper.passed(buf, self._frame_at, pos)
        self._write_silent()
        self._frame_at = pos
        row.append(keeper.keep(buf, pos, end, body, head, len(self.state.owed)))

    def _introduced(self) -> None:
        """Somebody else speaks."""
        state, tap = self.state, self.state.tap
        self._whose = state.identity
        name = self._client_id[:CLIENT_ID_MAX].decode("utf-8", "backslashreplace")[:CLIENT_ID_MAX]
        tap.recorder.left -= len(name) // NAME_CHARACTERS
        self._place = Place(tap.connection, tap.ip, tap.listener, state.settings.broker, state.user, name)

    def sent(self) -> None:
        """The next request is here, or the answer to the large one: all of it has passed by now."""
        row, self.large = self.large, None
        assert row is not None, "there is one"
        row[Row.SENT_NS] = min(max(self.moved_ns, row[Row.HANDLED_NS]), self.state.now_ns)

    def joined(self, broker: int) -> None:
        """All that was said so far was for another broker than was meant to be."""
        places: dict[Place, Place] = {}
        rows = list(self.state.owed)
        if self._silent is not None:
            rows.append(self._silent)
        for row in rows:
            place: Place = row[Row.PLACE]
            row[Row.PLACE] = places.setdefault(place, place._replace(broker=broker))
        if self._place is not None:
            self._place = places.get(self._place, self._place._replace(broker=broker))

    def close(self) -> None:
        """The connection is over."""
        self._write_silent()

    def _walk_on(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        goes_on = self.walk is self._begun_walk
        if not goes_on and self.large is not None:
            self.sent()  # the one before this one
        pos = super()._walk_on(buf, pos, end, now_ms)
        if goes_on and self.walk is None:
            self._walked()
        return pos

    def _walked(self) -> None:
        """The walk through a large request has come to its end, and topics were charged: its row hears of that."""
        self._begun_walk = None
        row = self._silent or self.large
        if row is not None:
            self.state.decide(row)
        else:
            self.state.undecide()  # its answer came first, and said nothing
        if self._keeper is None or not self._keeper.begun():
            self._write_silent()

    def _silenced(self, row: list[Any]) -> int:
        """A Produce without answer is finished when it has passed."""
        self._silent = row
        if self.walk is None and (self._keeper is None or not self._keeper.begun()):
            self._write_silent()
        return 0

    def _write_silent(self) -> None:
        """A Produce without answer has passed, if there is one."""
        if self._silent is not None:
            silent, self._silent = self._silent, None
            if self.large is silent:  # nobody asks when it was sent
                self.large = None
            self.state.write(silent)

    def _note_decisions(self, row: list[Any], now_ns: int, now_ms: int) -> None:
        self.state.decide(row)
        if not self._waits_ns:
            return
        if self._held or now_ms <= self.verdict.until_ms + _LATE_MS:
            row[Row.DELAY_MS] = min((now_ns - self._waits_ns) // 1_000_000, INT32_MAX)
        if self._held:
            row[Row.QUOTA] = row[Row.QUOTA] or "produce"
        self._waits_ns = 0
        self._held = False


class FramedRequests(CapturedRequests):
    """Requests of which more is kept than their rows."""

    __slots__ = ()

    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """As always, and keep what passes of a large request."""
        keeper = self._keeper
        assert keeper is not None, "else it is the plainer class"
        self._frame_at = start
        verdict = super().receive(buf, start, end, now_ns)
        if keeper.begun():
            keeper.passed(buf, self._frame_at, start + verdict.passing)
            if self.walk is None and not keeper.begun():
                self._write_silent()
        return verdict
