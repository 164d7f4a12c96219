"""Whole messages, as kafka-python encodes and decodes them; its packages of messages are `admin` and so on.

kafka-python reads a number of variable length to its last byte however long it is, in time that grows with the square;
so a response that has more continuation bytes in a row than any text or number of these messages is refused before.
Fields that Kafka may send as null are None here.
"""

from typing import Any, Final

from kafka.protocol import admin, consumer, metadata, sasl

from protocol.errors import MalformedFieldError, TruncatedError
from protocol.primitives import Buffer

__all__ = ["admin", "consumer", "decode", "encode", "metadata", "sasl"]

# A topic's id has 16 bytes, and next to it may lie some numbers that are -1.
_CONTINUATION_BYTES_MAX: Final = 256
_IS_CONTINUATION: Final = bytes(byte >= 0x80 for byte in range(256))
_TOO_MANY: Final = b"\1" * _CONTINUATION_BYTES_MAX
_PIECE_BYTES: Final = (
    64 * 1024
)  # looked through at a time, so that the interpreter may change threads in between


def encode(message: Any) -> bytes:
    """Return the fields of a request, without a header."""
    return bytes(message.encode())


def decode(kind: Any, version: int, frame: Buffer) -> Any:
    """Return the response in a whole frame.

    Args:
        kind: its class.

    Raises:
        WireError: it is no such response.
    """
    if int.from_bytes(frame[:4], "big") != len(frame) - 4:
        raise TruncatedError(f"a frame of {len(frame)} bytes is not what its length says")
    _check_numbers(frame)
    try:
        return kind.decode(memoryview(frame), version=version, header=True, framed=True)
    except Exception as error:  # noqa: BLE001 - kafka-python raises whatever each field does, assertions too
        raise MalformedFieldError(f"{kind.__name__} {version}: {type(error).__name__}: {error}") from None


def _check_numbers(frame: Buffer) -> None:
    """Refuse a frame in which a number may be too long to be read in time.

    Raises:
        MalformedFieldError: it is one.
    """
    for start in range(0, len(frame), _PIECE_BYTES):
        piece = bytes(frame[start : start + _PIECE_BYTES + _CONTINUATION_BYTES_MAX])
        if _TOO_MANY in piece.translate(_IS_CONTINUATION):
            raise MalformedFieldError(
                f"more than {_CONTINUATION_BYTES_MAX} continuation bytes after byte {start}"
            )
