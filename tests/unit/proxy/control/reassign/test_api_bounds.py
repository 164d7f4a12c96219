"""How many callers' requests are worked at, of an address and in all, and what is read of them when (issue 14)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from protocol.api import ALTER_PARTITION_REASSIGNMENTS
from protocol.errors import WireError
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterRequest, AlterResponse, Outcome
from proxy.channel import Forward, PeerError, Question
from proxy.config import ReassignmentSettings
from proxy.control.reassign.api import ADDRESS_REQUESTS_MAX, REQUESTS_MAX, ReassignmentApi
from proxy.system.threads import OverloadError
from tests.support.executor_world import World
from tests.support.reassigned_cluster import SimulatedCluster

T = TypeVar("T")
Told = bytes | bytearray | Forward | Exception

KEY = ALTER_PARTITION_REASSIGNMENTS
ONE = ("t", 0)
DENIED = Outcome(31, "Cluster authorization failed.")
SECONDS_MAX = 20.0


class Callers:
    """The API, and callers whose frames are read when the test says so."""

    def __init__(self, directory: Path) -> None:
        cluster = SimulatedCluster(6)
        cluster.create(ONE, (0, 1))
        self.world = World(directory, cluster, ReassignmentSettings())
        self.read: list[tuple[str, int]] = []  # whose frames, and how large they are
        self.may_read = asyncio.Event()
        self.overloaded = False
        self._running: set[asyncio.Task[None]] = set()
        self.api = ReassignmentApi(
            self.world.decisions(),
            lambda work: self._running.add(asyncio.get_running_loop().create_task(work)),
            self._read,
            self.world.stats,
        )
        wanted = AlterRequest(60_000, True, [(ONE, (2, 3))])
        self.frame = reassignments.request_frame(wanted, 1, 7, b"tool")
        self.body_at = len(self.frame) - len(reassignments.request_body(wanted, 1))

    async def _read(self, whose: str, size: int, function: Callable[..., T], *arguments: Any) -> T:
        self.read.append((whose, size))
        if self.overloaded:
            raise OverloadError("too many")
        await self.may_read.wait()
        return function(*arguments)

    def ask(self, question: Question) -> asyncio.Future[Told]:
        responded: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self.api.ask(question, responded.set_result)
        return responded

    async def begun(self, address: str = "192.0.2.1", frame: bytes | None = None) -> Forward:
        """Give what goes to the broker first."""
        question = Question(KEY, 1, 7, frame or self.frame, self.body_at, "bob", False, address=address)
        found = await self.ask(question)
        assert isinstance(found, Forward), repr(found)
        return found

    def said(self, forward: Forward, outcome: Outcome, address: str = "192.0.2.1") -> asyncio.Future[Told]:
        """Hand over what the broker said to that."""
        told = reassignments.write_alter_response(AlterResponse(0, True, outcome, []), 1, 7)
        return self.ask(Question(KEY, 1, 7, told, 0, "bob", False, forward.plan, address))


async def test_partitions_are_not_read_before_the_broker_permits_the_request(tmp_path: Path) -> None:
    callers = Callers(tmp_path)
    forward = await callers.begun()
    assert reassignments.read_alter_request(forward.frame, callers.body_at, 1) == AlterRequest(
        60_000, True, []
    )
    assert callers.read == []
    callers.may_read.set()
    response = await callers.said(forward, DENIED)
    assert isinstance(response, bytes)
    assert reassignments.read_alter_response(response, 1).partitions == [(ONE, DENIED)]
    assert callers.read == [("192.0.2.1", len(callers.frame))]


async def test_request_whose_partitions_are_cut_ends_its_connection(tmp_path: Path) -> None:
    callers = Callers(tmp_path)
    callers.may_read.set()
    forward = await callers.begun(frame=callers.frame[:-1])
    for outcome in (DENIED, Outcome(0, "")):
        assert isinstance(await callers.said(forward, outcome), WireError)
    assert callers.world.stats.reassignment_requests == {"malformed": 2}


async def test_address_has_a_quarter_of_all_places(tmp_path: Path) -> None:
    callers = Callers(tmp_path)
    forwards = [await callers.begun() for _ in range(ADDRESS_REQUESTS_MAX + 1)]
    other = await callers.begun("192.0.2.2")
    waiting = [callers.said(forward, DENIED) for forward in forwards]
    refused = await waiting.pop()
    assert isinstance(refused, PeerError)
    assert refused.cause == "reassignment_requests_max"
    waiting.append(callers.said(other, DENIED, "192.0.2.2"))
    callers.may_read.set()
    async with asyncio.timeout(SECONDS_MAX):
        assert {type(response) for response in await asyncio.gather(*waiting)} == {bytes}
    assert isinstance(await callers.said(forwards[0], DENIED), bytes), "there is room again"
    assert not callers.api.requests, "nothing is kept of addresses without requests"


async def test_all_places_are_taken_by_four_addresses_at_least(tmp_path: Path) -> None:
    callers = Callers(tmp_path)
    forward = await callers.begun()
    for number in range(REQUESTS_MAX):
        assert not callers.said(forward, DENIED, f"192.0.2.{number % 5}").done()
    question = Question(KEY, 1, 7, callers.frame, callers.body_at, "bob", False, address="198.51.100.1")
    assert isinstance(await callers.ask(question), PeerError)


async def test_frame_that_finds_no_room_ends_its_connection(tmp_path: Path) -> None:
    callers = Callers(tmp_path)
    callers.overloaded = True
    error = await callers.said(await callers.begun(), Outcome(0, ""))
    assert isinstance(error, PeerError)
    assert error.cause == "reassignment_requests_max"


@pytest.mark.parametrize("outcome", [Outcome(), Outcome(7, "timed out")])
async def test_forwarded_request_is_journaled_however_many_wait(tmp_path: Path, outcome: Outcome) -> None:
    callers = Callers(tmp_path)
    callers.may_read.set()
    sent = await callers.said(await callers.begun(), Outcome(0, ""))
    assert isinstance(sent, Forward)
    callers.may_read.clear()
    denied = await callers.begun("192.0.2.2")
    waiting = [callers.said(denied, DENIED, f"192.0.2.{number % 5}") for number in range(REQUESTS_MAX)]
    assert isinstance(await callers.said(sent, outcome), bytes)
    callers.may_read.set()
    await asyncio.gather(*waiting)
