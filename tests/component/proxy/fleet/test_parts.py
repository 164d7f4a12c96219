"""Three members whose keys are in parts, with real ports and connections; the group's coordinator stands in."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition, errors

from proxy.config import Address, FleetOptions
from proxy.fleet.fleet import Fleet, new_lessee
from proxy.fleet.port import VIEW_SECONDS
from proxy.system.clock import now_ms
from proxy.topics.topic import Access, Found
from quotas.definitions.definitions import Definitions
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import LeaseTerms, Wish
from quotas.sharing.lessor import Lessor
from quotas.sharing.parts import Parts, part_of
from tests.cluster.ports import free_ports
from tests.component.proxy.fleet.rig import Budgets, fleet, until

PARTS = 8
KEYS = [f"key-{number}" for number in range(24)]
GROUP = "__sluice"


class Coordinator:
    """A Kafka group's coordinator: generations, who is in them, and what was committed in the last one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # each member has a thread of its own
        self.generation = 0
        self.consumers: dict[str, Consumer] = {}
        self.committed: dict[TopicPartition, str] = {}
        self._ids = 0

    def consumer(self, *_: object, partition_assignment_strategy: list[Any], **__: object) -> "Consumer":
        """Make a member, in place of aiokafka's consumer."""
        self._ids += 1
        return Consumer(self, partition_assignment_strategy[0], f"id-{self._ids}")

    def rebalance(self, newcomer: "Consumer | None" = None) -> None:
        """Begin a generation: the first member chooses."""
        with self.lock:
            self.generation += 1
            said = {one.member_id: one.assignor.metadata([GROUP]) for one in self.consumers.values()}
            if newcomer is not None:
                claim = newcomer.assignor.metadata([GROUP])  # before it has a member id
                newcomer.member_id = newcomer.next_id
                self.consumers[newcomer.member_id] = newcomer
                said[newcomer.member_id] = claim
            if not said:
                return
            chosen = next(iter(self.consumers.values())).assignor.assign(None, said)
            for member, one in self.consumers.items():
                one.loop.call_soon_threadsafe(one.take, self.generation, chosen[member])


class Consumer:
    """aiokafka's, as far as the group uses it."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, group: Coordinator, assignor: Any, next_id: str) -> None:
        self.group = group
        self.assignor = assignor
        self.next_id = next_id
        self.member_id = ""
        self.generation = -1
        self._client = self._coordinator = self

    async def start(self) -> None:
        """Join the group."""
        self.loop = asyncio.get_running_loop()
        self.group.rebalance(self)

    async def stop(self) -> None:
        """Leave it."""
        with self.group.lock:
            if self.group.consumers.pop(self.member_id, None) is not None:
                self.group.rebalance()

    async def close(self) -> None: ...

    def take(self, generation: int, assignment: Any) -> None:
        """Take what the leader has chosen, unless there is another generation."""
        if generation == self.group.generation:
            self.generation = generation
            self.assignor.on_assignment(assignment)

    def request_rejoin(self) -> None:
        """Have another generation begin."""
        self.loop.call_soon(self.group.rebalance)

    async def getmany(self, timeout_ms: int) -> dict[str, object]:
        """Return nothing, after a while."""
        await asyncio.sleep(0.02)
        return {}

    async def committed(self, _: object) -> None: ...

    async def _do_commit_offsets(self, _: None, offsets: dict[TopicPartition, Any]) -> None:
        with self.group.lock:
            if self.generation != self.group.generation:
                raise errors.RebalanceInProgressError
            self.group.committed |= {place: one.metadata for place, one in offsets.items()}

    async def fetch_committed_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, object]:
        """Return what was committed last."""
        return {
            place: SimpleNamespace(metadata=self.group.committed[place])
            for place in places
            if place in self.group.committed
        }


class Member:
    """A member that wants every key."""

    def __init__(self, name: str, secret: Path) -> None:
        (port,) = free_ports(1)
        bind = Address("127.0.0.1", port)
        options = FleetOptions(
            name=name, members_max=4, bind=bind, group=GROUP, secret_file=secret, parts=PARTS
        )
        lessee = new_lessee(options, now_ms())
        assert isinstance(lessee, Parts)
        self.lessee = lessee
        budgets = Budgets(lessee)
        budgets.wanted = dict.fromkeys(KEYS, Wish(1.0, 1.0))
        capacities, facts = [Capacities(Definitions) for _ in range(PARTS)], lambda: {"members_max": "4"}
        self.fleet = Fleet(options, lessee, budgets, facts, Access([]), capacities)
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the fleet."""
        await self.fleet.start()
        self.task = asyncio.create_task(self.fleet.run())

    async def close(self) -> None:
        """Leave it."""
        await self.fleet.close()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    @property
    def held(self) -> int:
        """Of how many parts it is the holder."""
        held = self.fleet.state()["parts_held"]
        assert isinstance(held, int)
        return held


