"""A capacity over two gateways before real brokers: what is lent survives a member that is killed, and nothing is
given twice.

Bounds are wide, since a second on a busy machine is not exact; `make capacity` has the figures.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import HOST, Cluster, free_port
from tests.conftest import CreateTopic
from tests.support.load import Load, rate
from tests.support.proxy_process import SluiceProcess, SluiceSettings, fleet_secret
from tests.support.waiting import until

CLIENT: Final = "borrower"
CAPACITY: Final = 2_000_000.0
PROMISED: Final = 500_000
SETTLED_SECONDS: Final = 40
LENT_SECONDS: Final = 20
MEASURED_SECONDS: Final = 4.0
LEAST, MOST = 0.7, 1.3
BURST_SECONDS: Final = 1.0
NAMES: Final = ("a", "b")
PARTS: Final = 8  # of the keys: both members are holders of some, and one of them of the capacity's


@pytest.fixture(params=[1, PARTS], ids=["one holder", "a holder of each part"])
def members(
    kafka: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Mapping[str, SluiceProcess]]:
    """Two members of one fleet, which has settled; one client id may borrow three quarters of the capacity."""
    found: dict[str, SluiceProcess] = {}
    terms = {"producer_byte_rate": PROMISED, "producer_byte_rate_ceiling": CAPACITY}
    group = f"capacity-{tmp_path.name}"
    parts = request.param
    try:
        for name in NAMES:
            directory = tmp_path / name
            directory.mkdir()
            fleet = {
                "name": name,
                "bind": f"{HOST}:{free_port()}",
                "group": group,
                "members_max": 2,
                "parts": parts,
            }
            settings = SluiceSettings(
                kafka.bootstrap(),
                quotas={"policy": "schedule", "scope": "cluster"},
                client_quotas={CLIENT: terms},
                quotas_text=f'[[capacity]]\nscope = "cluster"\nin = {CAPACITY}\n',
                sections={"fleet": {**fleet, "secret_file": fleet_secret(tmp_path)}},
            )
            found[name] = SluiceProcess.configured(settings, directory)
        for member in found.values():
            member.wait_ready()
        until(lambda: all(map(settled, found.values())), "both are members", SETTLED_SECONDS, pause=0.2)
        if parts > 1:
            held = [parts // 2] * len(NAMES)
            until(
                lambda: [member.document("/fleet")["parts_held"] for member in found.values()] == held,
                "both are holders",
                SETTLED_SECONDS,
                pause=0.2,
            )
        yield found
    finally:
        for name, member in found.items():
            print(f"--- {name}\n{member.log()[-3000:]}")
            member.kill()


def settled(member: SluiceProcess) -> bool:
    """Whether a member knows both, and has shares."""
    fleet = member.document("/fleet")
    return len(fleet["members"]) == len(NAMES) and not fleet["learning"] and bool(fleet["leased"])


def divides(member: SluiceProcess) -> bool:
    """Whether this member divides the capacity."""
    return member.metric("sluice_capacity_byte_rate", type="Produce") == CAPACITY


def classes(member: SluiceProcess) -> list[str]:
    """Return the classes of the capacity, as a member says for the fleet."""
    found = member.document("/v1/capacities")
    assert not found["problem"], found
    return [one["entity"] for row in found["capacities"] for one in row["classes"]]


@pytest.mark.timeout(180)
def test_capacity_is_lent_to_the_members_that_are_left_and_never_twice(
    members: Mapping[str, SluiceProcess], create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=6)
    loads = {
        name: [Load(member.bootstrap, topic, CLIENT) for _ in range(2)] for name, member in members.items()
    }
    every = [load for each in loads.values() for load in each]
    try:
        until(lambda: rate(every, MEASURED_SECONDS) >= LEAST * CAPACITY, "all is lent", LENT_SECONDS)
        assert rate(every, MEASURED_SECONDS) <= MOST * CAPACITY
        (divider,) = (name for name, member in members.items() if divides(member))
        other = next(name for name in NAMES if name != divider)
        assert classes(members[other]) == classes(members[divider]) == [f"client-id {CLIENT!r}"]
        parts = members[divider].document("/fleet")["parts"]
        # With one part its holder also leases the rates. With several, the holder of the capacity is the harder case.
        ends, stays = (other, divider) if parts == 1 else (divider, other)
        before, killed = sum(load.bytes for load in every), time.monotonic()
        members[ends].kill()
        left = loads[stays]
        until(
            lambda: rate(left, MEASURED_SECONDS) >= LEAST * CAPACITY, "all is lent to the other", LENT_SECONDS
        )
        passed, seconds = sum(load.bytes for load in every) - before, time.monotonic() - killed
        assert passed <= CAPACITY * (MOST * seconds + BURST_SECONDS)
        assert divides(members[stays])
    finally:
        for load in every:
            load.stop()
