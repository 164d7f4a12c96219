"""The driver against a server on loopback that responds to everything with nothing but the number it was asked with."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import pytest
import uvloop

from offline.replay import driver
from offline.replay.driver import DROPPED, IN_FLIGHT, LOST, NEVER_SENT, NOT_REACHED, SILENT, Driver
from offline.replay.frames import Encoder, Frame
from offline.replay.messages import Broker, Topic
from offline.replay.report import result
from offline.replay.schedule import Plan, Recorded, plan
from offline.replay.target import LeftOut, Placement
from protocol.api import HEARTBEAT
from tests.cluster import HOST, free_port
from tests.unit.offline.replay.rows import recorded, response_to


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond to each request, until the other side has had enough."""
    try:
        while True:
            length = int.from_bytes(await reader.readexactly(4), "big")
            writer.write(response_to(await reader.readexactly(length)))
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a request, and go."""
    await reader.readexactly(4)
    writer.close()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take everything."""
    while await reader.read(10**6):
        pass
    writer.close()


def pings(count: int, connections: int = 3, apart_us: int = 2000) -> list[Recorded]:
    ping = {"api_key": HEARTBEAT, "partitions": ()}
    return [
        recorded(**ping, connection=number % connections, seq=number, mono_us=apart_us * number)
        for number in range(count)
    ]


class Slow(Encoder):
    """Takes its time for each frame, and notes when it was made and what `look` said then."""

    seconds = 0.0
    look: Callable[[], int] = staticmethod(lambda: 0)

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement, -1, 1)
        self.made: list[tuple[float, int]] = []

    def encode(self, row: Recorded, correlation_id: int) -> Frame | None:
        time.sleep(self.seconds)
        self.made.append((time.monotonic(), self.look()))
        return super().encode(row, correlation_id)


def driven(
    planned: Plan,
    serve: object,
    linger: float = 5.0,
    *,
    stop_after: float = 0.0,
    seconds: float = 0.0,
    look: Callable[[], int] = lambda: 0,
) -> tuple[Driver, Slow]:
    """Run a plan against a server; None: no process listens."""

    async def run() -> tuple[Driver, Slow]:
        port = free_port()
        server = None if serve is None else await asyncio.start_server(serve, HOST, port)  # type: ignore[arg-type]  # one of the above
        here = Broker(HOST, port)
        placement = Placement({-1: here, 1: here}, {1: 1, -1: 1}, {"a": Topic(0, {0: 1})})
        encoder = Slow(placement)
        encoder.seconds, encoder.look = seconds, look
        driving = Driver(planned, encoder, placement.brokers, lambda _count: None)
        running = asyncio.create_task(driving.run(linger))
        if stop_after:
            await asyncio.sleep(stop_after)
            running.cancel()
        await asyncio.wait([running])
        if server is not None:
            async with asyncio.timeout(20):  # its own ends of the connections close too
                while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - of tasks that the server has made
                    await asyncio.sleep(0.05)
            server.close()
        assert running.cancelled() == bool(stop_after)
        return driving, encoder

    return uvloop.run(run())


def outcomes(planned: Plan, serve: object, linger: float = 5.0) -> Counter[int]:
    """What became of how many requests; 0: answered."""
    driving, _ = driven(planned, serve, linger)
    return Counter(min(value, 0) for value in driving.samples.latency_us)


def test_every_request_is_sent_and_timed() -> None:
    planned = plan(pings(200), 4.0)
    samples = driven(planned, echo)[0].samples
    assert min(samples.latency_us) >= 0
    assert set(samples.error) == {0}
    assert min(samples.late_us) >= 0
    assert set(samples.response_bytes) == {len(response_to(bytes(8))) - 4}
    found = result(planned, samples, 4.0, LeftOut())
    assert found["requests"]["answered"] == 200


def test_time_that_frames_take_is_the_replays_own_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FRAMES_MAX", 0)
    samples = driven(plan(pings(20, 1, apart_us=0), 1.0), echo, seconds=0.005)[0].samples
    assert all(late_us >= 5000 * (place + 1) for place, late_us in enumerate(samples.late_us))


def test_burst_leaves_while_more_of_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "FRAMES_MAX", 0)
    arrived = [0]

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(10**6):
            arrived[0] += len(chunk)
        writer.close()

    planned = plan(pings(50, 1, apart_us=0), 1.0)
    _, encoder = driven(planned, count, linger=0.01, seconds=0.005, look=lambda: arrived[0])
    assert encoder.made[-1][1] > 0


