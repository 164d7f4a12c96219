"""The protocol errors of a peer that end its connection, and the longest frames that are kept whole.

Each cause of an error is one label of one counter.
"""

from collections.abc import Mapping
from typing import Final

from protocol import api
from protocol.api import DESCRIBE_CONFIGS

_TLS_HANDSHAKE: Final = 0x16
_HTTP_STARTS: Final = frozenset(
    (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PATC", b"PRI ")
)


class PeerError(Exception):
    """A peer sent bytes that no Kafka client or broker sends.

    Args:
        cause: a short, fixed word: the label under which it is counted.
        detail: the exact error, for the one log line.
    """

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail


def unreadable_length(first_bytes: bytes, length: int, length_max: int) -> PeerError:
    """Return the error for an impossible length prefix; it names what the bytes probably are (TLS, HTTP, ...)."""
    if first_bytes[:4] in _HTTP_STARTS:
        return PeerError("http_request", "an HTTP request on a Kafka port")
    if first_bytes[:1] == bytes((_TLS_HANDSHAKE,)) and first_bytes[1:2] == b"\x03":
        return PeerError("tls_hello", "a TLS handshake on a plaintext port")
    if length < 0:
        return PeerError("frame_length", f"negative frame length {length}")
    if length > length_max:
        return PeerError("frame_length", f"frame of {length} bytes, limits.frame_bytes_max is {length_max}")
    return PeerError("frame_length", f"frame of {length} bytes is shorter than its header")


# The longest frames that must be complete before they can be decided on, by API.
#
# Only a frame whose handler needs its end is kept whole; the comments below give the reason for each API. A longer
# frame ends its connection (`frame_length`, for a response `broker_frame_length`), unless the comment says "passes".
# All other frames are forwarded as they arrive, up to `limits.frame_bytes_max` and `limits.response_bytes_max`. The
# sizes in the comments are the largest that real clients and brokers send.
#
# JoinGroup, a measured Fetch or ShareFetch, and Produce are decided on by their first bytes and are not in these
# tables.

_KIB: Final = 1024
_MIB: Final = 1024 * 1024

# A header (a client id of 32,767 bytes, 4 KiB of tags) and two more strings (group and member; a transactional id).
FRONT_BYTES_MAX: Final = 128 * _KIB

REQUEST_BYTES_MAX: Final[Mapping[int, int]] = {
    # If its client or its topics are limited. 10,000 partitions are 0.1 MB; each range of acknowledged records is 19 B.
    api.SHARE_FETCH: 2 * _MIB,
    # If its client is limited, or the session had a local response: 10,000 partitions are 0.4 MB, with long names 0.7.
    api.FETCH: 2 * _MIB,
    # With a partition mutation quota: the flag for topic creation follows the names. 10,000 names are 0.3 MB.
    api.METADATA: _MIB,
    # With a partition mutation quota. A controller takes 10,000 records, so 10,000 topics, 0.1 to 0.4 kB each.
    api.CREATE_TOPICS: 4 * _MIB,
    api.CREATE_PARTITIONS: 4 * _MIB,
    api.DELETE_TOPICS: 4 * _MIB,
    # With a partition mutation quota: a topology of 1,000 internal topics with configs is 0.3 MB.
    api.STREAMS_GROUP_HEARTBEAT: _MIB,
    # Of a version above Sluice's own, which gets a local response. One has two strings and a cluster's id: 0.1 kB.
    api.API_VERSIONS: 64 * _KIB,
    # Local response. 10,000 alterations are 2 MB; a filter has a few components.
    api.ALTER_CLIENT_QUOTAS: 4 * _MIB,
    api.DESCRIBE_CLIENT_QUOTAS: 128 * _KIB,
    # If reassignments are carried out in steps. 100,000 partitions are 3 MB, as numbers alone 0.4 MB.
    api.ALTER_PARTITION_REASSIGNMENTS: 4 * _MIB,
    api.LIST_PARTITION_REASSIGNMENTS: _MIB,
    # In a gateway, to find broker resources: 10,000 topics are 0.3 MB, and 3 MB with ten keys each.
    DESCRIBE_CONFIGS: 4 * _MIB,
    # The name of a mechanism; a token, with Kafka's limit (sasl.server.max.receive.size).
    api.SASL_HANDSHAKE: FRONT_BYTES_MAX,
    api.SASL_AUTHENTICATE: 512 * _KIB,
}

RESPONSE_BYTES_MAX: Final[Mapping[int, int]] = {
    # If it gets a throttle time or rewritten addresses: 10,000 partitions are 0.5 MB.
    api.PRODUCE: 4 * _MIB,
    # With addresses: 10,000 groups are 1 MB; 1,000 brokers 0.1 MB.
    api.FIND_COORDINATOR: 2 * _MIB,
    api.DESCRIBE_CLUSTER: _MIB,
    # Of a request for a broker's configs: one broker's, with synonyms and documentation, are 0.2 MB.
    DESCRIBE_CONFIGS: 8 * _MIB,
    # With listeners: 1,000 replicas are 0.1 MB.
    api.DESCRIBE_QUORUM: _MIB,
    # A hundred APIs are 0.7 kB.
    api.API_VERSIONS: 64 * _KIB,
    # Of counted requests. CreateTopics returns 35 configs for each topic: 1.6 kB for each of 5,000 topics, which make
    # 10,000 records, are 8 MB.
    api.CREATE_TOPICS: 8 * _MIB,
    api.CREATE_PARTITIONS: 4 * _MIB,
    api.DELETE_TOPICS: 4 * _MIB,
    # If reassignments are carried out in steps. 100,000 partitions are 4 MB; a response names those that have failed.
    api.LIST_PARTITION_REASSIGNMENTS: 8 * _MIB,
    api.ALTER_PARTITION_REASSIGNMENTS: 4 * _MIB,
    # Also for bare tokens.
    api.SASL_AUTHENTICATE: 512 * _KIB,
}

# Where something is Sluice's own, a request that may name it in any of its items, and a response to one that did.
GUARDED_REQUEST_BYTES_MAX: Final = 4 * _MIB
GUARDED_RESPONSE_BYTES_MAX: Final = 8 * _MIB
# A follower's Fetch: 100,000 replicas are 4 MB.
REPLICA_FETCH_BYTES_MAX: Final = 8 * _MIB
# Of a Metadata response, the array of brokers before the topics: 1,000 brokers are 60 kB.
BROKERS_BYTES_MAX: Final = _MIB
# A Metadata response to a request that Sluice sent on a client's connection: 100,000 partitions are 4 MB.
SIZES_RESPONSE_BYTES_MAX: Final = 8 * _MIB
# A Metadata response that is examined for created topics; a longer one passes unexamined.
AUTO_CREATED_RESPONSE_BYTES_MAX: Final = _MIB

# The largest of all bounds: the most that one direction of a connection keeps, in addition to one read.
KEPT_BYTES_MAX: Final = max(
    *REQUEST_BYTES_MAX.values(),
    *RESPONSE_BYTES_MAX.values(),
    GUARDED_RESPONSE_BYTES_MAX,
    REPLICA_FETCH_BYTES_MAX,
    SIZES_RESPONSE_BYTES_MAX,
)
