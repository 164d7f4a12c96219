"""The holder of a fleet, or of each part of its keys, is chosen by a Kafka group: three members, real brokers.

Members end, are suspended and killed, and so is the group's coordinator.
"""

import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from kafka import KafkaAdminClient, TopicPartition

from tests.cluster import Cluster, ports, processes
from tests.support.fleet_member import KEY, state_of
from tests.support.waiting import until

SECRET: Final = "word" * 8
LEARNING_SECONDS: Final = 20
# A lease and its slack, and the time for the group to choose.
TAKES_OVER_SECONDS: Final = 30
ROUNDING: Final = 1e-6
KNOWN_MS: Final = 400  # for how long a line holds: four are printed in it
PARTS: Final = 8
KEYS: Final = 24  # of a member with parts
PARTS_SECONDS: Final = 60
THIRDS: Final = pytest.approx([0.995 / 3] * 3, rel=0.05)


class Member:
    """A member's process, and what it printed.

    Args:
        parts: of the fleet's keys.
    """

    def __init__(self, name: str, kafka: Cluster, group: str, directory: Path, parts: int = 1) -> None:
        self.name = name
        (port,) = ports.free_ports()
        self.address = f"127.0.0.1:{port}"
        self.log = directory / f"{name}.log"
        command = [sys.executable, "-m", "tests.support.fleet_member", name, str(port)]
        secret = directory / "secret"
        secret.write_text(SECRET)
        arguments = [kafka.bootstrap(), group, str(secret), str(parts)]
        self.process = processes.start([*command, *arguments], log=self.log)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has printed."""
        return printed(self.log)

    @property
    def now(self) -> dict[str, Any]:
        """What it has printed last."""
        return state_of(self.log)

    @property
    def share(self) -> float:
        """Its share of the one key that it wants with one part."""
        return self.shares.get(KEY, 0.0)

    @property
    def shares(self) -> dict[str, float]:
        """What it may use of each key; with one part there is one."""
        found: dict[str, float] = self.now.get("shares", {})
        return found

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it has ended."""
        self.signal(number)
        self.process.wait(30)


def printed(log: Path) -> list[dict[str, Any]]:
    *whole, _ = log.read_text().split("\n")
    return [json.loads(line) for line in whole if line.startswith("{")]


@contextmanager
def fleet(kafka: Cluster, group: str, directory: Path, parts: int = 1) -> Iterator[list[Member]]:
    """Three members that have a lease; they are killed at the end."""
    directory.mkdir()
    found = [Member(name, kafka, group, directory, parts) for name in ("a", "b", "c")]
    try:
        until(lambda: all(member.now.get("leased") for member in found), seconds=60)
        yield found
    finally:
        for member in found:
            processes.kill(member.process)
            said = [line for line in member.log.read_text().splitlines() if not line.startswith("{")]
            print(member.name, "\n".join(said[-30:]))


@pytest.fixture(scope="module")
def lasting(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    """Three members for tests after which all of them live."""
    directory = tmp_path_factory.mktemp("lasting")
    with fleet(kafka, f"__fleet-{directory.name}", directory / "fleet") as found:
        yield found


@pytest.fixture
def members(lasting: list[Member]) -> list[Member]:
    """Three members that know their shares."""
    know_their_shares(lasting)
    return lasting


def know_their_shares(members: list[Member]) -> None:
    """Wait until all have a third: two may have halves before the third has joined, and print that last."""
    seconds = LEARNING_SECONDS + TAKES_OVER_SECONDS
    until(lambda: [member.share for member in members] == THIRDS, seconds=seconds)


def committed(kafka: Cluster, group: str) -> str:
    """What the last holder has committed."""
    # confluent-kafka does not return committed metadata reliably: librdkafka's has no terminating zero byte.
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap())) as admin:
        place = TopicPartition(group, 0)
        return str(admin.list_group_offsets({group: [place]})[group][place].metadata)


def learned(members: list[Member]) -> bool:
    """Whether any holder had to learn, as members were told."""
    return any(line["learning"] for member in members for line in member.lines)


def holder_of(members: list[Member]) -> Member:
    (holder,) = [member for member in members if member.now["holds"]]
    return holder


def never_above_the_budget(members: Iterable[Member], since_ms: int = 0) -> None:
    """Compare what members could use at the same time: what is lowered is lowered before it is given."""
    changes: list[tuple[int, str, str, float]] = []
    for member in members:
        lines = [line for line in member.lines if line["at"] >= since_ms]
        for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
            # It had at least this until its next line: a busy machine delays what is printed, or a clock's reading.
            known = after["at"] - line["at"] < KNOWN_MS
            for key, share in line["shares"].items():
                least = min(share, before["shares"].get(key, 0.0), after["shares"].get(key, 0.0))
                changes.append((line["at"], member.name, key, least if known else 0.0))
        changes += [(line["at"], member.name, key, 0.0) for line in lines[-1:] for key in line["shares"]]
    now: dict[str, dict[str, float]] = {}
    for at_ms, name, key, share in sorted(changes):
        shares = now.setdefault(key, {})
        shares[name] = share
        assert sum(shares.values()) <= 1 + ROUNDING, (at_ms, key, shares)