def test_frames_are_made_while_nothing_is_due() -> None:
    rows = [recorded(seq=0, mono_us=0), *(recorded(seq=seq, mono_us=1_000_000) for seq in range(1, 200))]
    due = time.monotonic() + driver.AHEAD_US / 1e6 + 1.0  # or later
    _, encoder = driven(plan(rows, 1.0), silent, linger=0.01, seconds=0.001)
    assert [at for at, _ in encoder.made if at > due] == []


def test_request_with_acks_0_waits_for_no_response() -> None:
    rows = [recorded(seq=seq, response_bytes=-1) for seq in range(3)]
    assert outcomes(plan(rows, 1.0), echo) == {SILENT: 3}


def test_requests_without_a_response_are_lost_with_the_connection() -> None:
    assert outcomes(plan(pings(5, 1), 1.0), hang_up)[LOST] >= 1


def test_pending_requests_at_the_end_have_no_response() -> None:
    assert outcomes(plan(pings(6, 2), 1.0), silent, linger=0.2) == {IN_FLIGHT: 6}


@pytest.mark.parametrize("recorded_bytes", [60, -1])
def test_unreachable_target_is_sent_no_request(recorded_bytes: int) -> None:
    rows = [recorded(seq=seq, mono_us=2000 * seq, response_bytes=recorded_bytes) for seq in range(5)]
    planned = plan(rows, 1.0)
    samples = driven(planned, None)[0].samples
    assert set(samples.latency_us) == {NEVER_SENT}
    assert samples.connect_errors >= 1
    found = result(planned, samples, 1.0, LeftOut())
    assert (found["requests"]["sent"], found["requests"]["never_connected"]) == (0, 5)
    assert found["achieved"] == {"requests_per_second": 0.0, "request_bytes": 0, "response_bytes": 0}


@pytest.mark.parametrize("host", ["x..y", "a" * 70 + ".example"])
def test_impossible_host_name_fails_its_connection(host: str) -> None:
    async def run() -> Driver:
        here = Broker(host, 9092)
        encoder = Encoder(Placement({-1: here}, {}, {}), -1, 1)
        driving = Driver(plan(pings(2, 1), 1.0), encoder, {-1: here}, lambda _count: None)
        await driving.run(5.0)
        return driving

    assert set(uvloop.run(run()).samples.latency_us) == {NEVER_SENT}


def test_requests_beyond_the_buffer_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "IN_FLIGHT_MAX", 2)
    assert outcomes(plan(pings(6, 1), 1.0), silent, linger=0.3) == {IN_FLIGHT: 2, DROPPED: 4}


def test_sent_requests_free_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "UNSENT_BYTES_MAX", 22_000)  # of 1.1 kB each
    rows = [recorded(seq=seq, mono_us=20_000 * seq) for seq in range(40)]
    assert outcomes(plan(rows, 1.0), silent, linger=0.1) == {IN_FLIGHT: 40}


@pytest.mark.parametrize("recorded_bytes", [60, -1])
def test_connection_is_closed_with_its_last_response(
    recorded_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty connections, one every 20 ms: two at a time, on a machine that keeps up."""
    monkeypatch.setattr(driver, "AHEAD_US", 20_000)
    now = [0]
    peak = [0]
    got = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now[0] += 1
        peak[0] = max(peak[0], now[0])
        if recorded_bytes < 0:
            everything = await reader.read()  # before the sum is looked at: others add to it meanwhile
            got[0] += len(everything)
            writer.close()
        else:
            await echo(reader, writer)
        now[0] -= 1

    rows = [
        recorded(connection=number, mono_us=20_000 * number, response_bytes=recorded_bytes)
        for number in range(60)
    ]
    found = outcomes(plan(rows, 1.0), serve)
    assert found == {0 if recorded_bytes > 0 else SILENT: 60}
    assert peak[0] <= 40
    if recorded_bytes < 0:
        assert got[0] > 60 * 1000


def test_stopped_driver_returns_its_results_so_far() -> None:
    planned = plan(pings(1000, 2, apart_us=10_000), 1.0)
    driving, _ = driven(planned, echo, stop_after=0.7)
    found = result(planned, driving.samples, 1.0, LeftOut())["requests"]
    assert found["answered"] >= 1
    assert found["not_reached"] >= 500
    assert Counter(driving.samples.latency_us)[NOT_REACHED] == found["not_reached"]
    assert found["sent"] + found["not_reached"] == 1000


def test_response_without_a_request_ends_a_replayed_connection() -> None:
    connections = [0]

    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[0] += 1
        if connections[0] == 1:
            writer.write(bytes(100))
        await echo(reader, writer)

    assert outcomes(plan(pings(3, 1, apart_us=0), 1.0), chatter) == {0: 3}
    assert connections[0] == 2
