"""The driver against a server on loopback that answers everything with nothing but the number it was asked with."""

import asyncio

import pytest
import uvloop

from offline.replay import driver as module
from offline.replay.answers import Broker, Topic
from offline.replay.driver import DROPPED, LOST, SILENT, Driver
from offline.replay.frames import Encoder
from offline.replay.measure import result
from offline.replay.schedule import Plan, Recorded, plan
from offline.replay.target import Placement
from protocol.api import HEARTBEAT
from tests.cluster import HOST, free_port
from tests.unit.offline.replay.rows import recorded

# Metadata 9: no throttle time, no brokers.
NOTHING = bytes(1) + bytes(4) + b"\1\0" + bytes(4) + b"\1" + bytes(4) + b"\0"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request, until the other side has had enough."""
    try:
        while True:
            length = int.from_bytes(await reader.readexactly(4), "big")
            asked = await reader.readexactly(length)
            answer = asked[4:8] + NOTHING
            writer.write(len(answer).to_bytes(4, "big") + answer)
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a request, and go."""
    await reader.readexactly(4)
    writer.close()


def pings(count: int, connections: int = 3) -> list[Recorded]:
    return [
        recorded(
            api_key=HEARTBEAT,
            connection=number % connections,
            seq=number,
            mono_us=2000 * number,
            partitions=(),
        )
        for number in range(count)
    ]


def driven(planned: Plan, serve: object, linger: float = 5.0) -> Driver:
    """Run a plan against a server; None: nobody is there."""

    async def run() -> Driver:
        port = free_port()
        server = None if serve is None else await asyncio.start_server(serve, HOST, port)  # type: ignore[arg-type]  # one of the above
        here = Broker(HOST, port)
        placement = Placement({-1: here, 1: here}, {1: 1, -1: 1}, {"a": Topic(0, {0: 1})})
        driver = Driver(planned, Encoder(placement, -1, 1), placement.brokers, lambda _count: None)
        await driver.run(linger)
        if server is not None:
            server.close()
            await asyncio.sleep(0.05)  # its own ends of the connections close too
        return driver

    return uvloop.run(run())


def test_every_request_is_sent_and_timed() -> None:
    planned = plan(pings(200), 4.0)
    samples = driven(planned, echo).samples
    assert min(samples.latency_us) >= 0
    assert set(samples.error) == {0}
    assert min(samples.late_us) >= 0
    # The answer is the number and what follows it.
    assert set(samples.response_bytes) == {4 + len(NOTHING)}
    found = result(planned, samples, 4.0, 0)
    assert found["requests"]["answered"] == 200


def test_acks_zero_waits_for_nothing() -> None:
    rows = [recorded(seq=seq, response_bytes=-1) for seq in range(3)]
    assert set(driven(plan(rows, 1.0), echo).samples.latency_us) == {SILENT}


def test_answers_that_never_come_are_lost_with_the_connection() -> None:
    samples = driven(plan(pings(5, 1), 1.0), hang_up).samples
    assert set(samples.latency_us) == {LOST}


def test_target_that_is_not_there_loses_everything_and_ends() -> None:
    samples = driven(plan(pings(5, 1), 1.0), None).samples
    assert set(samples.latency_us) == {LOST}
    assert samples.connect_errors >= 1


def test_what_finds_no_room_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNANSWERED_MAX", 2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(10**6):
            pass
        writer.close()

    samples = driven(plan(pings(6, 1), 1.0), silent, linger=0.3).samples
    assert list(samples.latency_us).count(DROPPED) == 4