@pytest.mark.timeout(300)
def test_a_fleet_learns_only_of_one_that_was_killed(kafka: Cluster, tmp_path: Path) -> None:
    group = f"__fleet-{tmp_path.name}"
    with fleet(kafka, group, tmp_path / "first") as members:
        until(lambda: min(member.share for member in members) > 0.3, seconds=LEARNING_SECONDS + 10)
        holder = holder_of(members)
        for member in [member for member in members if member is not holder] + [holder]:
            member.signal(signal.SIGTERM)
            assert member.process.wait(20) == 0
        assert committed(kafka, group).startswith("leases_ms=0 ")
    # One that has ended leaves nothing to learn, unless rebalances keep its holder from a commit at first.
    with fleet(kafka, group, tmp_path / "second") as members:
        until(lambda: sum(member.share for member in members) > 0.9, seconds=LEARNING_SECONDS + 10)
    with fleet(kafka, group, tmp_path / "third") as members:
        until(lambda: sum(member.share for member in members) > 0.9, seconds=LEARNING_SECONDS + 10)
        assert learned(members)


@pytest.mark.timeout(300)
def test_another_member_takes_over_from_a_holder_that_is_killed(kafka: Cluster, tmp_path: Path) -> None:
    with fleet(kafka, f"__fleet-{tmp_path.name}", tmp_path / "fleet") as members:
        know_their_shares(members)
        assert len({member.now["holder"] for member in members}) == 1
        began_ms = int(members[0].now["at"])
        holder = holder_of(members)
        holder.signal(signal.SIGKILL)
        left = [member for member in members if member is not holder]
        until(lambda: any(member.now["holds"] for member in left), seconds=TAKES_OVER_SECONDS)
        until(
            lambda: min(member.share for member in left) > 0.45, seconds=LEARNING_SECONDS + TAKES_OVER_SECONDS
        )
        assert all(member.now["holder"] == holder_of(left).address for member in left)
        assert not any(line["cut_off"] for member in left for line in member.lines if line["at"] > began_ms)
        never_above_the_budget(left, began_ms)


@pytest.mark.timeout(300)
def test_suspended_holder_gives_way_and_comes_back_as_a_member(members: list[Member]) -> None:
    holder = holder_of(members)
    began_ms = int(holder.now["at"])
    holder.signal(signal.SIGSTOP)
    left = [member for member in members if member is not holder]
    try:
        until(lambda: any(member.now["holds"] for member in left), seconds=TAKES_OVER_SECONDS)
    finally:
        holder.signal(signal.SIGCONT)
    until(lambda: not holder.now["holds"] and holder.now["holder"] == holder_of(left).address, seconds=20)
    until(
        lambda: sum(member.share for member in members) > 0.9, seconds=LEARNING_SECONDS + TAKES_OVER_SECONDS
    )
    never_above_the_budget(members, began_ms)


@pytest.mark.timeout(300)
def test_coordinator_that_is_killed_changes_no_share(kafka: Cluster, members: list[Member]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    group = members[0].now["group"]
    coordinator = admin.describe_consumer_groups([group])[group].result().coordinator.id
    holder, began_ms = holder_of(members), int(members[0].now["at"])
    kafka.kill_broker(coordinator)
    try:
        time.sleep(20)
        assert holder_of(members) is holder
        assert all(member.now["leased"] for member in members)
        assert [member.share for member in members] == THIRDS
    finally:
        kafka.start_broker(coordinator)
        kafka.wait_ready()
    never_above_the_budget(members, began_ms)


def held(members: list[Member]) -> list[int]:
    """How many parts each member holds."""
    return sorted(int(member.now.get("parts_held", 0)) for member in members)


def shared(members: list[Member]) -> bool:
    """Whether each member has its equal part of every key."""
    equal = pytest.approx(0.995 / len(members), rel=0.05)
    return all(
        len(one.shares) == KEYS and all(each == equal for each in one.shares.values()) for one in members
    )


@pytest.mark.timeout(400)
def test_parts_get_other_holders_when_members_join_leave_and_are_killed(
    kafka: Cluster, tmp_path: Path
) -> None:
    group, directory = f"__parts-{tmp_path.name}", tmp_path / "fleet"

    def until_held(*parts: int) -> None:
        until(lambda: held(alive) == [*parts] and shared(alive), str(parts), PARTS_SECONDS)
        never_above_the_budget(ever)

    with fleet(kafka, group, directory, PARTS) as alive:
        ever = [*alive]
        until_held(2, 3, 3)
        other = Member("other", kafka, group, directory, parts=4)
        until(lambda: "fleet.parts" in other.now.get("group_problem", ""), seconds=PARTS_SECONDS)
        assert (other.now["leased"], other.now["parts_held"]) == (False, 0)
        other.end(signal.SIGTERM)
        alive.append(Member("d", kafka, group, directory, PARTS))
        ever.append(alive[-1])
        until_held(2, 2, 2, 2)
        alive.pop(0).end(signal.SIGTERM)
        until_held(2, 3, 3)
        assert not any(line["cut_off"] for member in alive for line in member.lines)
        alive.pop(0).end(signal.SIGKILL)
        until_held(4, 4)
