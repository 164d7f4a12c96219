"""The parsing and validation of a request header, for clients and followers."""

from abc import ABC
from typing import Final

from protocol.api import API_NAMES
from protocol.header import REQUEST_HEAD, RequestHead
from proxy.channel.direction import ChannelDirection
from proxy.channel.errors import PeerError, unreadable_length
from proxy.channel.in_flight import Buffer
from proxy.channel.state import ChannelState
from proxy.channel.verdict import MORE, PASS
from proxy.stats import API_KEYS_MAX

HEAD_BYTES: Final = REQUEST_HEAD.size  # 14
_LENGTH_MIN: Final = HEAD_BYTES - 4


class RequestReader(ChannelDirection, ABC):
    """A direction that reads requests.

    Attributes:
        counts: the number of requests by API key, and of all with unknown keys.
        length_max: the longest request, without its length prefix.
    """

    __slots__ = ("counts", "length_max")

    too_long = "frame_length"

    def __init__(self, state: ChannelState) -> None:
        super().__init__(state)
        self.counts = state.stats.requests
        self.length_max = state.settings.frame_bytes_max

    def owe_unchanged(self, key: int, version: int, correlation_id: int) -> None:
        """Owe the response to a request that is forwarded unchanged.

        Raises:
            PeerError: the API is unknown, in a gateway or where something is Sluice's own.
        """
        settings = self.state.settings
        if key not in API_NAMES and (settings.address_map is not None or settings.own is not None):
            # Its response may contain addresses that bypass the proxy, or the request a name of Sluice's own; a broker
            # would close the connection too.
            raise PeerError("unknown_api", f"API key {key}, version {version}")
        self.state.in_flight.append((correlation_id, version, None))
        self.counts[key if 0 <= key < API_KEYS_MAX else API_KEYS_MAX] += 1

    def check_header(self, buf: Buffer, pos: int, head: RequestHead) -> None:
        """Validate the header at `pos`.

        Raises:
            PeerError: it is not a valid header.
        """
        length, client_id_length = head[0], head[4]
        self._check_length(buf, pos, length)
        if not -1 <= client_id_length <= length - _LENGTH_MIN:
            raise PeerError("malformed", f"client id of {client_id_length} bytes in a frame of {length}")

    def handle_short_header(self, buf: Buffer, pos: int, end: int) -> None:
        """Handle fewer bytes than a header has: PASS without any, the usual end of a read; otherwise MORE.

        Raises:
            PeerError: the length prefix is invalid.
        """
        if pos == end:
            self.verdict.order = PASS
            return
        if end - pos >= 4:
            self._check_length(buf, pos, int.from_bytes(buf[pos : pos + 4], "big", signed=True))
        self.verdict.need = HEAD_BYTES
        self.verdict.order = MORE

    def _check_length(self, buf: Buffer, pos: int, length: int) -> None:
        if not _LENGTH_MIN <= length <= self.length_max:
            raise unreadable_length(bytes(buf[pos : pos + 4]), length, self.length_max)