def sums(members: list[Member]) -> list[float]:
    """What all members may use of each key."""
    at_ms = now_ms()
    return [sum(member.lessee.share(key, at_ms) for member in members) for key in KEYS]


def shared(members: list[Member]) -> bool:
    """Whether each member has its equal part of every key."""
    at_ms, equal = now_ms(), 0.995 / len(members)
    return all(
        abs(member.lessee.share(key, at_ms) - equal) <= 0.05 * equal for member in members for key in KEYS
    )


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    async def find(*_: object) -> Found:
        return Found(b"0" * 16, None)

    found = Coordinator()
    monkeypatch.setattr("proxy.fleet.elected.aiokafka.AIOKafkaConsumer", found.consumer)
    monkeypatch.setattr("proxy.fleet.elected.find", find)
    return found


@asynccontextmanager
async def started(tmp_path: Path, names: str) -> AsyncIterator[list[Member]]:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 32)
    members = [Member(name, secret) for name in names]
    try:
        for member in members:
            await member.start()
        yield members
    finally:
        for member in members:
            await member.close()


async def test_each_member_holds_some_parts_and_all_keys_are_shared(
    group: Coordinator, tmp_path: Path
) -> None:
    assert {part_of(key, PARTS) for key in KEYS} == set(range(PARTS))
    async with started(tmp_path, "abc") as members:
        await until(lambda: sorted(member.held for member in members) == [2, 3, 3] and shared(members), 60)
        assert max(sums(members)) <= 1
        assert set(group.committed) == {TopicPartition(GROUP, part) for part in range(PARTS)}


async def test_parts_move_to_a_member_that_joins_and_back_when_it_leaves_without_too_large_shares(
    group: Coordinator, tmp_path: Path
) -> None:
    async with started(tmp_path, "ab") as members:
        await until(lambda: [member.held for member in members] == [4, 4] and shared(members), 60)
        worst = 0.0
        more = Member("c", tmp_path / "secret")
        await more.start()

        def moved(present: list[Member], held: list[int]) -> bool:
            nonlocal worst
            worst = max(worst, *sums([*members, more]) if more in present else sums(members))
            return sorted(member.held for member in present) == held and shared(present)

        await until(lambda: moved([*members, more], [2, 3, 3]), 60)
        await more.close()
        await until(lambda: moved(members, [4, 4]), 60)
        assert worst <= 1
        assert all(member.lessee.leased(now_ms()) for member in members)
        assert group.generation >= 4


@pytest.mark.parametrize("part", [0, 1])
async def test_end_of_a_member_is_noticed_though_one_before_it_at_its_place_went_silent(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = LeaseTerms(1000, 200, 4)
    async with fleet(terms=terms, parts=2) as one:
        lessor = Lessor(terms, 8, lambda _: 1.0, now_ms(), 0)
        one.port.seats[part].lead(lessor)
        listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        own, port = f"{part} of 2", str(listening.sockets[0].getsockname()[1])
        silent = one.join("a", run=1, part=own, listens=port)
        await until(lambda: silent.lessee.session)
        monkeypatch.setattr(silent.budgets, "report", lambda _: None)
        await until(lambda: not lessor.lessees)
        await asyncio.sleep(VIEW_SECONDS + 0.5)
        killed = one.join("a", run=2, part=own, listens=port)
        await until(lambda: killed.lessee.session)
        await asyncio.sleep(0.5)  # its port is looked at
        listening.close()
        await killed.end()
        await until(lambda: one.figures.ended["refused"] == 1)
