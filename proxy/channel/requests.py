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

    def receive(self, buf: Buffer, start: int, end: int, now_ms: int) -> int:  # noqa: C901 - a call a frame costs 5 %
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
            head: tuple[int, int, int, int, int] = REQUEST_HEAD.unpack_from(buf, pos)
            length, key, version, correlation_id, client_id_length = head
            body = pos + _HEAD_BYTES + client_id_length
            if (
                client_id_length < 0
                or body > end
                or not client_id_length + _LENGTH_MIN <= length <= self._length_max
            ):
                body = self._unusual_header(buf, pos, head)
                if not body:
                    return pos - start
            client_id = bytes(buf[pos + _HEAD_BYTES : body])
            if client_id != self._client_id or state.identity is None:
                self._client_id = client_id
                state.identify(client_id, now_ms)
            handler = REQUEST_HANDLERS.get(key)
            if handler is None:
                self._plain(key, version, correlation_id)
            elif handler(self, buf, pos, end, body, head, now_ms):
                return pos - start
            self._counts[key if 0 <= key < API_KEYS_MAX else API_KEYS_MAX] += 1
            pos += length + 4
            if pos > end or (pos == end and state.mute_until_ms <= now_ms):
                self.unseen = pos - end
                self.order = PASS
                return end - start

    def _plain(self, key: int, version: int, correlation_id: int) -> None:
        """Owe the answer to a request that passes as it is."""
        if key not in API_NAMES and self.state.settings.address_map is not None:
            # What it answers may hold addresses that lead round the proxy; a broker would close as well.
            raise PeerError("unknown_api", f"API key {key}, version {version}")
        self.state.in_flight.append((correlation_id, None, version, None))

    def _unusual_header(self, buf: Buffer, pos: int, head: tuple[int, int, int, int, int]) -> int:
        """Where a header ends that has no client id; 0 with an order where it is cut.

        Raises:
            PeerError: no header looks like that.
        """
        length, _, _, _, client_id_length = head
        if not _LENGTH_MIN <= length <= self._length_max:
            raise unreadable_length(bytes(buf[pos : pos + 4]), length, self._length_max)
        if client_id_length < -1 or client_id_length > length - _LENGTH_MIN:
            raise PeerError("malformed", f"client id of {client_id_length} bytes in a frame of {length}")
        if client_id_length == -1:
            return pos + _HEAD_BYTES
        self.need = _HEAD_BYTES + client_id_length
        self.order = MORE
        return 0

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
