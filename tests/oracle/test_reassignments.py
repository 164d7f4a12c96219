"""Reassignments as we read and write them, read and written again by Kafka's own classes (KIP-455, KIP-860)."""

import pytest

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from protocol.messages import reassignments
from protocol.messages import reassignments as alter_reassignments
from tests.oracle.judge import Judge

SEEDS = range(8)
ALTER = ALTER_PARTITION_REASSIGNMENTS
LIST = LIST_PARTITION_REASSIGNMENTS


@pytest.mark.parametrize("version", [0, 1])
def test_alter_request_is_written_as_kafka_does(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame, body = judge.request(ALTER, version, seed)
        asked = alter_reassignments.read_alter_request(frame, body, version)
        assert asked.timeout_ms == judge.number("request", ALTER, version, "timeoutMs", frame)
        ours = alter_reassignments.request_body(asked, version)
        whole = frame[:body] + ours
        whole = (len(whole) - 4).to_bytes(4, "big") + whole[4:]
        again = judge.frame("set", "request", ALTER, version, "timeoutMs", asked.timeout_ms, whole)
        assert again == whole
        assert alter_reassignments.read_alter_request(whole, body, version) == asked


@pytest.mark.parametrize("version", [0, 1])
def test_alter_response_is_written_as_kafka_does(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame = judge.response(ALTER, version, seed)
        received = alter_reassignments.read_alter_response(frame, version)
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        ours = alter_reassignments.write_alter_response(received, version, correlation_id)
        told = received.throttle_time_ms
        assert judge.frame("set", "response", ALTER, version, "throttleTimeMs", told, ours) == ours


def test_list_response_is_written_as_kafka_does(judge: Judge) -> None:
    for seed in SEEDS:
        frame = judge.response(LIST, 0, seed)
        found = reassignments.read_list_response(frame)
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        ours = reassignments.write_list_response(found, correlation_id)
        told = found.throttle_time_ms
        assert judge.frame("set", "response", LIST, 0, "throttleTimeMs", told, ours) == ours
        asked, body = judge.request(LIST, 0, seed)
        reassignments.read_list_request(asked, body)
