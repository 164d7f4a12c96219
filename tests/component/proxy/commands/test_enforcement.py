"""`sluice enforcement` against served admin ports."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.admin import AdminServer, Page, Request, State
from proxy.config import Address, AdminOptions
from proxy.control.enforcement import Enforcement, EnforcementFile
from proxy.events import Events
from proxy.explain.documents import StatusDocument
from proxy.system.stats import Stats
from tests.cluster import HOST, free_ports
from tests.support.command_line import Sluice


class Member:
    """One process's admin port."""

    def __init__(self, directory: Path | None) -> None:
        self.port = free_ports(1)[0]
        self.admin = f"{HOST}:{self.port}"
        stats = Stats()
        self.events = Events(stats.events)
        file = None if directory is None else EnforcementFile(directory)
        self.switch = Enforcement(file, lambda _: None, stats, self.events.tell)
        state = State(self._status, self.events, self.switch, AdminOptions().actions_from)
        self.server = AdminServer(state.handlers(), actions=state.actions())

    def _status(self) -> StatusDocument:
        return StatusDocument(
            version="1.0", mode="enforce", enforcing=self.switch.on, policy="kip13", scope="broker"
        )


@asynccontextmanager
async def member(directory: Path | None = None, server: AdminServer | None = None) -> AsyncIterator[Member]:
    made = Member(directory)
    made.server = server or made.server
    await made.server.start(Address(HOST, made.port))
    try:
        yield made
    finally:
        await made.server.close()


class Run:
    """`sluice enforcement`, in a thread: the members are of this loop."""

    def __init__(self, sluice: Sluice) -> None:
        self._sluice = sluice

    @property
    def err(self) -> str:
        return self._sluice.err

    async def __call__(self, *words: str, code: int = 0) -> str:
        return await asyncio.to_thread(self._sluice, "enforcement", *words, code=code)


@pytest.fixture
def run(sluice: Sluice) -> Run:
    return Run(sluice)


async def test_off_status_and_on_at_two_members(tmp_path: Path, run: Run) -> None:
    async with member(tmp_path / "state") as first, member() as second:
        everywhere = ("--admin", first.admin, "--admin", second.admin)
        assert (await run("status", *everywhere)).count("quotas are enforced") == 2

        out = await run("off", *everywhere, "--reason", "orders\x1b[2J are late")
        assert (first.switch.on, second.switch.on) == (False, False)
        assert out.count("enforcement is switched off") == 2
        assert out.count("not kept over a restart: [state] directory is not configured") == 1
        assert "\x1b" not in out

        found = json.loads(await run("status", *everywhere, "--format", "json", code=3))["members"]
        assert [one["admin"] for one in found] == [first.admin, second.admin]
        assert list(found[0]) == ["admin", *StatusDocument.__struct_encode_fields__]
        assert found[0]["switched"]["reason"] == "orders\x1b[2J are late"
        assert found[0]["switched"]["from"] == HOST

        await run("on", *everywhere)
        assert (first.switch.on, second.switch.on) == (True, True)
        kinds = [json.loads(text)["kind"] for text in first.events.after(0, 10).events]
        assert kinds == ["enforcement_switched", "enforcement_switched"]


@pytest.mark.parametrize(
    ("state", "problem"), [("status", "is not that of a Sluice"), ("off", "missing required field")]
)
async def test_response_that_is_no_status_is_a_failure(run: Run, state: str, problem: str) -> None:
    async def other(_: Request) -> Page:
        return Page(200, "application/json", b'{"status": "up"}')

    server = AdminServer({"/v1/status": other}, actions={"/v1/enforcement": other})
    async with member(server=server) as served:
        out = await run(state, "--admin", served.admin, "--format", "json", code=1)
        assert problem in run.err
        assert list(json.loads(out)["members"][0]) == ["admin", "error"]


async def test_member_that_does_not_respond_keeps_no_other_from_being_switched(run: Run) -> None:
    gone = f"{HOST}:{free_ports(1)[0]}"
    async with member() as served:
        await run("off", "--admin", gone, "--admin", served.admin, code=1)
        assert not served.switch.on
        assert gone in run.err


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
    head = b" HTTP/1.1\r\nHost: localhost\r\nSluice-Action: enforcement\r\nConnection: close\r\n\r\n"
    async with member() as served:
        reader, writer = await asyncio.open_connection(HOST, served.port)
        writer.write(line + head)
        response = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert response.split(b" ")[1] == status
        assert served.switch.on


@pytest.mark.parametrize("words", [["status", "--reason", "x"], ["off", "--reason", "a" * 201]])
async def test_wrong_arguments_switch_nothing(run: Run, words: list[str]) -> None:
    await run(*words, code=2)
