"""Voters without their listeners, as kafka-python writes and reads them."""

import uuid

import pytest

from protocol.api import DESCRIBE_QUORUM
from protocol.errors import WireError
from protocol.messages.addresses import quorum_without_addresses
from tests.unit.protocol.kafka_frames import RESPONSES, decoded, framed, struct

CLS = RESPONSES[DESCRIBE_QUORUM]
VERSION = 2


def answer(host: str | None) -> bytes:
    replica = struct(
        CLS, VERSION, "ReplicaState", replica_id=1, replica_directory_id=uuid.UUID(int=5), log_end_offset=9,
        last_fetch_timestamp=8, last_caught_up_timestamp=7,
    )  # fmt: skip
    partition = struct(
        CLS, VERSION, "PartitionData", partition_index=0, error_code=0, error_message=None, leader_id=1,
        leader_epoch=2, high_watermark=3, current_voters=[replica, replica], observers=[replica],
    )  # fmt: skip
    topic = struct(CLS, VERSION, "TopicData", topic_name="__cluster_metadata", partitions=[partition])
    listeners = []
    if host is not None:
        listener = struct(CLS, VERSION, "Listener", host=host, port=9093)
        listener.name = "CONTROLLER"
        listeners = [listener, listener]
    nodes = [struct(CLS, VERSION, "Node", node_id=node, listeners=listeners) for node in (1, 2)]
    return framed(CLS[VERSION](error_code=0, error_message=None, topics=[topic], nodes=nodes))


def test_voters_keep_all_but_their_listeners() -> None:
    after = quorum_without_addresses(answer("10.0.0.1"), VERSION)
    assert after == answer(None)
    assert [node.node_id for node in decoded(CLS, VERSION, after).nodes] == [1, 2]


def test_truncated_response_is_refused() -> None:
    with pytest.raises(WireError):
        quorum_without_addresses(answer("10.0.0.1")[:-3], VERSION)
