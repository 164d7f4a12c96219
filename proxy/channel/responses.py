"""The direction broker → client: responses are matched with owed responses; most are forwarded unchanged.

Local responses (throttled Fetches, quotas) are inserted in their turn: Kafka's clients match responses by order.
"""

from struct import Struct
from typing import Final

from proxy.channel.direction import (
    BARE_TOKEN,
    NS_PER_MS,
    Buffer,
    ChannelDirection,
    ChannelState,
    LocalResponse,
    charge_fetched,
)
from proxy.channel.errors import PeerError
from proxy.channel.verdict import MORE, PASS, REPLACE, RESUMED_AT, UNDECIDED, WALK, Verdict

_HEAD: Final = Struct(">ii").unpack_from  # length, correlation id
_HEAD_BYTES: Final = 8
_LENGTH_MIN: Final = 4
_PREFIX_BYTES: Final = 4


class ResponseDirection(ChannelDirection):
    """The direction from the broker to the client: matches each response with the oldest owed one, and handles it."""

    __slots__ = ("_length_max",)

    too_long = "broker_frame_length"

    def __init__(self, state: ChannelState) -> None:
        super().__init__(state)
        self._length_max = state.settings.response_bytes_max

    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:  # noqa: C901, PLR0912 - a call a frame costs 5 %
        """Decide what to do with bytes from the broker (`Direction.receive`); returns the verdict."""
        verdict, state = self.verdict, self.state
        if verdict.insert:
            verdict.insert = b""
        state.now_ns = now_ns
        pos = start
        if verdict.passthrough or self.walk is not None:
            pos = self._continue_frame(buf, start, end, now_ns // NS_PER_MS)
            if self.mid_frame():
                verdict.passing = pos - start
                return verdict
        in_flight, stats = state.in_flight, state.stats
        while in_flight:
            entry = in_flight[0]
            owed = entry[2]
            if owed is not None and owed.made:
                self._insert_local()
                break
            if end - pos < _HEAD_BYTES:
                if pos == end:  # the usual end of a read
                    verdict.order = PASS
                    break
                size = self._handle_short_head(buf, pos, end, now_ns // NS_PER_MS)
                if not size:
                    break
                pos += size
                continue
            length, correlation_id = _HEAD(buf, pos)
            if (
                correlation_id != entry[0] or not _LENGTH_MIN <= length <= self._length_max
            ) and self._token_missing(length, correlation_id):
                continue
            self.frame_bytes = length + 4
            if owed is None:
                order = 0
            else:
                order = owed.respond(self, buf, pos, end, entry, now_ns // NS_PER_MS)
                if order & UNDECIDED:
                    break
            in_flight.pop(0)
            stats.frames_from_brokers += 1
            if state.awaits_responses:
                self.resume_requests()
            if state.observer is not None:
                state.observer.response_begun(self, entry)
            if order == REPLACE:
                break
            if order == WALK:
                pos = self._continue_frame(buf, pos, end, now_ns // NS_PER_MS)
                if self.mid_frame():
                    break
                continue
            pos += length + 4
            if pos > end:
                verdict.passthrough = pos - end
                verdict.order = PASS
                pos = end
                break
        else:
            if pos == end:  # the usual end of a read
                verdict.order = PASS
            else:
                self._refuse_unowed(buf, pos, end)
        verdict.passing = pos - start
        return verdict

    def _refuse_unowed(self, buf: Buffer, pos: int, end: int) -> None:
        """Handle bytes while no response is owed: raises an error once their head is complete."""
        if end - pos >= _HEAD_BYTES:
            raise self._not_owed(*_HEAD(buf, pos))
        self.verdict.need = _HEAD_BYTES
        self.verdict.order = MORE

    def _insert_local(self) -> None:
        """Order REPLACE: send the next owed response, which is a local one."""
        state = self.state
        entry = state.in_flight.pop(0)
        made = entry[2]
        assert isinstance(made, LocalResponse), "nothing else is made here"
        state.queued_bytes -= len(made.response)
        self.replace(0, made.response)
        self.resume_requests()
        if state.observer is not None:
            state.observer.local_response_sent(entry, made.response)

    def _handle_short_head(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        """Handle fewer bytes than a response's head has.

        Returns the size of a complete SASL token without a header, which passes; otherwise 0 with the order MORE.
        """
        self.verdict.need = _HEAD_BYTES
        self.verdict.order = MORE
        in_flight = self.state.in_flight
        if in_flight[0][0] != BARE_TOKEN:
            return 0
        self.verdict.need = _PREFIX_BYTES
        if end - pos < _PREFIX_BYTES:
            return 0
        length = int.from_bytes(buf[pos : pos + _PREFIX_BYTES], "big", signed=True)
        if length < 0:
            raise self._not_owed(length, 0)
        self._check_length(length)
        self.frame_bytes = length + _PREFIX_BYTES
        if self.frame_bytes > end - pos:
            self.verdict.need = min(self.frame_bytes, _HEAD_BYTES)
            return 0
        entry = in_flight[0]
        assert entry[2] is not None, "a token is looked at"
        entry[2].respond(self, buf, pos, end, entry, now_ms)
        in_flight.pop(0)
        self.state.stats.frames_from_brokers += 1
        self.resume_requests()
        return self.frame_bytes

    def _token_missing(self, length: int, correlation_id: int) -> bool:
        """Whether an owed SASL token without a header is missing, so that this is the response to the next request.

        A response with another correlation id than expected is a token if one is owed. The last token of an unreadable
        mechanism may have no response; it is then given up, and the result is True.

        Raises:
            PeerError: no token is owed, or the response is too long.
        """
        self._check_length(length)
        in_flight = self.state.in_flight
        if length < 0 or in_flight[0][0] != BARE_TOKEN:
            raise self._not_owed(length, correlation_id)
        if length < _LENGTH_MIN or len(in_flight) == 1 or in_flight[1][0] != correlation_id:
            return False
        in_flight.pop(0)
        return True

    def resume_requests(self) -> None:
        """Signal that requests can be handled again, if they wait for responses and enough of these were sent."""
        state = self.state
        if state.awaits_responses and len(state.in_flight) <= RESUMED_AT[state.intake]:
            state.awaits_responses = False
            self.verdict.signal = True

    def _continue_frame(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        """Continue the response under way; returns where it stops, and sets the order unless the response is over."""
        pos = self.skip_passthrough(pos, end)
        if self.verdict.passthrough:
            self.verdict.order = PASS
            return end
        return pos if self.walk is None else self._walk_on(buf, pos, end, now_ms)

    def _walk_on(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        """Continue the walk through the response; returns how far it may pass, and sets the order unless it is over."""
        walk, verdict = self.walk, self.verdict
        assert walk is not None, "a walk is under way"
        address_map = self.state.settings.address_map
        pos += walk.feed(buf, pos, end, address_map)
        verdict.passthrough = walk.passthrough  # of bytes after the buffer's end
        verdict.order = PASS
        dividing = self.dividing
        if dividing is not None:
            if walk.is_past_records:
                dividing.divide(self, buf, now_ms)
                self.resume_requests()
            else:
                dividing.head_sent()
        if walk.done:
            self.walk = None
            verdict.patches += address_map is not None  # its last part has addresses
            if walk.sizes and charge_fetched(self.state, walk, now_ms):
                verdict.signal = True
        elif walk.full:
            if charge_fetched(self.state, walk, now_ms):
                verdict.signal = True
            self.next_turn()
        elif walk.paused:
            self.next_turn()
        elif not walk.passthrough and pos < end:
            verdict.need = end - pos + 1
            verdict.order = MORE
        if self.state.observer is not None:
            self.state.observer.walked(self, walk, now_ms)
        return pos

    def _check_length(self, length: int) -> None:
        if length > self._length_max:
            raise PeerError(
                self.too_long,
                f"a response of {length} bytes, limits.response_bytes_max is {self._length_max}",
            )

    def _not_owed(self, length: int, correlation_id: int) -> PeerError:
        """Return the error for a response that does not match the oldest owed one."""
        if length < _LENGTH_MIN:
            return PeerError("broker_frame_length", f"a response of {length} bytes")
        in_flight = self.state.in_flight
        owed = "none is expected"
        if in_flight:
            owed = (
                f"correlation id {in_flight[0][0]} is expected, of {len(in_flight)} up to {in_flight[-1][0]}"
            )
        return PeerError("broker_out_of_order", f"a response with correlation id {correlation_id}, {owed}")
