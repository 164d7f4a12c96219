"""A request of Sluice's own, with what reads its response, and how much is asked for at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["KIB", "MIB", "Request", "chunks"]

T = TypeVar("T")

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Making a request for a thousand topics takes 4 ms, nearly all that a turn of the loop may; and what a response may
# take is limited by what was asked for.
_TOPICS_MAX: Final = 250


class Request(NamedTuple, Generic[T]):
    """What is sent, and how its response is read.

    Attributes:
        body: the fields, without a header.
        read: reads the response, a whole frame; raises WireError. Large ones take longer than a turn of the loop.
        bytes_max: the longest response that is accepted; it is refused at its length.
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
