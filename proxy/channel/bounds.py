"""How large a frame may be that has to be whole before it can be decided, API by API.

A frame is kept whole only where a handler has to know its end: what follows says so of each. One that is longer ends
its connection (`frame_length`, of an answer `broker_frame_length`), unless it says "passes". All other frames pass
while they arrive, up to `limits.frame_bytes_max` and `limits.response_bytes_max`. The sizes named are what real clients
and brokers were seen to send, or send at most.

JoinGroup, a measured Fetch or ShareFetch and a Produce need only what stands at their front: FRONT_BYTES_MAX.
"""

from collections.abc import Mapping
from typing import Final

from protocol import api
from protocol.api import DESCRIBE_CONFIGS

__all__ = [
    "AUTO_CREATED_ANSWER_BYTES_MAX",
    "BROKERS_BYTES_MAX",
    "FRONT_BYTES_MAX",
    "KEPT_BYTES_MAX",
    "REPLICA_FETCH_BYTES_MAX",
    "REQUEST_BYTES_MAX",
    "RESPONSE_BYTES_MAX",
    "SIZES_ANSWER_BYTES_MAX",
]

_KIB: Final = 1024
_MIB: Final = 1024 * 1024

# A header (a client id of 32,767 bytes, 4 KiB of tags) and two more strings (group and member; a transactional id).
FRONT_BYTES_MAX: Final = 128 * _KIB

REQUEST_BYTES_MAX: Final[Mapping[int, int]] = {
    # Where its client, or topics, are limited. 10,000 partitions are 0.1 MB; each run of acknowledged records is 19 B.
    api.SHARE_FETCH: 2 * _MIB,
    # Where its client is limited, or a session was answered here: 10,000 partitions are 0.4 MB, with long names 0.7.
    api.FETCH: 2 * _MIB,
    # Under a partition mutation quota: whether it creates topics is said behind their names. 10,000 names are 0.3 MB.
    api.METADATA: _MIB,
    # Under a partition mutation quota. A controller takes 10,000 records, so 10,000 topics, 0.1 to 0.4 kB each.
    api.CREATE_TOPICS: 4 * _MIB,
    api.CREATE_PARTITIONS: 4 * _MIB,
    api.DELETE_TOPICS: 4 * _MIB,
    # Answered here. 10,000 alterations are 2 MB; a filter has a few parts.
    api.ALTER_CLIENT_QUOTAS: 4 * _MIB,
    api.DESCRIBE_CLIENT_QUOTAS: 128 * _KIB,
    # Where reassignments are carried out in steps. 100,000 partitions are 3 MB, as numbers alone 0.4 MB.
    api.ALTER_PARTITION_REASSIGNMENTS: 4 * _MIB,
    api.LIST_PARTITION_REASSIGNMENTS: _MIB,
    # In a gateway, for the brokers that it names: 10,000 topics are 0.3 MB, and 3 MB with ten keys each.
    DESCRIBE_CONFIGS: 4 * _MIB,
    # A mechanism's name; a token, as Kafka has it (sasl.server.max.receive.size).
    api.SASL_HANDSHAKE: FRONT_BYTES_MAX,
    api.SASL_AUTHENTICATE: 512 * _KIB,
}

RESPONSE_BYTES_MAX: Final[Mapping[int, int]] = {
    # With a throttle time to tell, or addresses: 10,000 partitions are 0.5 MB.
    api.PRODUCE: 4 * _MIB,
    # With addresses: 10,000 groups are 1 MB; 1,000 brokers 0.1 MB.
    api.FIND_COORDINATOR: 2 * _MIB,
    api.DESCRIBE_CLUSTER: _MIB,
    # To a request that names a broker: one's configs with synonyms and documentation are 0.2 MB.
    DESCRIBE_CONFIGS: 8 * _MIB,
    # With listeners: 1,000 replicas are 0.1 MB.
    api.DESCRIBE_QUORUM: _MIB,
    # A hundred APIs are 0.7 kB.
    api.API_VERSIONS: 64 * _KIB,
    # To requests that were counted. CreateTopics tells 35 configs of each topic: 1.6 kB of 5,000, which make 10,000
    # records, are 8 MB.
    api.CREATE_TOPICS: 8 * _MIB,
    api.CREATE_PARTITIONS: 4 * _MIB,
    api.DELETE_TOPICS: 4 * _MIB,
    # Where reassignments are carried out in steps. 100,000 partitions are 4 MB; an answer names what has failed.
    api.LIST_PARTITION_REASSIGNMENTS: 8 * _MIB,
    api.ALTER_PARTITION_REASSIGNMENTS: 4 * _MIB,
    # Bare tokens too.
    api.SASL_AUTHENTICATE: 512 * _KIB,
}

# A follower's Fetch: 100,000 replicas are 4 MB.
REPLICA_FETCH_BYTES_MAX: Final = 8 * _MIB
# Of a Metadata answer the array of brokers, which stands before the topics: 1,000 are 60 kB.
BROKERS_BYTES_MAX: Final = _MIB
# A Metadata answer that Sluice has asked for on a client's connection: 100,000 partitions are 4 MB.
SIZES_ANSWER_BYTES_MAX: Final = 8 * _MIB
# A Metadata answer that is looked through for created topics; a longer one passes unlooked.
AUTO_CREATED_ANSWER_BYTES_MAX: Final = _MIB

# The largest of all: what a direction of a connection keeps at most, beside one read.
KEPT_BYTES_MAX: Final = max(
    *REQUEST_BYTES_MAX.values(), *RESPONSE_BYTES_MAX.values(), REPLICA_FETCH_BYTES_MAX, SIZES_ANSWER_BYTES_MAX
)
