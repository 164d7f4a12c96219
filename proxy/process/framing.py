"""Messages as bytes: a length, then the pickled message; and the bytes back into messages, however they are cut.

Pickle is used since both ends run the same code, and one of them has started the other: the link is an inherited pair
of sockets without a name, which no other process can reach. Bytes that are no message are therefore our own fault, and
end the link. What a peer of Sluice has sent is only ever inside a message, as bytes or text.
"""

import pickle
from collections.abc import Iterator
from copyreg import dispatch_table
from io import BytesIO
from struct import Struct
from types import MappingProxyType
from typing import Any, Final

from proxy.process.messages import MESSAGES

# A description of 200,000 quotas takes about 25 MB; a request of a client, at most 4 MiB.
FRAME_BYTES_MAX: Final = 128 * 1024 * 1024
_LENGTH: Final = Struct(">I")


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def _reduced(view: MappingProxyType[Any, Any]) -> tuple[object, ...]:
    return _read_only, (dict(view),)


# Options have mappings that are read-only views.
_TABLE: Final[dict[type, Any]] = {**dispatch_table, MappingProxyType: _reduced}


class FrameError(Exception):
    """Bytes that are no message, or a message that is too long."""


def frame_of(message: object) -> bytes:
    """Return a message as bytes.

    Raises:
        FrameError: it is too long.
    """
    assert isinstance(message, MESSAGES), f"{type(message).__name__} is no message"
    out = BytesIO()
    out.write(bytes(_LENGTH.size))
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _TABLE
    pickler.dump(message)
    size = out.tell() - _LENGTH.size
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"a {type(message).__name__} of {size} bytes is too long")
    out.seek(0)
    out.write(_LENGTH.pack(size))
    return out.getvalue()


class Frames:
    """Takes bytes as they come, and returns the messages that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = 0  # bytes of the message that is under way; 0: its length is not known

    def __len__(self) -> int:
        """The number of bytes that are kept."""
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[object]:
        """Yield the messages that are complete with these bytes.

        Raises:
            FrameError: they are no messages.
        """
        buffer = self._buffer
        buffer += data
        while True:
            if not self._wanted:
                if len(buffer) < _LENGTH.size:
                    return
                (self._wanted,) = _LENGTH.unpack_from(buffer)
                if not 0 < self._wanted <= FRAME_BYTES_MAX:
                    raise FrameError(f"a message of {self._wanted} bytes")
            end = _LENGTH.size + self._wanted
            if len(buffer) < end:
                return
            with memoryview(buffer) as view:
                message = _read(view[_LENGTH.size : end])
            del buffer[:end]
            self._wanted = 0
            yield message


def _read(body: memoryview) -> object:
    try:
        message = pickle.loads(body)  # from our own parent or child: see above
    except Exception as error:
        raise FrameError(f"bytes that are no message: {error}") from error
    if not isinstance(message, MESSAGES):
        raise FrameError(f"{type(message).__name__} is no message")
    return message
