"""A request of Sluice's own with the decoder of its response, made from kafka-python's message classes.

Fields that Kafka may send as null are None here.

    OSError             the broker cannot be reached, or the connection breaks
    └── ClosedError     the broker closed the connection instead of sending a response
    TimeoutError        the caller's deadline has passed
    RefusedError        the broker responds with one error to the whole request
    LoginError          the broker does not accept the credentials, or there are none
    WireError           what came back is not a response to the request (`protocol.errors`)

Non-obvious:

- A response is searched for overlong numbers before it is decoded. kafka-python reads a variable-length number to its
  last byte, in quadratic time; so a response with more consecutive continuation bytes than any string or number of
  these messages has is refused.
- A decoded response takes about twenty times the memory of its bytes. So each request has its own limit for the
  response (`Request.bytes_max`), which follows from what is requested.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from protocol.errors import MalformedFieldError, TruncatedError, WireError
from protocol.primitives import Buffer

T = TypeVar("T")

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Encoding a request for a thousand topics takes 4 ms, nearly a whole turn of the loop; and the limit of a response
# depends on the number of requested topics.
_TOPICS_MAX: Final = 250

# A topic's id has 16 bytes, and may be followed by numbers with the value -1.
_CONTINUATION_BYTES_MAX: Final = 256
_IS_CONTINUATION: Final = bytes(byte >= 0x80 for byte in range(256))
_TOO_MANY: Final = b"\1" * _CONTINUATION_BYTES_MAX
# Looked through at a time, so that the interpreter may change threads in between.
_PIECE_BYTES: Final = 64 * 1024


class ClosedError(ConnectionError):
    """The broker closed the connection instead of sending a response."""

    def __init__(self) -> None:
        super().__init__(
            "closed the connection without a response, as a broker that requires SASL or TLS does"
        )


class RefusedError(Exception):
    """The broker's response is an error for the whole request; the message is the broker's."""


class LoginError(Exception):
    """The broker refuses the credentials, or they cannot be read."""


ASKING_FAILS: Final = (OSError, WireError, LoginError, TimeoutError)
"""All of the above except RefusedError, which is a response."""


class Request(NamedTuple, Generic[T]):
    """A request, and how to decode its response.

    Attributes:
        body: the fields, without a header.
        read: decodes a whole response frame; raises WireError. Call it in a thread if the frame may be large, since it
            would block the event loop.
        bytes_max: the longest accepted response; a longer one is refused as soon as its length prefix is read.
    """

    api_key: int
    version: int
    body: bytes
    read: Callable[[bytes], T]
    bytes_max: int


def request_of(message: Any, response: Any, read: Callable[[Any], T], bytes_max: int) -> Request[T]:
    """Return a request made from kafka-python's message.

    Args:
        message: kafka-python's request message, with its version.
        response: kafka-python's class of the response.
        read: converts kafka-python's response to the result.
    """
    version = message.version
    return Request(
        message.API_KEY,
        version,
        bytes(message.encode()),
        lambda frame: read(decode(response, version, frame)),
        bytes_max,
    )


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
    """Check that no number in a frame is so long that decoding it would block the process.

    Raises:
        MalformedFieldError: the frame contains one.
    """
    for start in range(0, len(frame), _PIECE_BYTES):
        piece = bytes(frame[start : start + _PIECE_BYTES + _CONTINUATION_BYTES_MAX])
        if _TOO_MANY in piece.translate(_IS_CONTINUATION):
            raise MalformedFieldError(
                f"more than {_CONTINUATION_BYTES_MAX} continuation bytes after byte {start}"
            )


def chunks(topics: Sequence[T]) -> Iterator[Sequence[T]]:
    """Divide topics into lists of at most 250, one for each request.

    >>> [len(chunk) for chunk in chunks(range(600))]
    [250, 250, 100]
    """
    for start in range(0, len(topics), _TOPICS_MAX):
        yield topics[start : start + _TOPICS_MAX]
