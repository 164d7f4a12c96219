"""One connection through real sockets: what is relayed, how it ends, and under which cause."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Collection

import pytest

from proxy.channel import PASS, REPLACE, Channel, Verdict
from proxy.channel.verdict import IN_FLIGHT_MAX
from proxy.net.upstream import Dial, NextRoute, Route, Upstream
from proxy.system.clock import now_ms
from tests.component.proxy.net.rig import (
    ASKED,
    HOST,
    RESPONDED,
    SECONDS_MAX,
    End,
    Rig,
    connecting,
    listening,
    no_descriptor_left,
    until,
)
from tests.support.directions import FakeDirection
from tests.support.frames import LIST_OFFSETS, fetch, produce, request, some_response

OVER = 12_000  # with 1,000 bytes/s and 10,000 free: 2 s


def gone() -> Upstream:
    """An address without a listener."""
    with listening() as sock:
        address: Upstream = sock.getsockname()
    return address


async def test_broker_is_not_connected_before_the_first_request(rig: Rig) -> None:
    client = rig.connect()
    await client.send(ASKED[:10])
    await until(lambda: rig.connection.requests.kept_bytes == 10, "the cut header is kept")
    with pytest.raises(BlockingIOError):
        rig.back.accept()


async def test_port_scan_is_no_error_and_not_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig.connect().close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert not rig.stats.errors
    assert not caplog.records


@pytest.mark.parametrize(
    ("end", "errors"), [(End.close, {}), (End.reset, {"client_reset": 1})], ids=["closes", "resets"]
)
async def test_client_that_ends_takes_the_brokers_connection_with_it(
    rig: Rig, end: Callable[[End], None], errors: dict[str, int]
) -> None:
    client, broker = await rig.joined(ASKED)
    end(client)
    assert await broker.rest() == b""
    broker.close()  # as a broker does that reads the end
    await until(lambda: not rig.connections, "the connection has ended")
    assert rig.stats.errors == errors


@pytest.mark.parametrize(
    ("sent", "end", "errors"),
    [
        (RESPONDED, End.close, {}),
        (b"", End.close, {"broker_closed_early": 1}),
        (RESPONDED[:20], End.close, {"broker_closed_early": 1}),
        (b"", End.reset, {"broker_reset": 1}),
    ],
    ids=["in peace", "a response is owed", "mid-frame", "resets"],
)
async def test_broker_that_ends_takes_the_clients_connection_with_it(
    rig: Rig, sent: bytes, end: Callable[[End], None], errors: dict[str, int]
) -> None:
    client, broker = await rig.joined(ASKED)
    await broker.send(sent)
    end(broker)
    assert (await client.rest(), rig.stats.errors) == (sent, errors)


@pytest.mark.parametrize("sent", [200, 300_000])
async def test_client_that_closes_mid_frame_is_counted(rig: Rig, sent: int) -> None:
    client = rig.connect()
    asked = produce(9, 1_000_000)
    await client.send(asked[:sent])
    broker = await rig.accept()
    client.close()
    assert await broker.rest() == asked[:sent]
    await until(lambda: not rig.connections, "the connection has ended")
    assert rig.stats.errors == {"client_closed_mid_frame": 1}


async def test_wrong_bytes_end_the_connection_under_their_cause_with_one_line(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = rig.connect()
    await client.send(b"GET / HTTP/1.1\r\n\r\n")
    assert (await client.rest(), rig.stats.errors) == (b"", {"http_request": 1})
    assert [record.getMessage() for record in caplog.records] == ["connection ended"]


@pytest.mark.parametrize(
    ("asked", "response", "cause"),
    [
        (ASKED, some_response(50, correlation_id=77), "broker_out_of_order"),
        (request(10, 0, size=60), some_response(4), "malformed"),
    ],
    ids=["another response", "malformed"],
)
async def test_wrong_bytes_of_a_broker_end_the_connection_under_their_cause(
    rig: Rig, asked: bytes, response: bytes, cause: str
) -> None:
    client, broker = await rig.joined(asked, gateway=True)
    await broker.send(response)
    assert (await client.rest(), rig.stats.errors) == (b"", {cause: 1})


@pytest.mark.interpreted
async def test_internal_error_ends_one_connection(rig: Rig) -> None:
    client = rig.connect()
    rig.connection.requests.direction = _Broken()
    rig.connect()
    await client.send(ASKED)
    assert (await client.rest(), rig.stats.errors, len(rig.connections)) == (b"", {"internal": 1}, 1)


class _Broken(FakeDirection):
    def receive(self, buf: bytearray, start: int, end: int, now_ns: int) -> Verdict:
        raise RuntimeError("a bug")


# The broker's connection


@pytest.mark.parametrize("next_route", [None, lambda _: Route(-1, None)], ids=["one", "no other is known"])
async def test_broker_that_is_down_ends_the_connection(rig: Rig, next_route: NextRoute | None) -> None:
    client = rig.connect(gone(), next_route=next_route)
    await client.send(ASKED)
    await client.rest()
    assert rig.stats.errors == {"broker_unreachable": 1}


async def test_broker_that_is_down_and_back_is_reported(rig: Rig) -> None:
    reports: list[tuple[int, str]] = []
    rig.shared.dials.report = lambda broker, problem: reports.append((broker, problem))
    down = gone()
    for _ in range(2):
        client = rig.connect(down)
        await client.send(ASKED)
        await client.rest()
    assert reports == [(1, f"{down[0]}:{down[1]}: ECONNREFUSED")]
    await rig.joined(ASKED)
    assert reports[1:] == [(1, "")]


async def test_dead_broker_is_skipped_at_the_bootstrap_port(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[int] = []
    monkeypatch.setattr(Channel, "broker_changed", lambda _channel, broker: joined.append(broker))
    dead = [gone(), gone(), gone()]
    tried: list[list[Upstream]] = []

    def next_route(found_dead: Collection[Upstream]) -> Route:
        tried.append(list(found_dead))
        if len(found_dead) < len(dead):
            return Route(10 + len(found_dead), dead[len(found_dead)])
        return Route(5, rig.back.getsockname())

    client, broker = await rig.joined(ASKED, upstream=dead[0], next_route=next_route)
    await broker.send(RESPONDED)
    assert await client.receive(len(RESPONDED)) == RESPONDED
    assert tried == [dead[:1], dead[:2], dead]
    assert joined == [5], "the channel is told whose responses these are"
    assert not rig.stats.errors


async def test_no_more_than_four_others_are_tried(rig: Rig) -> None:
    asked = 0

    def next_route(_: Collection[Upstream]) -> Route:
        nonlocal asked
        asked += 1
        return Route(asked, gone())

    client = rig.connect(gone(), next_route=next_route)
    await client.send(ASKED)
    await client.rest()
    assert (asked, rig.stats.errors) == (4, {"broker_unreachable": 1})


async def test_broker_that_does_not_respond_to_the_connect_ends_the_connection(rig: Rig) -> None:
    reports: list[tuple[int, str]] = []
    rig.shared.dials.report = lambda broker, problem: reports.append((broker, problem))
    rig.shared.dials.failed(1, "it failed before", now_ms())
    with socket.create_server((HOST, 0), backlog=0) as full:
        waiting = [connecting(full.getsockname()) for _ in range(4)]
        client = rig.connect(full.getsockname())
        await client.send(ASKED)
        await until(lambda: rig.connection.requests.blocked, "the request waits for the broker")
        rig.connection.sweep(now_ms() + 11_000)
        assert (await client.rest(), rig.stats.errors) == (b"", {"broker_unreachable": 1})
        assert reports == [(1, "no connection within 10.0 s")]
        for sock in waiting:
            sock.close()


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("upstream", "cause"),
    [
        (None, "broker_unknown"),
        (("255.255.255.255", 1), "broker_unreachable"),  # no TCP connection goes to a broadcast address
    ],
    ids=["unknown", "unreachable at once"],
)
async def test_channel_is_not_shown_anything_once_its_broker_can_not_be_dialled(
    rig: Rig, upstream: Upstream | None, cause: str
) -> None:
    client = rig.connect(upstream)
    connection = rig.connection
    shown: list[bool] = []
    connection.requests.direction = _InTwoParts(lambda: shown.append(connection.closed))
    await client.send(ASKED)
    assert (await client.rest(), rig.stats.errors) == (b"", {cause: 1})
    assert shown == [False, False], "both parts, before it is closed"


class _InTwoParts(FakeDirection):
    """Passes the first byte, then puts nothing in place of the next one, and passes the rest."""

    def __init__(self, on_shown: Callable[[], object]) -> None:
        super().__init__()
        self._on_shown = on_shown

    def receive(self, buf: bytearray, start: int, end: int, now_ns: int) -> Verdict:
        self._on_shown()
        verdict = self.verdict
        if start == 0:
            verdict.passing, verdict.drop, verdict.order = 1, 1, REPLACE
        else:
            verdict.passing, verdict.order = end - start, PASS
        return verdict


async def test_failed_dial_calls_no_callback_after_its_cancellation(rig: Rig) -> None:
    told: list[str] = []
    dial = Dial(Route(1, None), None, rig.shared, lambda *_: None, lambda cause, _: told.append(cause))
    dial.begin()
    dial.cancel()
    await asyncio.sleep(0)
    assert told == []
    dial.begin()
    assert told == [], "not from within"
    await asyncio.sleep(0)
    assert told == ["broker_unknown"]


async def test_broker_at_an_ipv6_address_is_reached(rig: Rig) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        server.setblocking(False)
        client = rig.connect(("::1", server.getsockname()[1]))
        await client.send(ASKED)
        async with asyncio.timeout(SECONDS_MAX):
            sock, _ = await asyncio.get_running_loop().sock_accept(server)
        assert await End(sock).receive(len(ASKED)) == ASKED
        sock.close()


async def test_no_descriptor_for_the_broker_ends_the_connection(rig: Rig) -> None:
    client = rig.connect()
    with no_descriptor_left():
        await client.send(ASKED)
        await client.rest()
    assert rig.stats.errors == {"descriptors": 1}


async def test_broker_that_goes_while_it_is_written_to_ends_the_connection(rig: Rig) -> None:
    client = rig.connect()
    sending = asyncio.ensure_future(client.send(produce(9, 20_000_000)))
    broker = await rig.accept()
    await broker.receive(1_000_000)
    broker.reset()
    await until(lambda: not rig.connections, "the connection has ended")
    assert set(rig.stats.errors) <= {"broker_reset", "broker_closed"}
    sending.cancel()


async def test_client_that_goes_while_it_is_written_to_ends_the_connection(rig: Rig) -> None:
    client, broker = await rig.joined(ASKED)
    sending = asyncio.ensure_future(broker.send(some_response(20_000_000)))
    await client.receive(1_000_000)
    client.reset()
    await until(lambda: not rig.connections, "the connection has ended")
    assert set(rig.stats.errors) <= {"client_reset"}
    sending.cancel()


async def test_more_requests_than_may_be_on_their_way_are_relayed_in_the_end(rig: Rig) -> None:
    client = rig.connect()
    count = IN_FLIGHT_MAX + 500
    asked = b"".join(request(LIST_OFFSETS, 7, correlation_id=number) for number in range(count))
    await client.send(asked)
    broker = await rig.accept()
    first = await broker.receive(len(asked) // count * IN_FLIGHT_MAX)
    response = b"".join(some_response(4, correlation_id=number) for number in range(count))
    await broker.send(response[: 8 * IN_FLIGHT_MAX])
    assert first + await broker.receive(len(asked) - len(first)) == asked
    await broker.send(response[8 * IN_FLIGHT_MAX :])
    assert await client.receive(len(response)) == response


async def test_response_made_here_follows_one_that_the_client_is_slow_to_read(rig: Rig) -> None:
    rig.quota(consumer=1000)
    rig.charge_fetch(50_000)
    client, broker = await rig.joined(ASKED, send_buffer=4096)
    large = some_response(20_000_000)
    sending = asyncio.ensure_future(broker.send(large))
    await until(lambda: rig.connection.responses.blocked, "the response waits for the client")
    assert not sending.done(), "a client that does not read stops the broker"
    await client.send(fetch(11, correlation_id=2))
    assert await client.receive(len(large)) == large
    assert struct.unpack(">ii", await client.receive(8)) == (18, 2)
    await sending


async def test_throttled_request_to_an_unknown_broker_leaves_no_gauge_behind(rig: Rig) -> None:
    rig.quota(producer=1000)
    client = rig.connect(None)
    await client.send(produce(9, OVER))
    await client.rest()
    assert (rig.stats.muted, rig.stats.errors) == (0, {"broker_unknown": 1})


async def test_response_made_here_needs_no_broker(rig: Rig) -> None:
    rig.quota(consumer=1000)
    rig.charge_fetch(50_000)
    client = rig.connect(None)
    await client.send(fetch(11))
    assert (struct.unpack(">i", await client.receive(4)), rig.stats.errors) == ((18,), {})
