"""The lease holder's port and its peers on real sockets, without brokers: who is answered, and what befalls the others.

The rules are shown in virtual time (`tests/unit/quotas/sharing/test_book.py`, `tests/property/test_leases.py`); here
leases last one second, and bounds are wide.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.clock import now_ms
from proxy.config import Address
from proxy.errors import StartError
from proxy.leases import LeaseClient, LeaseHolder
from proxy.leases.frames import read_frame, write_frame
from proxy.leases.messages import RefusalError, read_answer, write_request
from proxy.stats import Stats
from quotas.replication.replication_quotas import BrokerLimits, ReplicationOptions, ReplicationQuotas
from quotas.sharing.book import LeaseBook
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import LeaseAnswer, LeaseRequest, LeaseTerms
from tests.cluster import HOST, free_ports

TERMS = LeaseTerms(("a", "b", "c"), 1000)
FOLLOWER = 9
QUOTA = 3_000_000.0
EQUAL = QUOTA / 3
NEARLY_ALL = 0.95 * QUOTA


class Port:
    """A holder that may be ended and begun again at one address."""

    def __init__(self, secret_file: Path | None = None) -> None:
        self.address = Address(HOST, free_ports(1)[0])
        self.stats = Stats()
        self.secret_file = secret_file
        self._runs = 0
        self._holder: LeaseHolder | None = None

    async def start(self, terms: LeaseTerms = TERMS) -> None:
        self._runs += 1
        book = LeaseBook(terms, self._runs)
        self._holder = LeaseHolder(
            book, terms, lambda _: QUOTA, now_ms, self.secret_file, self.stats, request_seconds_max=0.5
        )
        await self._holder.start(self.address)

    async def stop(self) -> None:
        if self._holder is not None:
            await self._holder.close()


class Peer:
    """A process that would use whatever it gets, if `busy`."""

    def __init__(self, name: str, port: Port, *, busy: bool = False, secret_file: Path | None = None) -> None:
        self.stats = Stats()
        self.quotas = ReplicationQuotas(ReplicationOptions())
        self.peer = self.quotas.shares = LeasePeer(TERMS, name, hash(name) & 0xFFFF, now_ms())
        self.quotas.limit(BrokerLimits(), BrokerLimits(default=QUOTA))
        self.rate = self.quotas.follower(FOLLOWER, now_ms())
        self.busy = busy
        self.client = LeaseClient(
            self.peer, self.quotas, port.address, secret_file, now_ms, lambda: None, self.stats
        )

    @property
    def limit(self) -> float:
        assert self.rate.limit is not None, "there is always a throttle"
        return self.rate.limit

    async def run(self) -> None:
        work = asyncio.create_task(self.client.run())
        try:
            while True:
                if self.busy:
                    self.rate.held_ms = now_ms()
                    self.rate.record(int(self.limit / 20), now_ms())
                await asyncio.sleep(0.05)
        finally:
            work.cancel()


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    port = Port()
    await port.start()
    yield port
    await port.stop()


async def until(condition: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - what is waited for is a figure
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what) from None


async def ask(
    port: Port, request: LeaseRequest, secret: bytes = b"", terms: LeaseTerms = TERMS
) -> LeaseAnswer:
    reader, writer = await asyncio.open_connection(*port.address)
    try:
        writer.write(write_frame(write_request(request, terms), secret))
        async with asyncio.timeout(10):
            return read_answer(await read_frame(reader, secret))
    finally:
        writer.close()


async def test_busy_peer_gets_nearly_all_and_keeps_it_until_the_holder_is_gone() -> None:
    port = Port()
    await port.start()
    peers = [Peer("a", port, busy=True), Peer("b", port), Peer("c", port)]
    tasks = [asyncio.create_task(peer.run()) for peer in peers]
    try:
        await until(lambda: peers[0].limit >= NEARLY_ALL, "nearly all")
        assert sum(peer.limit for peer in peers) <= QUOTA * 1.0001
        await port.stop()
        # Within a lease all shares become equal: the busy process's falls, the others' rise.
        await until(lambda: all(peer.limit == EQUAL for peer in peers), "equal shares", 2.5)
        assert all(not peer.stats.lease_holder_reachable for peer in peers)
        assert all(peer.client.problem for peer in peers)
        await port.start()
        await until(lambda: peers[0].limit >= NEARLY_ALL, "nearly all again")
        assert sum(peer.limit for peer in peers) <= QUOTA * 1.0001
        assert peers[0].stats.lease_asks["learning"] > 0
        assert not peers[0].client.problem
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await port.stop()


async def test_holder_that_does_not_answer_is_as_one_that_is_gone() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, HOST, 0)
    port = Port()
    port.address = Address(*server.sockets[0].getsockname()[:2])
    peer = Peer("a", port)
    task = asyncio.create_task(peer.run())
    try:
        await until(lambda: peer.stats.lease_asks["failed"] >= 2, "two requests that were given up")
        await until(lambda: peer.limit == EQUAL, "an equal share", 5)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(64),
        b"\x00\x00\x00\x40" + bytes(64),
        write_frame(b"SLLE\x01\x01", b""),
        write_frame(b"SLLE\x09\x01" + bytes(50), b""),
    ],
)
async def test_junk_is_refused_in_words_and_counted(port: Port, junk: bytes) -> None:
    reader, writer = await asyncio.open_connection(*port.address)
    writer.write(junk)
    async with asyncio.timeout(10):
        with pytest.raises(RefusalError):
            read_answer(await read_frame(reader, b""))
        assert await reader.read() == b""
    writer.close()
    assert port.stats.lease_requests == {"malformed": 1}
    assert (await ask(port, LeaseRequest("a", 1, 1, 0, ()))).learning


async def test_unknown_name_is_refused(port: Port) -> None:
    with pytest.raises(RefusalError, match=r"'stranger' is not one of the holder's leases\.peers"):
        await ask(port, LeaseRequest("stranger", 1, 1, 0, ()))
    assert port.stats.lease_requests == {"unknown": 1}


async def test_other_terms_are_refused(port: Port) -> None:
    with pytest.raises(RefusalError, match="must be the same in all processes: those of 'a' differ"):
        await ask(port, LeaseRequest("a", 1, 1, 0, ()), terms=LeaseTerms(("a", "b"), 1000))
    assert port.stats.lease_requests == {"terms": 1}


async def test_two_processes_of_one_name_are_told(port: Port) -> None:
    await ask(port, LeaseRequest("a", 1, 1, 0, ()))
    await ask(port, LeaseRequest("a", 2, 1, 0, ()))
    with pytest.raises(RefusalError, match="another process has begun to use the name 'a'"):
        await ask(port, LeaseRequest("a", 1, 2, 0, ()))
    assert port.stats.lease_requests == {"learning": 2, "twice": 1}


async def test_peer_without_the_secret_gets_no_lease(tmp_path: Path) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_text("word\n")
    port = Port(secret_file)
    await port.start()
    try:
        assert (await ask(port, LeaseRequest("a", 1, 1, 0, ()), b"word")).learning
        with pytest.raises(Exception, match="wrong signature"):
            await ask(port, LeaseRequest("a", 1, 2, 0, ()), b"other")
        assert port.stats.lease_requests == {"learning": 1, "malformed": 1}
        peer = Peer("b", port, secret_file=secret_file)
        await peer.client.step()
        assert peer.stats.lease_asks == {"learning": 1}
        peer.client.close()
    finally:
        await port.stop()


async def test_slow_peer_is_closed_and_does_not_delay_others(port: Port) -> None:
    reader, writer = await asyncio.open_connection(*port.address)
    writer.write(b"\x00\x00")  # and no more
    assert (await ask(port, LeaseRequest("a", 1, 1, 0, ()))).learning
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_idle_connections_keep_no_peer_out(port: Port) -> None:
    idle = [await asyncio.open_connection(*port.address) for _ in range(2 * 3 + 8)]
    assert (await ask(port, LeaseRequest("a", 1, 1, 0, ()))).learning
    assert port.stats.lease_requests["connections_max"] == 1
    async with asyncio.timeout(10):
        assert await idle[0][0].read() == b""  # the oldest one has given way
    for _, other in idle:
        other.close()


async def test_peer_goes_to_another_holder_while_it_runs(port: Port) -> None:
    other = Port()
    await other.start()
    peer = Peer("a", port)
    task = asyncio.create_task(peer.run())
    try:
        await until(lambda: peer.peer.holding, "a lease")
        peer.client.holder = other.address
        await until(lambda: other.stats.lease_requests["granted"] > 0, "a lease of the other")
        asked = port.stats.lease_requests.total()
        await asyncio.sleep(0.5)
        assert port.stats.lease_requests.total() == asked
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await other.stop()


async def test_port_that_can_not_be_bound_is_one_line(port: Port) -> None:
    second = Port()
    second.address = port.address
    with pytest.raises(StartError, match=rf"leases\.bind: {HOST}:{port.address.port}: "):
        await second.start()


async def test_secret_that_can_not_be_read_is_one_line(tmp_path: Path) -> None:
    missing = Port(tmp_path / "missing")
    with pytest.raises(StartError, match=r"leases\.bind: .*No such file"):
        await missing.start()
    peer = Peer("a", missing, secret_file=tmp_path / "missing")
    await peer.client.step()
    assert "No such file" in peer.client.problem
