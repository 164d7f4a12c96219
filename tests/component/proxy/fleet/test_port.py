"""The holder's port and members' connections, on sockets."""

import asyncio
import errno
import hmac
import logging
import os
import socket
from pathlib import Path

import pytest

from proxy.config import Address, FleetOptions
from proxy.fleet import HolderPort
from proxy.fleet.facts import Disagreements
from proxy.fleet.fleet import Fleet, new_lessee
from proxy.fleet.messages import HELLO_BYTES, SIGNATURE_BYTES, Frames, Message, Refusal, View, read, write
from proxy.fleet.secret import NO_SECRET, FleetSecret
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from proxy.system.errors import StartError
from quotas.definitions.definitions import Definitions
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import DEFAULT_KEY, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessor import Lessor
from tests.component.proxy.fleet.rig import (
    CUT_OFF,
    KEY,
    LEASED,
    LOCAL,
    TERMS,
    WHOLE,
    Budgets,
    Member,
    fleet,
    proven,
    secret,
    until,
)


async def test_member_that_leaves_frees_its_share_at_once() -> None:
    async with fleet() as one:
        a, b = one.join("a"), one.join("b")
        a.budgets.wanted, b.budgets.wanted = {KEY: Wish(1.0, 3)}, {KEY: Wish(1.0, 1)}
        wanted = pytest.approx((3 * WHOLE / 4, WHOLE / 4), rel=0.03)
        await until(lambda: (a.share(), b.share()) == wanted)
        assert one.port.lessor is not None
        assert one.port.lessor.used(KEY) <= WHOLE + 1e-9
        a.client.leave()
        await a.end()
        await until(lambda: one.figures.received["left"] == 1)
        await until(lambda: b.share() > 0.95)


async def test_connection_that_breaks_is_made_again_and_shares_stay() -> None:
    async with fleet() as one:
        a = one.join("a")
        a.budgets.wanted = {KEY: Wish(1.0, 1)}
        await until(lambda: a.share() > 0.9)
        address = one.address
        a.holder = None
        await until(lambda: not a.lessee.session)
        assert a.share() > 0.9
        a.holder = address
        await until(lambda: a.lessee.session)
        assert a.share() > 0.9


async def test_member_asks_less_often_where_it_is_refused_though_other_parts_have_leases() -> None:
    async with fleet() as one:
        one.port.retire("b is the holder")
        a = one.join("a")
        for _ in range(50):
            a.figures.reports["granted"] += 1  # as of the connection for another part
            await asyncio.sleep(0.05)
        assert 2 <= one.figures.received["not_holder"] <= 8


async def test_process_that_is_not_the_holder_says_so() -> None:
    async with fleet() as one:
        a = one.join("a")
        await until(lambda: a.lessee.leased(now_ms()))
        one.port.retire("gw-2 is the holder")
        said = ("gw-2 is the holder", "this process is not the holder of the fleet")
        # The end of the connection may be noticed before what was sent last.
        await until(lambda: a.client.problem in said)
        await until(lambda: one.figures.received["not_holder"])
        assert not one.figures.holds


async def test_holder_whose_tenure_is_not_confirmed_stops_by_itself() -> None:
    async with fleet() as one:
        one.port.lead(Lessor(TERMS, 8, lambda _: 1.0, now_ms(), 0), tenure_ms=300)
        one.join("a")
        await until(lambda: one.port.lessor is None)


async def test_too_many_members_are_refused_with_the_key_to_raise() -> None:
    async with fleet(terms=LeaseTerms(15_000, 1000, 1)) as one:
        members = [one.join(name) for name in "abc"]
        # The holder counts a refusal before the member has read it.
        await until(lambda: sum("fleet.members_max = 1" in member.client.problem for member in members) == 1)
        assert one.figures.received["lessees_max"] >= 1


