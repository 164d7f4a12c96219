"""What goes wrong between members for a long time: each fault has a line on either side, and few of them."""

import asyncio
import socket
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.config import Address, FleetOptions
from proxy.fleet.fleet import LEASE_MS, Fleet, fleet_terms, new_lessee
from proxy.fleet.messages import HELLO_BYTES, SIGNATURE_BYTES, Frames
from proxy.fleet.port import AGAIN_MS, KNOWN_MAX, Refusals
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from quotas.definitions.definitions import Definitions
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import LeaseTerms
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.parts import Parts
from tests.component.proxy.fleet.rig import LOCAL, TERMS, WHOLE, Budgets, Member, fleet, secret, until

LOST = "the holder of the fleet cannot be reached; shares go on until the lease ends"
GROWTH_BYTES_MAX = 200_000
ATTEMPTS = 300


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that tries again at once: an hour's attempts in a second."""
    monkeypatch.setattr("proxy.fleet.client.PAUSE_SECONDS_MIN", 0.001)
    monkeypatch.setattr("proxy.fleet.client.PAUSE_SECONDS_MAX", 0.001)
    monkeypatch.setattr("proxy.fleet.port.ACCEPT_GAP_SECONDS", 0.0)


def of_version(version: int) -> bytes:
    """The hello of another version, whose signature does not matter."""
    hello = bytearray(Frames(b"", holder=False).hello())
    assert len(hello) == 4 + SIGNATURE_BYTES + HELLO_BYTES
    hello[4 + SIGNATURE_BYTES + 4] = version
    return bytes(hello)


