"""Sluice's own requests, as Kafka's own classes read them, and arbitrary responses of Kafka's, read to their end."""

from typing import Any

import pytest

from kafka_client import Request, metadata, quotas, topics
from tests.cluster.jars import NEWEST
from tests.oracle.judge import KAFKA, Judge
from tests.support.own_requests import frame_of

SEEDS = range(8)
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# Each with what Kafka's class says of it.
REQUESTS: list[tuple[Request[Any], str]] = [
    (
        metadata.brokers(),
        (
            "MetadataRequestData(topics=[], allowAutoTopicCreation=true, includeClusterAuthorizedOperations=false, "
            "includeTopicAuthorizedOperations=false)"
        ),
    ),
    (
        metadata.partitions(["a"]),
        (
            f"MetadataRequestData(topics=[MetadataRequestTopic(topicId={NO_ID}, name='a')], "
            "allowAutoTopicCreation=false, includeClusterAuthorizedOperations=false, "
            "includeTopicAuthorizedOperations=false)"
        ),
    ),
    (
        metadata.topics_by_id([bytes(15) + b"\1"]),
        (
            "MetadataRequestData(topics=[MetadataRequestTopic(topicId=AAAAAAAAAAAAAAAAAAAAAQ, name=null)], "
            "allowAutoTopicCreation=false, includeClusterAuthorizedOperations=false, "
            "includeTopicAuthorizedOperations=false)"
        ),
    ),
    (
        metadata.registered_brokers(),
        (
            "DescribeClusterRequestData(includeClusterAuthorizedOperations=false, endpointType=1, "
            "includeFencedBrokers=true)"
        ),
    ),
    (
        metadata.describe_brokers([3], ["k"]),
        (
            "DescribeConfigsRequestData(resources=[DescribeConfigsResource(resourceType=4, resourceName='3', "
            "configurationKeys=[k])], includeSynonyms=false, includeDocumentation=false)"
        ),
    ),
    (metadata.replica_sizes(), "DescribeLogDirsRequestData(topics=null)"),
    (metadata.is_cordoned(), "DescribeLogDirsRequestData(topics=[])"),
    (
        metadata.elect_preferred([("a", 1), ("b", 0), ("a", 2)], 5000),
        (
            "ElectLeadersRequestData(electionType=0, topicPartitions=[TopicPartitions(topic='a', partitions=[1, 2]), "
            "TopicPartitions(topic='b', partitions=[0])], timeoutMs=5000)"
        ),
    ),
    (metadata.list_ongoing(), "ListPartitionReassignmentsRequestData(timeoutMs=60000, topics=null)"),
    (quotas.describe(), "DescribeClientQuotasRequestData(components=[], strict=false)"),
    (
        quotas.alter([([("user", None)], [("producer_byte_rate", 5.0), ("k", None)])], validate_only=True),
        (
            "AlterClientQuotasRequestData(entries=[EntryData(entity=[EntityData(entityType='user', entityName=null)], "
            "ops=[OpData(key='producer_byte_rate', value=5.0, remove=false), OpData(key='k', value=0.0, "
            "remove=true)])], validateOnly=true)"
        ),
    ),
    (
        metadata.cluster_brokers(),
        (
            "MetadataRequestData(topics=[], allowAutoTopicCreation=true, includeClusterAuthorizedOperations=false, "
            "includeTopicAuthorizedOperations=false)"
        ),
    ),
    (
        metadata.identify("1.0", "ours", 3),
        (
            "ApiVersionsRequestData(clientSoftwareName='sluice', clientSoftwareVersion='1.0', clusterId='ours', "
            "nodeId=3)"
        ),
    ),
    (
        topics.version_ranges("me"),
        (
            "ApiVersionsRequestData(clientSoftwareName='me', clientSoftwareVersion='1', clusterId=null, "
            "nodeId=-1)"
        ),
    ),
    (
        topics.first_offsets("a", [4]),
        (
            "ListOffsetsRequestData(replicaId=-1, isolationLevel=0, topics=[ListOffsetsTopic(name='a', "
            "partitions=[ListOffsetsPartition(partitionIndex=4, currentLeaderEpoch=-1, timestamp=-2)])], timeoutMs=0)"
        ),
    ),
]
# Those that kafka-python reads; of ApiVersions it reads every response with an error as one of version 0.
READ: list[Request[Any]] = [
    metadata.brokers(),
    metadata.cluster_brokers(),
    metadata.partitions(["a"]),
    metadata.partitions(["a"], 9),
    metadata.topics_by_id([bytes(16)]),
    metadata.registered_brokers(),
    metadata.describe_topics(["a"], ["k"]),
    metadata.replica_sizes(),
    metadata.is_cordoned(),
    metadata.elect_preferred([], 1),
    quotas.alter([], validate_only=True),
    topics.create_placed("a", [[1]]),
    topics.first_offsets("a", [0]),
]


def name(value: object) -> str:
    return f"{value.api_key}v{value.version}" if isinstance(value, Request) else ""


@pytest.mark.parametrize(("request_", "said"), REQUESTS, ids=name)
def test_request_is_read_by_kafka(judge: Judge, request_: Request[Any], said: str) -> None:
    judge.require(request_.api_key, request_.version)
    asked = judge.ask("get", "request", request_.api_key, request_.version, "toString", frame_of(request_))
    # Older classes print other fields; that they read it to its end is what they say.
    assert asked == said or KAFKA != NEWEST


def test_created_topic_is_read_by_kafka(judge: Judge) -> None:
    request = topics.create_placed("a", [[1, 2], [2, 1]])
    judge.require(request.api_key, request.version)
    asked = judge.ask("get", "request", request.api_key, request.version, "toString", frame_of(request))
    assert "name='a', numPartitions=-1, replicationFactor=-1" in asked
    assert "partitionIndex=1, brokerIds=[2, 1]" in asked
    assert asked.endswith("timeoutMs=30000, validateOnly=false)")


@pytest.mark.parametrize("request_", READ, ids=name)
def test_responses_of_kafka_are_read(judge: Judge, request_: Request[Any]) -> None:
    for seed in SEEDS:
        request_.read(judge.response(request_.api_key, request_.version, seed))
