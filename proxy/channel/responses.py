"""The direction broker → client: answers are matched to what is owed, and most pass as they are.

Answers made here (throttled Fetches) are put in when their turn comes: Kafka's clients match answers by
order.
"""

from struct import Struct
from typing import Final

from proxy.channel.errors import PeerError
from proxy.channel.in_flight import LOCAL, Buffer
from proxy.channel.side import MORE, PASS, REPLACE, WALK, Side

__all__ = ["ResponseSide"]

_HEAD: Final = Struct(">ii")  # length, correlation id
_LENGTH_MIN: Final = 4


class ResponseSide(Side):
    """Answers on their way to the client."""

    __slots__ = ()

    def mid_frame(self) -> bool:
        """Whether an answer has begun to pass and is not over."""
        return self.unseen > 0 or self.walk is not None

    def receive(self, buf: Buffer, start: int, end: int, now_ms: int) -> int:
        """Decide over what the broker sent; see the package docstring."""
        pos = start
        if self.unseen or self.walk is not None:
            pos = self._go_on(buf, start, end)
            if self.mid_frame():
                return pos - start
        in_flight = self.state.in_flight
        while True:
            if in_flight and in_flight[0][1] is LOCAL:
                self.replace(0, in_flight.popleft()[3])
                return pos - start
            if end - pos < _HEAD.size:
                self.need = _HEAD.size
                self.order = MORE if end > pos else PASS
                return pos - start
            order = self._decide(buf, pos, end, now_ms)
            if order in (MORE, REPLACE):
                return pos - start
            if order == WALK:
                pos = self._go_on(buf, pos, end)
                if self.mid_frame():
                    return pos - start
                continue
            pos += self.frame_bytes
            if pos > end:
                self.unseen = pos - end
                self.order = PASS
                return end - start

    def _decide(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        """Decide on the answer at `pos`: 0 where it passes, or an order; unless that is MORE, it is owed no more."""
        state = self.state
        in_flight = state.in_flight
        length, correlation_id = _HEAD.unpack_from(buf, pos)
        if not in_flight or length < _LENGTH_MIN or in_flight[0][0] != correlation_id:
            raise self._unowed(length, correlation_id)
        self.frame_bytes = length + 4
        entry = in_flight[0]
        responder = entry[1]
        order = 0 if responder is None else responder(self, buf, pos, end, entry, now_ms)
        if order != MORE:
            in_flight.popleft()
            state.stats.frames_from_brokers += 1
            if state.full and len(in_flight) <= state.in_flight_max // 2:
                state.full = False
                self.signal = True
        return order

    def _go_on(self, buf: Buffer, pos: int, end: int) -> int:
        """Pass on with the answer under way; returns how far, and sets the order unless the answer is over."""
        pos = self.past_unseen(pos, end)
        if self.unseen:
            self.order = PASS
            return end
        return pos if self.walk is None else self._walk_on(buf, pos, end)

    def _walk_on(self, buf: Buffer, pos: int, end: int) -> int:
        """Walk on through the answer under way; returns how far it may pass, and sets the order unless it is done."""
        walk = self.walk
        assert walk is not None
        address_map = self.state.settings.address_map
        assert address_map is not None, "only a gateway walks"
        while True:
            pos += walk.feed(buf, pos, end, address_map)
            if walk.done:
                self.walk = None
                # More than the frame's fields: nothing Kafka has, but its length was announced.
                self.unseen = walk.unseen
                self.order = PASS
                return pos
            if not walk.unseen:
                self.need = end - pos + 1
                self.order = MORE if end > pos else PASS
                return pos
            if walk.unseen > end - pos:
                self.unseen = walk.unseen - (end - pos)
                self.order = PASS
                return end
            pos += walk.unseen

    def _unowed(self, length: int, correlation_id: int) -> PeerError:
        """Say why an answer can not be one that is owed."""
        if length < _LENGTH_MIN:
            return PeerError("broker_frame_length", f"an answer of {length} bytes")
        in_flight = self.state.in_flight
        owed = f"correlation id {in_flight[0][0]} is owed" if in_flight else "none is owed"
        return PeerError("broker_out_of_order", f"an answer with correlation id {correlation_id}, {owed}")
