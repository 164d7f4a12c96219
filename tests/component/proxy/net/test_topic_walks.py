"""Walks over real sockets: with topics' quotas payloads go by splice as before, and are charged and muted for."""

import pytest

from quotas.definitions.entities import Entity
from tests.component.proxy.net.rig import ASKED, Rig, until
from tests.component.proxy.net.test_pump import through
from tests.support.engines import engine_with
from tests.support.frames import fetch, fetched_from, produce_to, topic_id

LIMITS = {"producer_byte_rate": 10_000.0, "consumer_byte_rate": 10_000.0}
TOPICS = {"t": [300_000, 10, 700_000], "other": [5, 400_000]}


def limited(rig: Rig, pipes_max: int) -> None:
    rig.limit(pipes_max=pipes_max)
    rig.engine = engine_with({Entity(topic="t"): LIMITS})
    rig.engine.topics.names.learn(topic_id("t"), "t")


def charged(rig: Rig) -> list[tuple[str, str, int]]:
    return [(view.type, view.client_id, view.bytes_total // 1000) for view in rig.engine.views(0, "topics")]


@pytest.mark.parametrize("pipes_max", [0, 64], ids=["buffers", "splice"])
@pytest.mark.parametrize("version", [8, 9, 13])
async def test_large_requests_pass_and_are_charged(rig: Rig, pipes_max: int, version: int) -> None:
    limited(rig, pipes_max)
    client, broker = await rig.joined(ASKED)
    asked = produce_to(version, TOPICS, correlation_id=2)
    assert await through(client, broker, asked) == asked
    # 1,000,010 bytes at 10,000 bytes/s, where the windows hold 100,000: the longest mute there is, 20 s.
    await until(lambda: charged(rig) == [("Produce", "t", 1000)], "the topic is charged")
    more = produce_to(version, TOPICS, correlation_id=3)
    await client.send(more[:1000])
    await until(lambda: rig.stats.muted == 1, "the next request waits")
    assert (rig.stats.spliced_bytes > 500_000) is (pipes_max > 0)


@pytest.mark.parametrize("pipes_max", [0, 64], ids=["buffers", "splice"])
@pytest.mark.parametrize("version", [11, 12, 16])
async def test_large_responses_pass_and_are_charged(rig: Rig, pipes_max: int, version: int) -> None:
    limited(rig, pipes_max)
    client, broker = await rig.joined(fetch(version))
    response = fetched_from(version, TOPICS)
    assert await through(broker, client, response) == response
    await until(lambda: charged(rig) == [("Fetch", "t", 1000)], "the topic is charged")
    assert (rig.stats.spliced_bytes > 500_000) is (pipes_max > 0)


MANY = {"t": [10]} | {
    f"x{index}": [0] for index in range(20_000)
}  # a walk takes 1,500 steps in a turn of the loop


@pytest.mark.parametrize("version", [8, 9, 13])
async def test_request_of_thousands_of_topics_passes_turn_by_turn(rig: Rig, version: int) -> None:
    limited(rig, 64)
    client, broker = await rig.joined(ASKED)
    asked = produce_to(version, MANY, correlation_id=2) + fetch(12, correlation_id=3)
    assert await through(client, broker, asked) == asked
    assert [view.bytes_total < 100 for view in rig.engine.views(0, "topics")] == [True]


@pytest.mark.parametrize("version", [11, 12, 16])
async def test_response_of_thousands_of_topics_passes_turn_by_turn(rig: Rig, version: int) -> None:
    limited(rig, 64)
    client, broker = await rig.joined(fetch(version))
    response = fetched_from(version, MANY)
    assert await through(broker, client, response) == response
