"""Names of topics, asked of a scripted broker."""

import asyncio
import uuid
from unittest.mock import AsyncMock, Mock

import pytest

from kafka_client import Request
from protocol.api import METADATA
from proxy.config import Address
from proxy.control.cluster import BrokerClient, BrokerMap, TopicIds, topic_ids
from proxy.system.stats import Stats
from quotas.throttles.topic_names import TopicNames
from tests.component.proxy.control.cluster.test_poller import unused
from tests.support.loop_broker import broker
from tests.unit.protocol.kafka_frames import RESPONSES, framed, struct

VERSION = 12
KNOWN, GONE = uuid.UUID(int=1), uuid.UUID(int=2)
CLS = RESPONSES[METADATA]


def metadata() -> bytes:
    """One topic with its name, and one that the broker does not know (UNKNOWN_TOPIC_ID)."""
    topics = [
        struct(CLS, VERSION, "MetadataResponseTopic", name="orders", topic_id=KNOWN, partitions=[]),
        struct(
            CLS, VERSION, "MetadataResponseTopic", error_code=100, name=None, topic_id=GONE, partitions=[]
        ),
    ]
    return framed(CLS(version=VERSION, brokers=[], topics=topics), correlation_id=1)


def asker(*bootstrap: Address) -> tuple[TopicIds, TopicNames]:
    names = TopicNames()
    return TopicIds(BrokerClient(BrokerMap(bootstrap, Stats())), names, lambda: 0), names


async def test_names_of_ids_are_learned() -> None:
    async with broker(metadata()) as address:
        asked, names = asker(unused(), address)
        names.name(KNOWN.bytes, 0)
        names.name(GONE.bytes, 0)
        await asked.ask()
    assert (names.name(KNOWN.bytes, 0), names.name(GONE.bytes, 0)) == ("orders", None)
    assert (names.take_wanted(0), asked.problem) == ([], "")


async def test_ids_of_topics_that_have_limits_are_learned_beside_those_that_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions: list[bytes] = []

    async def send(request: Request[object]) -> bytes:
        questions.append(request.body)
        return metadata()

    monkeypatch.setattr(BrokerClient, "connect", AsyncMock(return_value=Mock(send=send)))
    asked, names = asker(unused())
    names.limited = lambda: ("orders",)
    names.name(GONE.bytes, 0)
    await asked.ask()
    assert names.known(KNOWN.bytes) == "orders"
    by_id, by_name = questions
    assert (GONE.bytes in by_id, b"orders" in by_id) == (True, False)
    assert bytes(16) + b"\x07orders" in by_name


async def test_unreachable_cluster_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked, names = asker(unused())
    await asked.ask()
    assert asked.problem == "", "nothing was to be asked"
    names.name(KNOWN.bytes, 0)
    await asked.ask()
    assert "127.0.0.1" in asked.problem
    assert [record.message for record in caplog.records] == ["cannot ask for the names of topics"]


async def test_unknown_topic_id_wakes_the_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ids, "PAUSE_SECONDS", 0.0)
    async with broker(metadata()) as address:
        asked, names = asker(address)
        task = asyncio.create_task(asked.run())
        await asyncio.sleep(0)
        names.name(KNOWN.bytes, 0)
        async with asyncio.timeout(10):
            while not len(names):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert names.name(KNOWN.bytes, 0) == "orders"
