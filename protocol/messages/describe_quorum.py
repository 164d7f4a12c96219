"""DescribeQuorum responses 0-2 without the listeners of voters (KIP-595, KIP-853).

No controller is behind Sluice, so there is no address to replace them: the nodes stay, their listeners are removed.
Replicas' states are skipped. Responses before version 2 contain no address.
"""

from typing import Final

from protocol.api import DESCRIBE_QUORUM
from protocol.header import response_body_start
from protocol.primitives import count, count_bytes, skip, skip_string, skip_tags

__all__ = ["ENDPOINTS_SINCE", "without_addresses"]

ENDPOINTS_SINCE: Final = 2
_NO_LISTENERS: Final = count_bytes(0, True)
_REPLICA_BYTES: Final = 4 + 16 + 8 + 8 + 8  # id, directory's id, log end offset, and two times


def without_addresses(frame: bytes, version: int) -> bytes:
    """Return a whole response without listeners; only for versions that may contain them.

    Raises:
        WireError: it is not such a response.
    """
    assert version >= ENDPOINTS_SINCE, "older ones pass as they are"
    end = len(frame)
    pos = response_body_start(frame, 0, end, DESCRIBE_QUORUM, version)
    pos = skip_string(frame, skip(pos, 2, end), end, True)
    topics, pos = count(frame, pos, end, True)
    for _ in range(topics):
        partitions, pos = count(frame, skip_string(frame, pos, end, True), end, True)
        for _ in range(partitions):
            pos = _skip_partition(frame, pos, end)
        pos = skip_tags(frame, pos, end)
    nodes, after = count(frame, pos, end, True)
    parts = [frame[4:after]]
    pos = after
    for _ in range(nodes):
        listeners_at = skip(pos, 4, end)
        parts += (frame[pos:listeners_at], _NO_LISTENERS)
        listeners, pos = count(frame, listeners_at, end, True)
        for _ in range(listeners):
            pos = skip_string(frame, skip_string(frame, pos, end, True), end, True)
            pos = skip_tags(frame, skip(pos, 2, end), end)
        tags_at, pos = pos, skip_tags(frame, pos, end)
        parts.append(frame[tags_at:pos])
    body = b"".join((*parts, frame[pos:]))
    return len(body).to_bytes(4, "big") + body


def _skip_partition(frame: bytes, pos: int, end: int) -> int:
    # Index, error code, error message; the leader's id and epoch, the high watermark; voters, observers.
    pos = skip(skip_string(frame, skip(pos, 6, end), end, True), 16, end)
    for _ in range(2):
        replicas, pos = count(frame, pos, end, True)
        for _ in range(replicas):
            pos = skip_tags(frame, skip(pos, _REPLICA_BYTES, end), end)
    return skip_tags(frame, pos, end)
