"""The time that a Fetch or ShareFetch asks its broker to wait for records (max_wait_ms, min_bytes)."""

from typing import Final, NamedTuple

from protocol import api
from protocol.errors import TruncatedError, WireError
from protocol.header import RequestHead
from protocol.messages import fetch
from protocol.walks.share import fetch_waits
from proxy.channel.direction import skip_header_tags
from proxy.channel.in_flight import Buffer

FETCHES: Final = frozenset((api.FETCH, api.SHARE_FETCH))
# One append ends a Fetch's wait, and a batch is at most this large (message.max.bytes, by default): if a response
# exceeds min_bytes by this much, the records were complete before that append.
_APPENDED_BYTES_MAX: Final = 1024 * 1024


class FetchWait(NamedTuple):
    """The wait that a Fetch asks for.

    Args:
        wait_ms: the longest wait; 0 for none.
        no_wait_bytes: the size of a response's frame from which on the broker cannot have waited.
        follower: whether a follower sends the request (or its fields are invalid).
    """

    wait_ms: int = 0
    no_wait_bytes: int = 0
    follower: bool = False


_NO_WAIT: Final = FetchWait()
_OF_FOLLOWER: Final = FetchWait(follower=True)


def read_wait(buf: Buffer, pos: int, end: int, body: int, head: RequestHead) -> FetchWait | None:
    """Return how long a Fetch or ShareFetch may wait; None if its first fields have not arrived."""
    length, key, version, _, _ = head
    seen = min(end, pos + 4 + length)
    fields_at = skip_header_tags(buf, body, seen, flexible=api.flexible(key, version))
    if fields_at is None:
        return None
    if key == api.FETCH:
        fields = fetch.read_request(buf, fields_at, seen, version)
        if fields is None:
            return None
        if fields.replica_id >= 0:
            return _OF_FOLLOWER
        wait_ms, min_bytes = fields.max_wait_ms, fields.min_bytes
    else:
        try:
            wait_ms, min_bytes = fetch_waits(buf, fields_at, seen)
        except TruncatedError:
            return None
        except WireError:
            return _OF_FOLLOWER
    if wait_ms <= 0 or min_bytes <= 0:
        return _NO_WAIT
    return FetchWait(wait_ms, min_bytes + _APPENDED_BYTES_MAX)