@pytest.mark.parametrize("version", [0, 2, 4, 255])
async def test_member_of_another_version_is_named_and_reads_the_holders_version(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet() as one:
        reader, writer = await asyncio.open_connection(*one.address)
        writer.write(of_version(version))
        hello = await reader.read()  # to the end: it is refused
        assert hello[4 + SIGNATURE_BYTES :][4] == 3, "the hello of the holder says its version"
        assert one.figures.received["version"] == 1
        writer.close()
    (said,) = (one for one in caplog.records if one.message == "fleet member refused")
    assert f"version {version} of the fleet protocol; this process has 3" in str(said.__dict__)


async def test_holder_of_another_version_is_named_by_the_member(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(of_version(2))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, *LOCAL)
    a = Member("a", Address(*server.sockets[0].getsockname()))
    try:
        await until(lambda: a.figures.reports["failed"] > 1)
        assert "version 2 of the fleet protocol; this process has 3" in a.client.problem
        assert caplog.messages.count(LOST) == 1
    finally:
        await a.end()
        server.close()


@pytest.mark.usefixtures("impatient")
async def test_another_secret_is_said_once_on_both_sides_and_each_attempt_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet(secret(tmp_path, "right")) as one:
        a = one.join("a", secret(tmp_path, "wrong"))
        await until(lambda: one.figures.received["secret"] >= 20)
        await until(lambda: a.figures.reports["failed"] >= 20)
        assert caplog.messages.count("fleet member refused") == 1
        assert caplog.messages.count(LOST) == 1
        assert not a.lessee.leased(now_ms())
        (tmp_path / "wrong").write_text((tmp_path / "right").read_text())  # read for each connection
        await until(lambda: a.lessee.leased(now_ms()))


@pytest.mark.usefixtures("impatient")
async def test_holder_that_is_away_for_an_hour_costs_one_line_and_no_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(LOCAL) as taken:
        nowhere = Address(*taken.getsockname())
    terms = LeaseTerms(300, 100, 4)
    a = Member("a", nowhere, terms=terms)
    try:
        await until(lambda: a.figures.reports["failed"] >= ATTEMPTS, 30)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await until(lambda: a.figures.reports["failed"] >= 3 * ATTEMPTS, 30)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert after - before < GROWTH_BYTES_MAX
        assert len(asyncio.all_tasks()) < 10
        assert caplog.messages.count(LOST) == 1
        await until(lambda: a.lessee.cut_off(now_ms()))
        assert a.share() == 0.25
        async with fleet(terms=terms) as one:
            a.holder = one.address
            await until(lambda: a.lessee.leased(now_ms()))
            await a.end()
    finally:
        await a.end()


@pytest.mark.usefixtures("impatient")
async def test_another_reason_is_said_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(LOCAL) as taken:
        nowhere = Address(*taken.getsockname())
    async with fleet(secret(tmp_path, "right")) as one:
        a = Member("a", nowhere, secret(tmp_path, "wrong"))
        one.members.append(a)
        await until(lambda: a.figures.reports["failed"] >= 3)
        a.holder = one.address
        await until(lambda: "wrong signature" in a.client.problem)
        said = [str(record.__dict__) for record in caplog.records if record.message == LOST]
        assert len(said) == 2
        assert "wrong signature" in said[1]


async def test_raised_and_lowered_members_max_counts_while_members_run() -> None:
    async with fleet() as one:
        a, b = one.join("a"), one.join("b")
        await until(lambda: a.share() == b.share() == pytest.approx(WHOLE / 4))
        a.lessee.terms = LeaseTerms(15_000, 1000, 8)
        await until(lambda: a.share() == b.share() == pytest.approx(WHOLE / 8))
        a.lessee.terms = TERMS
        await until(lambda: a.share() == b.share() == pytest.approx(WHOLE / 4))


def test_refusals_are_said_again_after_a_while_and_never_by_the_thousand(
    caplog: pytest.LogCaptureFixture,
) -> None:
    figures, clock = FleetFigures(), [0]
    refusals = Refusals(figures, lambda: clock[0])
    for _ in range(3):
        refusals.note("secret", ("10.0.0.1", 5), "wrong signature")
    refusals.note("version", ("10.0.0.1", 5), "another version")
    refusals.note("secret", ("10.0.0.2", 5), "wrong signature")
    assert len(caplog.messages) == 3
    clock[0] = AGAIN_MS
    refusals.note("secret", ("10.0.0.1", 6), "wrong signature")
    assert len(caplog.messages) == 4
    for number in range(2 * KNOWN_MAX):
        refusals.note("malformed", (f"host-{number}", 1), "no frame")
    assert len(caplog.messages) < 4 + KNOWN_MAX + 1
    assert figures.received == {"secret": 5, "version": 1, "malformed": 2 * KNOWN_MAX}


@pytest.mark.usefixtures("impatient")
async def test_holder_that_keeps_its_port_for_a_while_after_its_end_is_seen_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that is killed closes its connections and its port one after the other, on a busy machine later."""
    monkeypatch.setattr("proxy.fleet.client.PAUSES_SECONDS", (0.0,))  # one look
    ended: list[tuple[Address, int]] = []
    writers: list[asyncio.StreamWriter] = []
    dying = False

    async with fleet() as one:

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if dying:
                writer.close()
                return
            from_holder, to_holder = await asyncio.open_connection(*one.address)
            writers.extend((writer, to_holder))
            with suppress(ConnectionError):
                await asyncio.gather(pumped(reader, to_holder), pumped(from_holder, writer))

        server = await asyncio.start_server(relay, *LOCAL)
        a = one.join("a")
        a.holder = Address(*server.sockets[0].getsockname())
        a.client.holder_ended = lambda address, run: ended.append((address, run))
        await until(lambda: a.lessee.leased(now_ms()))
        dying = True
        for writer in writers:
            writer.close()
        failed = a.figures.reports["failed"]
        await until(lambda: a.figures.reports["failed"] > failed + 3)
        assert ended == [], "its port still accepts"
        server.close()
        await until(lambda: ended == [(a.holder, 7)])


async def pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until they end."""
    while data := await reader.read(1 << 16):
        writer.write(data)


async def test_member_is_ready_when_it_has_shares_and_without_any_after_the_length_of_a_lease() -> None:
    options = FleetOptions(name="a", members_max=4, holder=Address("127.0.0.1", 19070))
    clock = [0]
    leased, alone = (new_lessee(options, 0) for _ in range(2))
    members = [
        Fleet(options, one, Budgets(one), dict, None, [Capacities(Definitions)], now_ms=lambda: clock[0])
        for one in (leased, alone)
    ]
    assert [bool(member.not_ready) for member in members] == [True, True]
    terms = fleet_terms(options)
    lessor = Lessor(terms, 7, lambda _: 1.0, 0, learning_ms=1000)
    report(lessor, leased, 0)
    assert leased.leased(0)
    assert [bool(member.not_ready) for member in members] == [True, True], (
        "the lease has the least shares so far"
    )
    clock[0] = 1500
    report(lessor, leased, 1500)
    assert [bool(member.not_ready) for member in members] == [False, True]
    clock[0] = LEASE_MS
    assert [member.not_ready for member in members] == ["", ""]


def report(lessor: Lessor, lessee: Lessee | Parts, at_ms: int) -> None:
    """Let a member report, and take all grants for it."""
    lessor.report(lessee.report(at_ms), at_ms)
    for _, grants in lessor.grants(at_ms):
        lessee.take(grants, at_ms)
        lessee.confirm()
