"""DescribeCluster: replaces the brokers' addresses by Sluice's (KIP-700, KIP-919, KIP-1073).

Brokers without an address for clients are removed. Controllers (endpoint type 2) are not behind Sluice and are all
removed; a broker refuses such a request anyway.
"""

from struct import Struct
from typing import Final

from protocol.api import DESCRIBE_CLUSTER
from protocol.header import response_body_start
from protocol.messages.endpoints import AddressMap
from protocol.primitives import count, count_bytes, int32, skip, skip_string, skip_tags, string, string_bytes

_INT32 = Struct(">i")
_ENDPOINT_TYPE_SINCE: Final = 1
_FENCED_SINCE: Final = 2
_BROKERS: Final = 1


def rewrite(frame: bytes, version: int, address_map: AddressMap) -> bytes:
    """Return a whole frame with the brokers' addresses for clients."""
    end = len(frame)
    pos = response_body_start(frame, 0, end, DESCRIBE_CLUSTER, version)
    # Throttle time, error code, error message.
    pos = skip_string(frame, skip(pos, 6, end), end, True)
    endpoint_type = _BROKERS
    if version >= _ENDPOINT_TYPE_SINCE:
        after = skip(pos, 1, end)
        endpoint_type, pos = frame[pos], after
    # Cluster id, controller id.
    brokers_pos = skip(skip_string(frame, pos, end, True), 4, end)
    brokers, pos = count(frame, brokers_pos, end, True)
    entries: list[bytes] = []
    for _ in range(brokers):
        node_id = int32(frame, pos, end)
        host, pos = string(frame, pos + 4, end, True)
        port = int32(frame, pos, end)
        rest = pos + 4
        pos = skip_string(frame, rest, end, True)
        pos = skip_tags(frame, pos + 1 if version >= _FENCED_SINCE else pos, end)
        address = address_map(node_id, host or "", port) if endpoint_type == _BROKERS else None
        if address is not None:
            head = _INT32.pack(node_id) + string_bytes(address[0], True) + _INT32.pack(address[1])
            entries.append(head + frame[rest:pos])
    body = frame[4:brokers_pos] + count_bytes(len(entries), True) + b"".join(entries) + frame[pos:]
    return _INT32.pack(len(body)) + body
