"""API keys, the versions that Sluice supports, and which of them are flexible (KIP-482).

The table is that of Kafka 4.4's message definitions. ApiVersions responses are reduced so that clients do not choose a
version above `MAX_VERSION`. A request that has one is forwarded unread where Sluice needs nothing of the request and
changes nothing in the response; otherwise it ends the connection (docs/compatibility.md). A key that is not in the
table is newer than this release and is taken as flexible, as all new APIs since KIP-482 are.

The fields of messages are in `protocol.throttle` and `protocol.messages`.
"""

from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
ADD_PARTITIONS_TO_TXN: Final = 24
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_CONFIGS: Final = 32
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
ELECT_LEADERS: Final = 43
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_QUORUM: Final = 55
ENVELOPE: Final = 58
DESCRIBE_CLUSTER: Final = 60
CONSUMER_GROUP_HEARTBEAT: Final = 68
PUSH_TELEMETRY: Final = 72
SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
STREAMS_GROUP_HEARTBEAT: Final = 88

# A version above all others, for APIs that never became flexible.
_NEVER: Final = 32767

# key: (name, newest version served, first flexible version)
_TABLE: Final[dict[int, tuple[str, int, int]]] = {
    0: ("Produce", 13, 9),
    1: ("Fetch", 18, 12),
    2: ("ListOffsets", 11, 6),
    3: ("Metadata", 13, 9),
    8: ("OffsetCommit", 10, 8),
    9: ("OffsetFetch", 10, 6),
    10: ("FindCoordinator", 6, 3),
    11: ("JoinGroup", 9, 6),
    12: ("Heartbeat", 4, 4),
    13: ("LeaveGroup", 5, 4),
    14: ("SyncGroup", 5, 4),
    15: ("DescribeGroups", 6, 5),
    16: ("ListGroups", 5, 3),
    17: ("SaslHandshake", 1, _NEVER),
    18: ("ApiVersions", 5, 3),
    19: ("CreateTopics", 7, 5),
    20: ("DeleteTopics", 6, 4),
    21: ("DeleteRecords", 2, 2),
    22: ("InitProducerId", 6, 2),
    23: ("OffsetForLeaderEpoch", 4, 4),
    24: ("AddPartitionsToTxn", 5, 3),
    25: ("AddOffsetsToTxn", 4, 3),
    26: ("EndTxn", 5, 3),
    27: ("WriteTxnMarkers", 2, 1),
    28: ("TxnOffsetCommit", 6, 3),
    29: ("DescribeAcls", 3, 2),
    30: ("CreateAcls", 3, 2),
    31: ("DeleteAcls", 3, 2),
    32: ("DescribeConfigs", 4, 4),
    33: ("AlterConfigs", 2, 2),
    34: ("AlterReplicaLogDirs", 2, 2),
    35: ("DescribeLogDirs", 5, 2),
    36: ("SaslAuthenticate", 2, 2),
    37: ("CreatePartitions", 3, 2),
    38: ("CreateDelegationToken", 3, 2),
    39: ("RenewDelegationToken", 2, 2),
    40: ("ExpireDelegationToken", 2, 2),
    41: ("DescribeDelegationToken", 3, 2),
    42: ("DeleteGroups", 3, 2),
    43: ("ElectLeaders", 2, 2),
    44: ("IncrementalAlterConfigs", 1, 1),
    45: ("AlterPartitionReassignments", 1, 0),
    46: ("ListPartitionReassignments", 0, 0),
    47: ("OffsetDelete", 0, _NEVER),
    48: ("DescribeClientQuotas", 1, 1),
    49: ("AlterClientQuotas", 1, 1),
    50: ("DescribeUserScramCredentials", 0, 0),
    51: ("AlterUserScramCredentials", 0, 0),
    52: ("Vote", 2, 0),
    53: ("BeginQuorumEpoch", 1, 1),
    54: ("EndQuorumEpoch", 1, 1),
    55: ("DescribeQuorum", 2, 0),
    56: ("AlterPartition", 3, 0),
    57: ("UpdateFeatures", 2, 0),
    58: ("Envelope", 0, 0),
    59: ("FetchSnapshot", 1, 0),
    60: ("DescribeCluster", 2, 0),
    61: ("DescribeProducers", 0, 0),
    62: ("BrokerRegistration", 4, 0),
    63: ("BrokerHeartbeat", 2, 0),
    64: ("UnregisterBroker", 0, 0),
    65: ("DescribeTransactions", 0, 0),
    66: ("ListTransactions", 2, 0),
    67: ("AllocateProducerIds", 0, 0),
    68: ("ConsumerGroupHeartbeat", 1, 0),
    69: ("ConsumerGroupDescribe", 1, 0),
    70: ("ControllerRegistration", 0, 0),
    71: ("GetTelemetrySubscriptions", 0, 0),
    72: ("PushTelemetry", 0, 0),
    73: ("AssignReplicasToDirs", 0, 0),
    74: ("ListConfigResources", 1, 0),
    75: ("DescribeTopicPartitions", 0, 0),
    76: ("ShareGroupHeartbeat", 1, 0),
    77: ("ShareGroupDescribe", 1, 0),
    78: ("ShareFetch", 2, 0),
    79: ("ShareAcknowledge", 2, 0),
    80: ("AddRaftVoter", 1, 0),
    81: ("RemoveRaftVoter", 0, 0),
    82: ("UpdateRaftVoter", 0, 0),
    83: ("InitializeShareGroupState", 0, 0),
    84: ("ReadShareGroupState", 0, 0),
    85: ("WriteShareGroupState", 1, 0),
    86: ("DeleteShareGroupState", 0, 0),
    87: ("ReadShareGroupStateSummary", 1, 0),
    88: ("StreamsGroupHeartbeat", 1, 0),
    89: ("StreamsGroupDescribe", 1, 0),
    90: ("DescribeShareGroupOffsets", 1, 0),
    91: ("AlterShareGroupOffsets", 0, 0),
    92: ("DeleteShareGroupOffsets", 0, 0),
    93: ("StreamsGroupTopologyDescriptionUpdate", 0, 0),
    94: ("UnregisterController", 0, 0),
}

# Requests between brokers and ZooKeeper-era controllers: never advertised, but a 3.x broker may send them.
_REMOVED: Final[dict[int, tuple[str, int]]] = {
    4: ("LeaderAndIsr", 4),
    5: ("StopReplica", 2),
    6: ("UpdateMetadata", 6),
    7: ("ControlledShutdown", 3),
}

API_NAMES: Final[dict[int, str]] = {key: row[0] for key, row in (_TABLE | _REMOVED).items()}
MAX_VERSION: Final[dict[int, int]] = {key: row[1] for key, row in _TABLE.items()}
FLEXIBLE_SINCE: Final[dict[int, int]] = {key: row[-1] for key, row in (_TABLE | _REMOVED).items()}

_flexible_since = FLEXIBLE_SINCE.get


def flexible(api_key: int, version: int) -> bool:
    """Whether this version of an API is flexible (KIP-482): it has compact lengths and tag sections.

    >>> flexible(FETCH, 11), flexible(FETCH, 12), flexible(SASL_HANDSHAKE, 1)
    (False, True, False)
    """
    return version >= _flexible_since(api_key, 0)
