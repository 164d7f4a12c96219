"""The keys of a fleet in parts, each with a holder of its own that a Kafka group chooses, on real brokers."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import Cluster, ports, processes
from tests.support.fleet_member import state_of
from tests.support.waiting import until

PARTS: Final = 8
KEYS: Final = 24
SECRET: Final = "word" * 8
SECONDS: Final = 60
ROUNDING: Final = 1e-6


class Fleet:
    """Members in processes of their own, and what they print."""

    def __init__(self, kafka: Cluster, group: str, directory: Path) -> None:
        self._kafka = kafka
        self._group = group
        self._directory = directory
        (directory / "secret").write_text(SECRET)
        self.members: dict[str, Any] = {}

    def start(self, name: str, parts: int = PARTS) -> None:
        """Start a member."""
        (port,) = ports.free_ports()
        command = [sys.executable, "-m", "tests.support.fleet_member", name, str(port)]
        arguments = [self._kafka.bootstrap(), self._group, str(self._directory / "secret"), str(parts)]
        self.members[name] = processes.start([*command, *arguments], log=self._log(name))

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def lines(self, name: str) -> list[dict[str, Any]]:
        """What a member has printed."""
        *whole, _ = self._log(name).read_text().split("\n")
        return [json.loads(line) for line in whole if line.startswith("{")]

    def now(self, name: str) -> dict[str, Any]:
        return state_of(self._log(name))

    def end(self, name: str, number: signal.Signals) -> None:
        """End a member with a signal."""
        process = self.members.pop(name)
        process.send_signal(number)
        process.wait(30)

    def held(self) -> list[int]:
        """How many parts each member holds."""
        return sorted(int(self.now(name).get("parts_held", 0)) for name in self.members)

    def shared(self) -> bool:
        """Whether each member has its equal part of every key."""
        equal = 0.995 / len(self.members)
        return all(
            len(shares) == KEYS and all(abs(share - equal) <= 0.05 * equal for share in shares.values())
            for shares in (self.now(name).get("shares", {}) for name in self.members)
        )

    def worst(self) -> float:
        """The largest sum of the shares of a key that members had at about the same time."""
        slots: dict[tuple[int, str], dict[str, float]] = {}
        for log in self._directory.glob("*.log"):
            for line in self.lines(log.stem):
                for key, share in line["shares"].items():
                    # The least of a slot: one slot has the time before and after a change.
                    slot = slots.setdefault((line["at"] // 400, key), {})
                    slot[log.stem] = min(share, slot.get(log.stem, 1.0))
        return max(sum(slot.values()) for slot in slots.values())


@contextmanager
def started(kafka: Cluster, directory: Path) -> Iterator[Fleet]:
    fleet = Fleet(kafka, f"__parts-{directory.name}", directory)
    try:
        for name in ("a", "b", "c"):
            fleet.start(name)
        until(lambda: fleet.held() == [2, 3, 3] and fleet.shared(), seconds=SECONDS)
        yield fleet
    finally:
        for name, process in fleet.members.items():
            processes.kill(process)
            said = [line for line in (directory / f"{name}.log").read_text().splitlines() if line[:1] != "{"]
            print(name, "\n".join(said[-30:]))


@pytest.fixture
def fleet(kafka: Cluster, tmp_path: Path) -> Iterator[Fleet]:
    """Three members that have their shares."""
    with started(kafka, tmp_path) as found:
        yield found


@pytest.mark.timeout(300)
def test_parts_of_a_member_that_is_killed_get_other_holders(fleet: Fleet) -> None:
    fleet.end("b", signal.SIGKILL)
    until(lambda: fleet.held() == [4, 4] and fleet.shared(), seconds=SECONDS)
    assert fleet.worst() <= 1 + ROUNDING


@pytest.mark.timeout(300)
def test_member_that_joins_takes_its_number_of_parts_and_no_share_is_too_large_meanwhile(
    fleet: Fleet,
) -> None:
    fleet.start("d")
    until(lambda: fleet.held() == [2, 2, 2, 2] and fleet.shared(), seconds=SECONDS)
    assert fleet.worst() <= 1 + ROUNDING
    fleet.end("a", signal.SIGTERM)
    until(lambda: fleet.held() == [2, 3, 3] and fleet.shared(), seconds=SECONDS)
    assert fleet.worst() <= 1 + ROUNDING
    assert not any(line["cut_off"] for name in fleet.members for line in fleet.lines(name))


@pytest.mark.timeout(300)
def test_member_with_another_number_of_parts_gets_no_lease(fleet: Fleet) -> None:
    fleet.start("other", parts=4)
    until(lambda: "fleet.parts" in fleet.now("other").get("group_problem", ""), seconds=SECONDS)
    assert not fleet.now("other")["leased"]
    assert fleet.now("other")["parts_held"] == 0