@pytest.mark.parametrize(
    ("parts", "told", "asked"),
    [
        (4, "", "all keys asked for: fleet.parts is 4 here"),
        (4, "0 of 2", "part 0 of 2 asked for: fleet.parts is 4 here"),
        (4, "4 of 4", "part 4 of 4 asked for: fleet.parts is 4 here"),
        (1, "0 of 4", "part 0 of 4 asked for: fleet.parts is 1 here"),
    ],
)
async def test_member_with_another_number_of_parts_is_refused(parts: int, told: str, asked: str) -> None:
    async with fleet(parts=parts) as one:
        a = one.join("a", part=told) if told else one.join("a")
        await until(lambda: asked in a.client.problem)
        assert not one.port.lessor or not one.port.lessor.lessees


async def test_member_that_names_its_part_of_as_many_is_served() -> None:
    async with fleet(parts=4) as one:
        a = one.join("a", part="0 of 4")
        await until(lambda: a.lessee.session)


async def test_two_processes_of_one_name_are_two_members_during_an_upgrade() -> None:
    async with fleet() as one:
        a, b = one.join("a", run=1), one.join("a", run=2)
        await until(lambda: a.lessee.leased(now_ms()) and b.lessee.leased(now_ms()))
        view = one.port.view()
        assert view is not None
        assert sorted(member.lessee for member in view.members) == [LesseeId("a", 1), LesseeId("a", 2)]


async def test_members_that_differ_say_so_once_and_that_they_agree_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "proxy.fleet.client")
    monkeypatch.setattr("proxy.fleet.port.VIEW_SECONDS", 0.1)
    async with fleet() as one:
        a, b = one.join("a", mode="enforce"), one.join("b", mode="observe")
        for member in (a, b):
            member.client.disagreements = Disagreements(lasts_ms=300)
        await until(lambda: a.figures.disagreements == b.figures.disagreements == 1, 20)
        view = a.client.view
        assert isinstance(view, View)
        assert sorted(member.facts["mode"] for member in view.members) == ["enforce", "observe"]
        b.facts = a.facts
        await until(lambda: not any(member.figures.disagreements for member in (a, b)), 20)
    said = [text for text in caplog.messages if "members of the fleet" in text]
    assert said == ["members of the fleet differ"] * 2 + ["members of the fleet agree again"] * 2


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", b"\xff" * 64])
async def test_garbage_is_refused_and_counted(data: bytes) -> None:
    async with fleet() as one:
        reader, writer = await asyncio.open_connection(*one.address)
        writer.write(data)
        await reader.read()
        assert one.figures.received["malformed"] == 1
        writer.close()


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([Refusal("no", "no")], "a member sends no refusal"),
        (
            [Report(LesseeId(name, 1), 0, 1, 0, {}, {DEFAULT_KEY: 0.1}, 4) for name in "ab"],
            "a report of 'b' on the connection of 'a'",
        ),
    ],
)
async def test_message_that_no_member_sends_ends_the_connection(
    messages: list[Message], problem: str
) -> None:
    async with fleet() as one:
        reader, writer = await asyncio.open_connection(*one.address)
        frames = await proven(reader, writer)
        for message in messages:
            writer.write(frames.write(write(message)))
        while not isinstance(found := read(await frames.receive(reader)), Refusal):
            pass
        assert found == Refusal("malformed", problem)
        assert await reader.read() == b""
        writer.close()


async def test_port_signs_nothing_for_a_process_that_asks(tmp_path: Path) -> None:
    async with fleet(secret(tmp_path, "word")) as one:
        reader, writer = await asyncio.open_connection(*one.address)
        guess = Frames(b"a guess", holder=False)
        writer.write(guess.hello())
        hello = await reader.readexactly(4 + SIGNATURE_BYTES + HELLO_BYTES)
        guess.greet(hello[4:])
        writer.write(guess.proof())
        # Beside its nonce in a checksum it gets the same once more, and nothing that depends on the secret.
        assert await reader.read() == hello
        assert hello[4 : 4 + SIGNATURE_BYTES] == hmac.digest(b"", hello[4 + SIGNATURE_BYTES :], "sha256")
        assert one.figures.received["secret"] == 1
        writer.close()


