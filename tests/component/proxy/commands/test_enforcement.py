"""`sluice enforcement` against served admin ports."""

import asyncio
import json
from pathlib import Path

import pytest

from proxy import cli
from proxy.admin import AdminServer, Page, Request, State
from proxy.config import Address, AdminOptions
from proxy.control.enforcement import Enforcement, EnforcementFile
from proxy.events import Events
from proxy.explain.documents import StatusDocument
from proxy.system.stats import Stats
from tests.cluster import HOST, free_ports


class Member:
    """One process's admin port."""

    def __init__(self, directory: Path | None) -> None:
        self.port = free_ports(1)[0]
        stats = Stats()
        self.events = Events(stats.events)
        file = None if directory is None else EnforcementFile(directory)
        self.switch = Enforcement(file, lambda _: None, stats, self.events.tell)
        state = State(self._status, self.events, self.switch, AdminOptions().actions_from)
        self.server = AdminServer(state.handlers(), actions=state.actions())

    @property
    def admin(self) -> str:
        return f"{HOST}:{self.port}"

    async def start(self) -> "Member":
        await self.server.start(Address(HOST, self.port))
        return self

    async def raw(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        writer.write(request)
        response = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return response

    def _status(self) -> StatusDocument:
        return StatusDocument(
            version="1.0", mode="enforce", enforcing=self.switch.on, policy="kip13", scope="broker"
        )


async def run(*words: str) -> int:
    return await asyncio.to_thread(cli.main, ["enforcement", *words])


async def test_off_status_and_on_at_two_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = [await Member(tmp_path / "state").start(), await Member(None).start()]
    everywhere = [word for member in members for word in ("--admin", member.admin)]
    try:
        assert await run("status", *everywhere) == 0
        assert capsys.readouterr().out.count("quotas are enforced") == 2

        assert await run("off", *everywhere, "--reason", "orders\x1b[2J are late") == 0
        assert [member.switch.on for member in members] == [False, False]
        out = capsys.readouterr().out
        assert out.count("enforcement is switched off") == 2
        assert out.count("not kept over a restart: [state] directory is not configured") == 1
        assert "\x1b" not in out

        assert await run("status", *everywhere, "--format", "json") == 3
        found = json.loads(capsys.readouterr().out)["members"]
        assert [one["admin"] for one in found] == [member.admin for member in members]
        assert list(found[0]) == ["admin", *StatusDocument.__struct_encode_fields__]
        assert found[0]["switched"]["reason"] == "orders\x1b[2J are late"
        assert found[0]["switched"]["from"] == HOST

        assert await run("on", *everywhere) == 0
        assert [member.switch.on for member in members] == [True, True]
        kinds = [json.loads(text)["kind"] for text in members[0].events.after(0, 10).events]
        assert kinds == ["enforcement_switched", "enforcement_switched"]
    finally:
        for member in members:
            await member.server.close()


async def test_response_that_is_no_status_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    async def other(_: Request) -> Page:
        return Page(200, "application/json", b'{"status": "up"}')

    port = free_ports(1)[0]
    server = AdminServer({"/v1/status": other}, actions={"/v1/enforcement": other})
    await server.start(Address(HOST, port))
    try:
        for state, problem in (("status", "is not that of a Sluice"), ("off", "missing required field")):
            assert await run(state, "--admin", f"{HOST}:{port}", "--format", "json") == 1
            out, err = capsys.readouterr()
            assert problem in err
            assert list(json.loads(out)["members"][0]) == ["admin", "error"]
    finally:
        await server.close()


async def test_member_that_does_not_respond_keeps_no_other_from_being_switched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    member = await Member(None).start()
    gone = f"{HOST}:{free_ports(1)[0]}"
    try:
        assert await run("off", "--admin", gone, "--admin", member.admin) == 1
        assert not member.switch.on
        assert gone in capsys.readouterr().err
    finally:
        await member.server.close()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"OPTIONS /v1/enforcement", b"405"),
        (b"GET /v1/enforcement?enforcing=false", b"400"),
        (b"POST /v1/status", b"405"),
        (b"POST /nothing", b"404"),
    ],
)
async def test_other_methods_and_pages(line: bytes, status: bytes) -> None:
    member = await Member(None).start()
    try:
        head = b" HTTP/1.1\r\nHost: localhost\r\nSluice-Action: enforcement\r\nConnection: close\r\n\r\n"
        assert (await member.raw(line + head)).split(b" ")[1] == status
        assert member.switch.on
    finally:
        await member.server.close()


@pytest.mark.parametrize("words", [["status", "--reason", "x"], ["off", "--reason", "a" * 201]])
async def test_wrong_arguments_switch_nothing(words: list[str]) -> None:
    assert await run(*words) == 2
