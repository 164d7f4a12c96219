"""Topic mutations as we cut and respond to them, read and written again by Kafka's own classes (KIP-599)."""

import pytest

from protocol import api
from protocol.messages import metadata
from protocol.messages import topic_mutations as requests
from protocol.messages import topic_mutations as responses
from tests.oracle.judge import Judge

SEEDS = range(6)
# The oldest versions that Kafka 4 still has.
OLDEST = {api.CREATE_TOPICS: 2, api.DELETE_TOPICS: 1, api.CREATE_PARTITIONS: 0}
EVERY = [
    (key, version) for key, oldest in OLDEST.items() for version in range(oldest, api.MAX_VERSION[key] + 1)
]


def again(judge: Judge, side: str, api_key: int, version: int, field: str, value: int, frame: bytes) -> bytes:
    """The frame as Kafka writes what it has read, with this number in it."""
    return judge.frame("set", side, api_key, version, field, value, frame)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_request_without_topics_is_kafkas(judge: Judge, api_key: int, version: int) -> None:
    for seed in SEEDS:
        frame, body = judge.request(api_key, version, seed)
        asked = requests.read_request(frame, body, api_key, version)
        assert asked.timeout_ms == judge.number("request", api_key, version, "timeoutMs", frame)
        for kept in (asked.topics, asked.topics[::2], ()):
            ours = requests.keep_topics(frame, asked, kept, api_key, version)
            assert again(judge, "request", api_key, version, "timeoutMs", asked.timeout_ms, ours) == ours
        assert requests.keep_topics(frame, asked, asked.topics, api_key, version) == frame


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_responses_made_here_are_kafkas(judge: Judge, api_key: int, version: int) -> None:
    for seed in SEEDS:
        frame, body = judge.request(api_key, version, seed)
        topics = requests.read_request(frame, body, api_key, version).topics
        local = responses.local_response(topics, api_key, version, 7, 77)
        assert again(judge, "response", api_key, version, "throttleTimeMs", 77, local) == local
        received = judge.response(api_key, version, seed)
        found = responses.read_response(received, api_key, version)
        told = int.from_bytes(received[found.throttle_at : found.throttle_at + 4], "big", signed=True)
        assert told == judge.number("response", api_key, version, "throttleTimeMs", received)
        entries: list[responses.TopicResult | bytes | None] = [*found.topics]
        entries += (responses.rejected_entry(topic, api_key, version) for topic in topics)
        merged = responses.merged_response(received, found, entries, compact=api.flexible(api_key, version))
        assert again(judge, "response", api_key, version, "throttleTimeMs", told, merged) == merged


@pytest.mark.parametrize("version", range(api.MAX_VERSION[api.METADATA] + 1))
def test_topics_of_metadata_are_read_to_their_end(judge: Judge, version: int) -> None:
    for seed in SEEDS:
        frame = judge.response(api.METADATA, version, seed)
        assert all(topic.partitions >= 0 for topic in metadata.read_topics(frame, version))
        asked, body = judge.request(api.METADATA, version, seed)
        metadata.read_request(asked, body, version)


def test_questions_for_sizes_are_kafkas(judge: Judge) -> None:
    for version, question in (
        (metadata.BY_NAME_VERSION, metadata.request_by_name(["a", "topic"], 7, b"c")),
        (metadata.BY_ID_VERSION, metadata.request_by_id([bytes(range(16))], 7, b"c")),
    ):
        assert (
            judge.ask("get", "request", api.METADATA, version, "allowAutoTopicCreation", question) == "false"
        )