async def test_idle_connections_keep_no_member_out() -> None:
    async with fleet() as one:
        idle = [socket.create_connection(one.address) for _ in range(60)]  # 4 * 4 + 8 are allowed
        a = one.join("a")
        await until(lambda: a.lessee.leased(now_ms()))
        assert one.figures.received["connections_max"] >= 60 - 24
        for each in idle:
            each.close()


async def test_member_without_a_lease_is_cut_off_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    terms = LeaseTerms(600, 100, 4)
    async with fleet(terms=terms) as one:
        a = Member("a", one.address, terms=terms)
        one.members.append(a)
        await until(lambda: LEASED in caplog.messages)
        await until(lambda: a.lessee.leased(now_ms()))  # on a busy machine it may have been cut off since
        a.holder = None
        caplog.clear()
        await until(lambda: CUT_OFF in caplog.messages)
        await asyncio.sleep(0.3)
        assert a.share() == 0.25
        assert caplog.messages.count(CUT_OFF) == 1
        assert LEASED not in caplog.messages
        a.holder = one.address
        await until(lambda: LEASED in caplog.messages)


async def test_secret_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(StartError, match=r"^fleet\.bind: .*No such file"):
        await HolderPort(4, FleetSecret(missing), now_ms, FleetFigures()).start(LOCAL)
    async with fleet() as one:
        a = one.join("a", missing)
        await until(lambda: "No such file" in a.client.problem)


@pytest.mark.parametrize("bind", [None, LOCAL])
async def test_short_secret_is_refused_at_the_start(tmp_path: Path, bind: Address | None) -> None:
    short = tmp_path / "secret"
    short.write_text("secret")
    options = FleetOptions(bind=bind, holder=Address("h", 1), secret_file=short)
    lessee = new_lessee(options, now_ms())
    found = Fleet(options, lessee, Budgets(lessee), dict[str, str], None, [Capacities(Definitions)])
    with pytest.raises(
        StartError, match=r"^fleet\.secret_file: the secret in .* has 6 bytes, and at least 32"
    ):
        await found.start()


async def test_holder_that_does_not_respond_is_left_and_asked_again() -> None:
    connections: list[asyncio.StreamWriter] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, LOCAL.host, 0)
    a = Member("a", Address(*server.sockets[0].getsockname()[:2]))
    try:
        await until(lambda: len(connections) > 1, 30.0)
        await until(lambda: a.figures.reports["failed"] >= 1 and a.client.problem)
    finally:
        await a.end()
        server.close()


async def test_port_that_is_in_use_is_named_and_may_be_bound_later() -> None:
    with socket.create_server(LOCAL) as taken:
        address = Address(*taken.getsockname())
        port = HolderPort(4, NO_SECRET, now_ms, FleetFigures())
        with pytest.raises(StartError, match=r"fleet\.bind: 127\.0\.0\.1:\d+: Address already in use"):
            await port.start(address)
    assert await port.start(address) == address
    await port.close()


async def test_every_address_of_a_host_is_bound() -> None:
    port = HolderPort(4, NO_SECRET, now_ms, FleetFigures())
    found = {str(one[4][0]) for one in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    with socket.create_server(("", 0)) as free:
        number = int(free.getsockname()[1])
    address = await port.start(Address("localhost", number))
    for host in found:
        socket.create_connection((host, address.port), timeout=5).close()
    await port.close()


async def test_process_without_descriptors_accepts_later_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.fleet.port.PAUSE_SECONDS", 0.01)
    failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)) for _ in range(3)]

    async def accepted(listening: socket.socket) -> socket.socket:
        if failures:
            raise failures.pop()
        sock, _ = await asyncio.get_running_loop().sock_accept(listening)
        return sock

    monkeypatch.setattr("proxy.fleet.port.accepted_from", accepted)
    async with fleet() as one:
        a = one.join("a")
        await until(lambda: a.lessee.leased(now_ms()))
    assert not failures
    assert caplog.messages.count("the fleet's port accepts no connection") == 1
