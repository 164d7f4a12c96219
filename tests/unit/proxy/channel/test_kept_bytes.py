"""What a channel counts as kept for its client, and that nothing of it is left when it is over."""

import pytest

from protocol.api import CREATE_TOPICS, DESCRIBE_CLIENT_QUOTAS
from protocol.walks.walk import TOPIC_SIZE_BYTES
from proxy.channel import SharedResponse
from proxy.channel.direction import AT_ONCE_BYTES_MAX
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import CLIENT_ID_CHARACTERS_MAX
from tests.support.engines import engine_with
from tests.support.frames import LIST_OFFSETS, produce_to, request
from tests.support.mutation_frames import create, mutation_response
from tests.support.playbook import Playbook, channel_machine, playbook

STRICT = 7


def dialogue(entity: Entity | None = None, **limits: float) -> Playbook:
    return playbook(engine_with({} if entity is None else {entity: limits}))


def test_response_made_here_counts_until_it_is_given() -> None:
    talk = playbook(serves_quota_api=True)
    for response in (b"answer", b"another"):
        talk.orders("client", 0, request(DESCRIBE_CLIENT_QUOTAS, 1))
        talk.channel.responded(response)
    assert talk.channel.kept_bytes == 6 + 7
    talk.orders("broker", 0, b"")
    assert talk.channel.kept_bytes == 0


@pytest.mark.parametrize("shared", [False, True])
def test_question_counts_until_its_response_does(shared: bool) -> None:
    talk = playbook(serves_quota_api=True)
    asked = request(DESCRIBE_CLIENT_QUOTAS, 1, size=200)
    talk.orders("client", 0, asked)
    assert talk.channel.kept_bytes == len(asked)
    talk.channel.responded(
        SharedResponse(b"12345678", memoryview(b"the rest")) if shared else b"12345678the rest"
    )
    assert talk.channel.kept_bytes == 16
    talk.orders("broker", 0, b"")
    assert (talk.channel.kept_bytes, talk.owed) == (0, 0)


def test_further_client_ids_count_by_their_length() -> None:
    talk = dialogue()
    talk.orders("client", 0, request(LIST_OFFSETS, 7, client_id="first"))
    assert talk.channel.kept_bytes == 0, "what every connection has is not counted"
    talk.orders("client", 0, request(LIST_OFFSETS, 7, client_id="x" * 1000))
    assert 1000 < talk.channel.kept_bytes < 2100
    talk.channel.close(0)
    assert talk.channel.kept_bytes == 0


def test_client_ids_that_are_too_long_are_one() -> None:
    talk = dialogue()
    for number in range(10):
        name = str(number).ljust(CLIENT_ID_CHARACTERS_MAX + 1, "x")
        talk.orders("client", 0, request(LIST_OFFSETS, 7, client_id=name))
    assert talk.channel.kept_bytes == 0


def test_topics_of_a_request_count_until_the_broker_has_responded() -> None:
    talk = dialogue(Entity(client_id=DEFAULT), controller_mutation_rate=1000)
    asked = create(STRICT, {"one": 1, "two": 1})
    talk.orders("client", 0, asked)
    assert talk.channel.kept_bytes == len(asked) + 2 * 512
    talk.orders("broker", 0, mutation_response(CREATE_TOPICS, STRICT, [("one", 0), ("two", 0)]))
    assert talk.channel.kept_bytes == 0


def test_frame_that_is_parsed_elsewhere_counts_until_its_result_is_taken() -> None:
    direction = channel_machine().requests
    frame = bytes(AT_ONCE_BYTES_MAX + 1)
    assert direction.parse(len, frame) is None
    assert direction.kept_bytes == len(frame)
    job = direction.verdict.job
    assert job is not None
    job.run()
    assert direction.kept_bytes == 25 * len(frame)
    assert (direction.parse(len, frame), direction.kept_bytes) == (len(frame), 0)


def test_topics_count_while_a_frame_that_names_them_is_walked() -> None:
    talk = dialogue(Entity(topic=DEFAULT), producer_byte_rate=1e9)
    asked = produce_to(9, {"a": [100], "b": [100], "c": [10_000]})
    talk.orders("client", 0, asked[:-5_000])
    assert talk.channel.kept_bytes == 2 * TOPIC_SIZE_BYTES, "the third one is under way"
    talk.orders("client", 0, asked[-5_000:])
    assert talk.channel.kept_bytes == 0
