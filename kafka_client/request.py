"""A request of Sluice's own with the decoder of its response, and the number of topics per request."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from protocol.errors import WireError

T = TypeVar("T")

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Encoding a request for a thousand topics takes 4 ms, nearly a whole turn of the loop; and the limit of a response
# depends on the number of requested topics.
_TOPICS_MAX: Final = 250


class Request(NamedTuple, Generic[T]):
    """A request, and how to decode its response.

    Attributes:
        body: the fields, without a header.
        read: decodes a whole frame; raises WireError. A large frame takes longer than one turn of the loop may take.
        bytes_max: the longest accepted response; a longer one is refused when its length is read.
    """

    api_key: int
    version: int
    body: bytes
    read: Callable[[bytes], T]
    bytes_max: int


def chunks(topics: Sequence[T]) -> Iterator[Sequence[T]]:
    """Divide topics among requests.

    >>> [len(chunk) for chunk in chunks(range(600))]
    [250, 250, 100]
    """
    for start in range(0, len(topics), _TOPICS_MAX):
        yield topics[start : start + _TOPICS_MAX]


# ----------------------------------------------------------------------------------------------------
# The errors of a request to a broker.
#
# OSError             the broker cannot be reached, or the connection breaks
# └── ClosedError     the broker closed the connection instead of sending a response
# TimeoutError        the caller's deadline has passed
# RefusedError        the broker responds with one error to the whole request
# LoginError          the broker does not accept the credentials, or there are none
# WireError           what came back is not a response to the request (`protocol.errors`)


class ClosedError(ConnectionError):
    """The broker closed the connection instead of sending a response."""

    def __init__(self) -> None:
        super().__init__(
            "closed the connection without a response, as a broker that requires SASL or TLS does"
        )


class RefusedError(Exception):
    """The broker responds with one error to the whole request; the text is the broker's."""


class LoginError(Exception):
    """The broker does not accept the credentials, or there are none."""


ASKING_FAILS: Final = (OSError, WireError, LoginError, TimeoutError)
"""All of the above except RefusedError, which is a response."""
