"""Two gateways with workers and one client id over both: one is killed, then the holder.

The bounds are wide, since a second on a busy machine is not exact; `make fleet ARGS=kills` has the figures. A control
process that is stopped costs no rate: `tests/simulation/test_fleet.py`, in virtual time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import HOST, Cluster, free_ports
from tests.conftest import CreateTopic
from tests.support.load import Load, rate
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings, fleet_secret
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

CLIENT: Final = "hot"
QUOTA: Final = 4_000_000.0
NAMES: Final = ("a", "b")
SETTLE_SECONDS: Final = 40.0
BELOW: Final = 0.9
BELOW_SECONDS_MAX: Final = 4  # fleet.md promises 3 s
SECONDS: Final = 14
OVER: Final = 1.15  # with the burst, and what was late


class Fleet:
    """Two members with two workers each."""

    def __init__(self, kafka: Cluster, directory: Path) -> None:
        self.members: dict[str, SluiceProcess] = {}
        self._directory = directory
        self._settings: dict[str, SluiceSettings] = {}
        secret = fleet_secret(directory)  # without one the next holder learns for as long as leases may last
        for name in NAMES:
            sections: dict[str, dict[str, object]] = {
                "process": {"workers": 2},
                "fleet": {
                    "name": name,
                    "members_max": 2,
                    "secret_file": secret,
                    "bind": f"{HOST}:{free_ports(1)[0]}",
                    "group": f"__fleet-{directory.name}",
                },
            }
            self._settings[name] = SluiceSettings(
                kafka.bootstrap(),
                SluicePorts.free(),
                quotas={"policy": "schedule", "scope": "cluster"},
                client_quotas={CLIENT: {"producer_byte_rate": QUOTA}},
                sections=sections,
            )

    def start(self, name: str) -> None:
        """Start a member."""
        directory = self._directory / f"{name}-{len(self.members)}-{time.monotonic_ns()}"
        directory.mkdir()
        self.members[name] = SluiceProcess.configured(self._settings[name], directory).wait_ready()

    def holder(self) -> str:
        """The name of the member that is the holder."""
        until(
            lambda: sum(one.metric("sluice_fleet_holder") for one in self.members.values()) == 1,
            "a holder",
            SETTLE_SECONDS,
        )
        return next(name for name, one in self.members.items() if one.metric("sluice_fleet_holder"))


@contextmanager
def fleet_of(kafka: Cluster, directory: Path) -> Iterator[Fleet]:
    found = Fleet(kafka, directory)
    try:
        for name in NAMES:
            found.start(name)
        until(
            lambda: all(one.metric("sluice_fleet_default_share") > 0.4 for one in found.members.values()),
            "shares",
            SETTLE_SECONDS,
        )
        yield found
    finally:
        for name, member in found.members.items():
            print(f"--- {name}\n{member.log()[-3000:]}")
            member.kill()


def each_second(loads: list[Load], seconds: int) -> list[float]:
    """Return the rate of each second, as a part of the quota."""
    return [rate(loads, 1.0) / QUOTA for _ in range(seconds)]


@pytest.mark.parametrize("holds", [False, True], ids=["member", "holder"])
def test_killed_member_costs_clients_of_the_other_a_few_seconds(
    kafka: Cluster, create_topic: CreateTopic, tmp_path: Path, holds: bool
) -> None:
    topic = create_topic(partitions=6)
    with fleet_of(kafka, tmp_path) as fleet:
        killed = next(name for name in NAMES if (name == fleet.holder()) is holds)
        (left,) = set(NAMES) - {killed}
        loads = {
            name: [Load(member.bootstrap, topic, CLIENT) for _ in range(4)]
            for name, member in fleet.members.items()
        }
        try:
            everywhere = [load for each in loads.values() for load in each]
            until(lambda: 0.75 < rate(everywhere, 2.0) / QUOTA < 1.25, "the quota over both", SETTLE_SECONDS)
            fleet.members[killed].kill()
            seconds = each_second(loads[left], SECONDS)
            print([round(one, 2) for one in seconds])
            # librdkafka sends a megabyte at once, so that two seconds are together what one has too much or too little.
            assert sum(seconds[BELOW_SECONDS_MAX:]) / (SECONDS - BELOW_SECONDS_MAX) > BELOW, seconds
            assert sum(seconds) / SECONDS < OVER, seconds
            assert fleet.members[left].metric("sluice_fleet_cut_off") == 0
        finally:
            for each in loads.values():
                for load in each:
                    load.stop()
