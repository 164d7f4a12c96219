"""The direction client → broker: a request's header is read, its API's handler asked if there is one, the
rest passes.

For most requests that is one `struct` unpack, one comparison of the client id, one dict look-up and one tuple
for the answer owed. A payload is never looked at.
"""

from typing import Final

from protocol.api import API_NAMES
from protocol.header import REQUEST_HEAD
from proxy.channel.errors import PeerError, unreadable_length
from proxy.channel.handlers import REQUEST_HANDLERS
from proxy.channel.in_flight import Buffer
from proxy.channel.side import MORE, PASS, Side
from proxy.channel.state import ChannelState
from proxy.stats import API_KEYS_MAX

__all__ = ["RequestSide"]

_HEAD_BYTES: Final = (
    REQUEST_HEAD.size
)  # 14: length, API key, version, correlation id, length of the client id
_LENGTH_MIN: Final = _HEAD_BYTES - 4


class RequestSide(Side):
    """Requests on their way to the broker."""

    __slots__ = ("_client_id", "_counts", "_length_max")

    def __init__(self, state: ChannelState) -> None:
        super().__init__(state)
        self._client_id: bytes | None = None
        self._counts = state.stats.requests
        self._length_max = state.settings.frame_bytes_max

    def receive(self, buf: Buffer, start: int, end: int, now_ms: int) -> int:
        """Decide over what the client sent; see the package docstring."""
        pos = start
        if self.unseen:
            pos = self.past_unseen(start, end)
            if self.unseen:
                self.order = PASS
                return end - start
        state = self.state
        in_flight = state.in_flight
        while True:
            if state.mute_until_ms > now_ms:  # KIP-219: no further request is handled before the time is over
                self.wait(state.mute_until_ms, held=False)
                return pos - start
            if len(in_flight) >= state.in_flight_max:
                state.full = True
                self.wait(0, held=False)
                return pos - start
            if end - pos < _HEAD_BYTES:
                self._cut_header(buf, pos, end)
                return pos - start
            frame_bytes = self._decide(buf, pos, end, now_ms)
            if not frame_bytes:
                return pos - start
            pos += frame_bytes
            if pos > end or (pos == end and state.mute_until_ms <= now_ms):
                self.unseen = pos - end
                self.order = PASS
                return end - start

    def _decide(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        """Decide on the frame at `pos`: its size where it passes, prefix included; 0 where there is an order."""
        state = self.state
        head: tuple[int, int, int, int, int] = REQUEST_HEAD.unpack_from(buf, pos)
        length, key, version, correlation_id, client_id_length = head
        if not _LENGTH_MIN <= length <= self._length_max:
            raise unreadable_length(bytes(buf[pos : pos + 4]), length, self._length_max)
        body = pos + _HEAD_BYTES + client_id_length
        if client_id_length < 0:
            body = self._null_client_id(pos, client_id_length)
        elif body > end or body > pos + 4 + length:
            self._cut_client_id(length, client_id_length)
            return 0
        client_id = bytes(buf[pos + _HEAD_BYTES : body])
        if client_id != self._client_id or state.identity is None:
            self._client_id = client_id
            state.identify(client_id, now_ms)
        handler = REQUEST_HANDLERS.get(key)
        if handler is not None:
            if handler(self, buf, pos, end, body, head, now_ms):
                return 0
        else:
            if key not in API_NAMES and state.settings.address_map is not None:
                # What it answers may hold addresses that lead round the proxy; a broker would close as well.
                raise PeerError("unknown_api", f"API key {key}, version {version}")
            state.in_flight.append((correlation_id, None, version, None))
        self._counts[key if 0 <= key < API_KEYS_MAX else API_KEYS_MAX] += 1
        return length + 4

    def _cut_header(self, buf: Buffer, pos: int, end: int) -> None:
        """Fewer bytes than a header has: none is the ordinary end of a read, some are kept unless they are hopeless."""
        if pos == end:
            self.order = PASS
            return
        if end - pos >= 4:
            length = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
            if not _LENGTH_MIN <= length <= self._length_max:
                raise unreadable_length(bytes(buf[pos : pos + 4]), length, self._length_max)
        self.need = _HEAD_BYTES
        self.order = MORE

    def _null_client_id(self, pos: int, client_id_length: int) -> int:
        """Where the header ends that has no client id; null is -1, and nothing is below it."""
        if client_id_length < -1:
            raise PeerError("malformed", f"client id of {client_id_length} bytes")
        return pos + _HEAD_BYTES

    def _cut_client_id(self, length: int, client_id_length: int) -> None:
        """Keep a header whose client id is not all here."""
        if client_id_length > length - _LENGTH_MIN:
            raise PeerError("malformed", f"client id of {client_id_length} bytes in a frame of {length}")
        self.need = _HEAD_BYTES + client_id_length
        self.order = MORE
