"""Encodes and decodes whole messages with kafka-python; its message packages are `admin` and so on.

kafka-python reads a variable-length number to its last byte, however long, in quadratic time; so a response with more
consecutive continuation bytes than any string or number of these messages is refused before. Fields that Kafka may
send as null are None here.

Non-obvious:

- A response to Sluice's own request is looked through before it is read. kafka-python reads a number of variable
  length to its last byte, in time that grows with the square, so one with 256 continuation bytes in a row is
  refused (`kafka_client/codec.py`). What it makes of a response takes about twenty times the response's bytes, so
  the limit of a response follows from what was asked for.
"""

from typing import Any, Final

from kafka.protocol import admin, consumer, metadata, sasl

from protocol.errors import MalformedFieldError, TruncatedError
from protocol.primitives import Buffer

__all__ = ["admin", "consumer", "decode", "encode", "metadata", "sasl"]

# A topic's id has 16 bytes, and may be followed by numbers with the value -1.
_CONTINUATION_BYTES_MAX: Final = 256
_IS_CONTINUATION: Final = bytes(byte >= 0x80 for byte in range(256))
_TOO_MANY: Final = b"\1" * _CONTINUATION_BYTES_MAX
_PIECE_BYTES: Final = (
    64 * 1024
)  # looked through at a time, so that the interpreter may change threads in between


def encode(message: Any) -> bytes:
    """Encode a request's fields, without a header."""
    return bytes(message.encode())


def decode(kind: Any, version: int, frame: Buffer) -> Any:
    """Decode the response in a whole frame.

    Args:
        kind: the response's class.

    Raises:
        WireError: the frame is not such a response.
    """
    if int.from_bytes(frame[:4], "big") != len(frame) - 4:
        raise TruncatedError(f"a frame of {len(frame)} bytes is not what its length says")
    _check_numbers(frame)
    try:
        return kind.decode(memoryview(frame), version=version, header=True, framed=True)
    except Exception as error:  # noqa: BLE001 - kafka-python raises whatever each field does, assertions too
        raise MalformedFieldError(f"{kind.__name__} {version}: {type(error).__name__}: {error}") from None


def _check_numbers(frame: Buffer) -> None:
    """Refuse a frame with a number that may be too long to be decoded in time.

    Raises:
        MalformedFieldError: the frame contains one.
    """
    for start in range(0, len(frame), _PIECE_BYTES):
        piece = bytes(frame[start : start + _PIECE_BYTES + _CONTINUATION_BYTES_MAX])
        if _TOO_MANY in piece.translate(_IS_CONTINUATION):
            raise MalformedFieldError(
                f"more than {_CONTINUATION_BYTES_MAX} continuation bytes after byte {start}"
            )
