"""Encodes and decodes whole messages with kafka-python's message classes.

Fields that Kafka may send as null are None here.

Non-obvious:

- A response is searched for overlong numbers before it is decoded. kafka-python reads a variable-length number to its
  last byte, in quadratic time; so a response with more consecutive continuation bytes than any string or number of
  these messages has is refused.
- A decoded response takes about twenty times the memory of its bytes. So each request has its own limit for the
  response (`Request.bytes_max`), which follows from what is requested.
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
        kind: kafka-python's class of the response.

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
