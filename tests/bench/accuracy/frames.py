"""Which Kafka frames pass on a connection, how large they are, and whose: the pure part of the counting relay.

It reads frame lengths and the first bytes of each frame, and nothing else. Sizes are those KIP-13 counts: a request or
response without its 4-byte length.
"""

import struct
from typing import Final, NamedTuple

PRODUCE: Final = 0
FETCH: Final = 1
_HEAD_BYTES: Final = 300
"""The request header with the longest client id in use here; what follows is not kept."""
_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")


class Frame(NamedTuple):
    """One whole frame: its first bytes, its length, when its first byte came."""

    head: bytes
    length: int
    began: float


class Counted(NamedTuple):
    """Bytes that KIP-13 counts: when they began and ended, whose they are, how many."""

    began: float
    ended: float
    client_id: str
    api_key: int
    size: int


class Walk:
    """Cuts a byte stream into frames, however it is cut itself."""

    __slots__ = ("_began", "_head", "_length", "_seen")

    def __init__(self) -> None:
        self._head = bytearray()
        self._length = -1
        self._seen = 0
        self._began = 0.0

    def feed(self, data: bytes, now: float) -> list[Frame]:
        """Return the frames that end within `data`."""
        frames: list[Frame] = []
        position = 0
        while position < len(data):
            if self._length < 0:
                if not self._head:
                    self._began = now
                taken = data[position : position + 4 - len(self._head)]
                self._head += taken
                position += len(taken)
                if len(self._head) == 4:
                    self._length = int.from_bytes(self._head, "big")
                    self._head.clear()
                    self._seen = 0
                continue
            count = min(len(data) - position, self._length - self._seen)
            if len(self._head) < _HEAD_BYTES:
                self._head += data[position : position + min(count, _HEAD_BYTES - len(self._head))]
            self._seen += count
            position += count
            if self._seen == self._length:
                frames.append(Frame(bytes(self._head), self._length, self._began))
                self._head.clear()
                self._length = -1
        return frames


class Ledger:
    """Joins one connection's requests and responses, and says what counts: Produce requests and Fetch responses.

    Both are counted when the answer has passed. For a Produce that is when Kafka counts it too: a request that lies
    unread in the socket of a muted channel has passed here, but no broker knows of it yet.
    """

    __slots__ = ("_owed", "_requests", "_responses")

    def __init__(self) -> None:
        self._requests = Walk()
        self._responses = Walk()
        # By correlation id: client id, API key, when the request's first byte came, its size.
        self._owed: dict[int, tuple[str, int, float, int]] = {}

    def to_broker(self, data: bytes, now: float) -> list[Counted]:
        """Note the Produce and Fetch requests that end within `data`; return the Produces among them."""
        arrived: list[Counted] = []
        for frame in self._requests.feed(data, now):
            api_key, _version, correlation_id, name = _REQUEST.unpack_from(frame.head)
            if api_key in (PRODUCE, FETCH):
                client_id = frame.head[_REQUEST.size : _REQUEST.size + max(name, 0)].decode()
                self._owed[correlation_id] = (client_id, api_key, frame.began, frame.length)
                if api_key == PRODUCE:
                    arrived.append(Counted(frame.began, now, client_id, api_key, frame.length))
        return arrived

    def to_client(self, data: bytes, now: float) -> list[Counted]:
        """Return what counts of the requests whose answers end within `data`."""
        counted: list[Counted] = []
        for frame in self._responses.feed(data, now):
            owed = self._owed.pop(_CORRELATION.unpack_from(frame.head)[0], None)
            if owed is None:
                continue
            client_id, api_key, began, size = owed
            if api_key == FETCH:
                began, size = frame.began, frame.length
            counted.append(Counted(began, now, client_id, api_key, size))
        return counted
