"""A request's header, read from the first bytes of its frame, and the start of a response's body.

Versions 1 and 2 of the request header are equal up to the client id, which has a two-byte length even in version 2;
version 2 adds a tag section (KIP-482). Only ControlledShutdown has used version 0, which has no client id. A response
header is the correlation id and, in flexible versions, a tag section; ApiVersions never has the section, so that a
client can parse the response before it knows the broker's versions.

Positions are those of the four-byte length prefix. `proxy.channel` identifies the client.
"""

from struct import Struct
from typing import Final, TypeAlias

from protocol.api import API_VERSIONS, FLEXIBLE_SINCE, flexible
from protocol.errors import MalformedFieldError, OversizedError, TruncatedError
from protocol.primitives import Buffer, skip_tagged_fields, uvarint

# Frame length, API key, API version, correlation id, length of the client id.
REQUEST_HEAD: Final = Struct(">ihhih")
RequestHead: TypeAlias = tuple[int, int, int, int, int]
# Frame length, correlation id.
RESPONSE_HEAD: Final = Struct(">ii")

# Kafka's headers have no tags yet; a few are accepted.
HEADER_TAGS_MAX: Final = 16
HEADER_TAGS_BYTES_MAX: Final = 4096

_CLIENT_ID = REQUEST_HEAD.size
_client_id_size = Struct(">h").unpack_from


def client_id(buf: Buffer, pos: int, end: int) -> str | None:
    """Return the client id of the request whose length prefix is at `pos`.

    "" if it is null or missing; None if the bytes before `end` do not contain all of it. Bytes that are not UTF-8
    become backslash escapes, since the client id is only a key for counting.
    """
    start = pos + _CLIENT_ID
    if start > end:
        return None
    size: int = _client_id_size(buf, start - 2)[0]
    if size <= 0:
        if size < -1:
            raise MalformedFieldError(f"client id of {size} bytes at byte {start - 2}")
        return ""
    if start + size > end:
        return None
    return str(buf[start : start + size], "utf-8", "backslashreplace")


def body_start(buf: Buffer, pos: int, end: int, api_key: int, version: int) -> int | None:
    """Return where the body of the request with its length prefix at `pos` begins; None if its header is incomplete."""
    start = pos + _CLIENT_ID
    if start > end:
        return None
    size: int = _client_id_size(buf, start - 2)[0]
    if size > 0:
        start += size
    elif size < -1:
        raise MalformedFieldError(f"client id of {size} bytes at byte {start - 2}")
    if not flexible(api_key, version):
        return start if start <= end else None
    try:
        return skip_header_tags(buf, start, end)
    except TruncatedError:
        return None


def response_body_start(buf: Buffer, pos: int, end: int, api_key: int, version: int) -> int:
    """Return where the body begins of the response whose length prefix is at `pos`.

    Raises:
        TruncatedError: the header is not complete before `end`.
    """
    start = pos + RESPONSE_HEAD.size
    if start > end:
        raise TruncatedError(f"the header of a response at byte {pos} is cut off at {end}")
    if api_key == API_VERSIONS or version < FLEXIBLE_SINCE.get(api_key, 0):
        return start
    return skip_header_tags(buf, start, end)


def skip_header_tags(buf: Buffer, pos: int, end: int) -> int:
    """Return the position after a header's tag section, which begins at `pos`.

    Raises:
        TruncatedError: the section is not complete before `end`.
        OversizedError: the section has too many tags or bytes.
    """
    if pos < end and not buf[pos]:
        return pos + 1
    limit = min(end, pos + HEADER_TAGS_BYTES_MAX)
    try:
        tags, after = uvarint(buf, pos, limit)
        if tags > HEADER_TAGS_MAX:
            raise OversizedError(f"{tags} tags in a header, at most {HEADER_TAGS_MAX} are accepted")
        return skip_tagged_fields(buf, after, limit, tags)
    except TruncatedError:
        if limit == end:
            raise
        raise OversizedError(f"a header's tags have more than {HEADER_TAGS_BYTES_MAX} bytes") from None
