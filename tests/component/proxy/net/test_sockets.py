"""Bytes through TLS on one side or on both are the bytes that were sent, in whatever pieces they come."""

import asyncio
import os
import ssl

import pytest

from proxy.config.options import LimitOptions
from proxy.net.sockets import RECORD_KEPT_BYTES
from tests.component.proxy.net.rig import SECONDS_MAX, until
from tests.component.proxy.net.tls_rig import Papers, Streams, TlsRig, receive, send
from tests.support.frames import LIST_OFFSETS, produce, request, some_response

RECORD = 16 * 1024
SIZES = (1, RECORD - 1, RECORD, 4 * RECORD, 4 * RECORD + 1, 1 << 20, 3_000_000)
SIDES = [(True, False), (False, True), (True, True)]
NAMES = ["clients", "brokers", "both"]


def site(papers: Papers, clients: bool, brokers: bool) -> TlsRig:
    return TlsRig(
        papers.listener() if clients else None,
        papers.cluster() if brokers else None,
        broker_context=papers.broker_context() if brokers else None,
    )


async def joined(
    rig: TlsRig, context: ssl.SSLContext | None, *, responds: bool = False
) -> tuple[Streams, Streams]:
    """A client and its broker, one response owed unless the broker responds."""
    client = await rig.client(context)
    asked = request(LIST_OFFSETS, 7, size=100)
    await send(client, asked)
    broker = await rig.broker()
    assert await receive(broker, len(asked)) == asked
    if responds:
        await send(broker, some_response(50))
        await receive(client, len(some_response(50)))
    return client, broker


@pytest.mark.parametrize(("clients", "brokers"), SIDES, ids=NAMES)
async def test_requests_and_responses_of_any_size_arrive_as_they_were_sent(
    papers: Papers, clients: bool, brokers: bool
) -> None:
    async with site(papers, clients, brokers).running() as rig:
        client, broker = await joined(rig, papers.client_context() if clients else None, responds=True)
        for number, size in enumerate(SIZES):
            asked = produce(9, 60 + size, correlation_id=number)
            _, received = await asyncio.gather(send(client, asked), receive(broker, len(asked)))
            assert received == asked
            response = some_response(60 + size, correlation_id=number)
            _, received = await asyncio.gather(send(broker, response), receive(client, len(response)))
            assert received == response
        assert rig.stats.spliced_bytes == 0
        assert rig.stats.pipe_fallbacks == 0
        assert not rig.stats.errors


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_many_small_records_are_read_without_another_event(
    papers: Papers, version: ssl.TLSVersion
) -> None:
    """A thousand requests, each a record of its own, and more of them in the socket than one read takes."""
    async with site(papers, clients=True, brokers=False).running() as rig:
        client, broker = await joined(rig, papers.client_context(version=version))
        asked = [request(LIST_OFFSETS, 7, correlation_id=number, size=90) for number in range(1000)]
        for one in asked:
            client[1].write(one)
        assert await receive(broker, sum(map(len, asked))) == b"".join(asked)


async def test_client_that_reads_late_gets_all(papers: Papers) -> None:
    """The socket takes no more, in the middle of a record: what is kept comes again as it was."""
    async with site(papers, clients=True, brokers=True).running() as rig:
        client, broker = await joined(rig, papers.client_context())
        client[1].transport.pause_reading()  # type: ignore[attr-defined]  # the transport reads too
        response = some_response(20_000_000)
        sending = asyncio.ensure_future(send(broker, response))
        await until(lambda: rig.connection.responses.blocked, "the client's socket is full")
        client[1].transport.resume_reading()  # type: ignore[attr-defined]
        assert await receive(client, len(response)) == response
        await sending


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_close_notify_ends_the_connection(papers: Papers, version: ssl.TLSVersion) -> None:
    async with site(papers, clients=True, brokers=True).running() as rig:
        client, broker = await joined(rig, papers.client_context(version=version))
        client[1].close()
        async with asyncio.timeout(SECONDS_MAX):
            assert await broker[0].read() == b""
        broker[1].close()
        await until(lambda: not rig.connections, "the connection has ended")
        assert not rig.stats.errors


async def test_close_by_the_broker_is_a_tls_close_notify_to_the_client(papers: Papers) -> None:
    async with site(papers, clients=True, brokers=False).running() as rig:
        client, broker = await joined(rig, papers.client_context(), responds=True)
        broker[1].close()
        async with asyncio.timeout(SECONDS_MAX):
            assert await client[0].read() == b""  # asyncio raises where the goodbye is missing


async def test_drained_client_gets_a_tls_close_notify(papers: Papers) -> None:
    async with site(papers, clients=True, brokers=False).running() as rig:
        client, _ = await joined(rig, papers.client_context(), responds=True)
        assert not rig.connection.drain(1000)
        async with asyncio.timeout(SECONDS_MAX):
            assert await client[0].read() == b""
        client[1].close()
        await until(lambda: not rig.connections, "the connection has ended")
        assert not rig.stats.errors


async def test_bytes_that_are_not_tls_end_the_connection_under_their_cause(papers: Papers) -> None:
    async with site(papers, clients=True, brokers=False).running() as rig:
        client, _ = await joined(rig, papers.client_context())
        raw = client[1].get_extra_info("socket").dup()
        raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        raw.close()
        await until(lambda: not rig.connections, "the connection has ended")
        assert rig.stats.errors == {"client_tls": 1}


async def test_part_of_a_record_counts_as_kept_until_the_rest_is_here(papers: Papers) -> None:
    async with site(papers, clients=True, brokers=False).running() as rig:
        client, broker = await joined(rig, papers.client_context())
        assert rig.shared.kept.bytes == 0
        # The head of a record of 16 KiB, and a little of it.
        os.write(client[1].get_extra_info("socket").fileno(), bytes.fromhex("1703034000") + bytes(100))
        await until(lambda: rig.shared.kept.bytes == RECORD_KEPT_BYTES, "it is counted")
        client[1].transport.abort()
        broker[1].transport.abort()
        await until(lambda: not rig.connections, "the connection has ended")
        assert rig.shared.kept.bytes == 0


async def test_many_parts_of_records_stay_within_the_budget(papers: Papers) -> None:
    limits = LimitOptions(kept_bytes_max=1024 * 1024)
    async with TlsRig(papers.listener(), limits=limits).running() as rig:
        for number in range(1, 65):
            client = await rig.client(papers.client_context())
            await until(lambda wanted=number: rig.stats.handshakes["client"] == wanted, "it is let in")  # type: ignore[misc]  # a default
            os.write(client[1].get_extra_info("socket").fileno(), bytes.fromhex("1703034000") + bytes(100))
        await until(lambda: rig.stats.errors["kept_bytes"] >= 4, "64 x 17 KiB are more than 1 MiB")
        assert rig.shared.kept.bytes <= 1024 * 1024
