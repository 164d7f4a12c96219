"""ApiVersions: the client's software, and the broker's version ranges, reduced to those that Sluice supports
(KIP-35, KIP-511), and which broker of which cluster the client means (KIP-1242).

A request of a version above Sluice's own is not forwarded, since a broker that knows the version would respond in a
layout that Sluice does not know: `refusal` is the response of a broker that does not know it either (KIP-511).

A key that is not in `protocol.api` is removed, and also one whose oldest version is newer than Sluice's newest. Oldest
versions are not changed: brokers only advertise 0 for Produce because librdkafka decides by it whether it may compress
(KAFKA-18659). Features and all later fields are not changed. A key to which Sluice responds itself is added if the
broker does not have it.
"""

import re
from collections.abc import Mapping
from struct import Struct
from typing import Final

from protocol.api import API_VERSIONS, FETCH, MAX_VERSION, flexible
from protocol.errors import WireError
from protocol.header import response_body_start, skip_header_tags
from protocol.primitives import (
    Buffer,
    count,
    count_bytes,
    int16,
    skip,
    skip_string,
    skip_tags,
    string_bytes,
    string_span,
)

UNSUPPORTED_VERSION: Final = 35
REBOOTSTRAP_REQUIRED: Final = 129

_INT32 = Struct(">i")
_KEY = Struct(">hhh")
_RECENT_FETCH: Final = 12
# Correlation id, error code, an array of one key: its oldest and newest versions.
_REFUSED = Struct(">ihihhh")
# What brokers accept as a name or version (KIP-511), and a bound on their length.
_SOFTWARE: Final = re.compile(rb"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]{0,62}[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3
CLUSTER_SINCE: Final = 5
_CLUSTER_ID_BYTES_MAX: Final = 64  # Kafka's have 22; one is kept for each response owed
_NOTHING: Final[Mapping[int, int]] = {}


def software(buf: Buffer, body: int, end: int, version: int) -> str:
    """Return the name and version of a client's software, such as "apache-kafka-java 4.0.0".

    "" if an ApiVersions request does not contain it (before version 3), has not arrived so far, is invalid, or is of a
    version that Sluice does not know.

    Args:
        body: where the header's client id ends.
        end: the end of the request, or of its bytes that have arrived.
    """
    if not _SOFTWARE_SINCE <= version <= MAX_VERSION[API_VERSIONS]:
        return ""
    try:
        start, after = string_span(buf, skip_header_tags(buf, body, end), end, True)
        name = _SOFTWARE.fullmatch(buf, start, after)
        start, after = string_span(buf, after, end, True)
        its_version = _SOFTWARE.fullmatch(buf, start, after)
    except WireError:
        return ""
    if name is None or its_version is None:
        return ""
    return f"{name[0].decode('ascii')} {its_version[0].decode('ascii')}"


def meant_cluster(buf: Buffer, body: int, end: int, version: int) -> bytes:
    """Return the id of the cluster that a client believes to reach, with a node of it, which the broker checks.

    b"" if an ApiVersions request contains none (before version 5, or before the client knows it), or is invalid or
    longer than any.

    Args:
        body: where the header's client id ends.
        end: the end of the request.
    """
    if version < CLUSTER_SINCE:
        return b""
    try:
        pos = skip_header_tags(buf, body, end)
        for _ in range(2):  # the software's name and version
            pos = skip_string(buf, pos, end, True)
        start, stop = string_span(buf, pos, end, True)
    except WireError:
        return b""
    return bytes(buf[start:stop]) if stop - start <= _CLUSTER_ID_BYTES_MAX else b""


def identifying_body(software_version: str, cluster_id: str, node_id: int) -> bytes:
    """Return the fields of an ApiVersions request, version 5, that only this node of this cluster accepts."""
    names = (
        string_bytes("sluice", True) + string_bytes(software_version, True) + string_bytes(cluster_id, True)
    )
    return names + _INT32.pack(node_id) + b"\0"


def error_code(frame: Buffer) -> int:
    """Return the error code of an ApiVersions response of any version, whose first ten bytes are there.

    Raises:
        TruncatedError: they are not.
    """
    return int16(frame, response_body_start(frame, 0, len(frame), API_VERSIONS, 0), len(frame))


def refusal(correlation_id: int) -> bytes:
    """Return the response to an ApiVersions request whose version Sluice does not know.

    Version 0 with UNSUPPORTED_VERSION and the versions of ApiVersions itself, as in Kafka: the client asks again in one
    of these.

    >>> refusal(7).hex(" ", -2)
    '0000 0010 0000 0007 0023 0000 0001 0012 0000 0005'
    """
    body = _REFUSED.pack(correlation_id, UNSUPPORTED_VERSION, 1, API_VERSIONS, 0, MAX_VERSION[API_VERSIONS])
    return _INT32.pack(len(body)) + body


def rewrite(
    frame: bytes,
    version: int,
    offered: Mapping[int, int] = _NOTHING,
    newest_offered: Mapping[int, int] = _NOTHING,
    own: Mapping[int, int] = _NOTHING,
) -> bytes:
    """Return a complete ApiVersions response, with the versions of each API limited to those that Sluice supports.

    Args:
        version: the version of the request; a broker that does not support it responds in version 0 with error 35.
        offered: by API key, a newest version that Sluice offers even if the broker does not support it.
        newest_offered: by API key, the newest version to offer although broker and Sluice support later ones.
        own: by API key, the newest version of the APIs to which Sluice responds itself: they are added, from version 0
            on, if the broker has none of these versions. Not before a broker without Fetch 12 (Kafka 2.7): some clients
            take which of these APIs there are for its release, and then send what it does not know.
    """
    end = len(frame)
    pos = response_body_start(frame, 0, end, API_VERSIONS, version)
    error = int16(frame, pos, end)
    compact = flexible(API_VERSIONS, 0 if error == UNSUPPORTED_VERSION else version)
    keys_pos = pos + 2
    keys, pos = count(frame, keys_pos, end, compact)
    entries: list[bytes] = []
    missing = {} if error else dict(own)
    is_recent = False
    for _ in range(keys):
        tags_pos = skip(pos, _KEY.size, end)
        api_key, oldest, newest = _KEY.unpack_from(frame, pos)
        pos = skip_tags(frame, tags_pos, end) if compact else tags_pos
        newest = min(newest, MAX_VERSION.get(api_key, -1), newest_offered.get(api_key, newest))
        is_recent |= api_key == FETCH and newest >= _RECENT_FETCH
        if api_key in offered:
            newest = max(newest, offered[api_key])
        if oldest <= newest:
            missing.pop(api_key, None)
            entries.append(_KEY.pack(api_key, oldest, newest) + frame[tags_pos:pos])
    tags = b"\0" if compact else b""
    if is_recent:
        entries += [_KEY.pack(api_key, 0, newest) + tags for api_key, newest in missing.items()]
    body = frame[4:keys_pos] + count_bytes(len(entries), compact) + b"".join(entries) + frame[pos:]
    return _INT32.pack(len(body)) + body
