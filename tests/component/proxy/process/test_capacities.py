"""Capacities of two members of a fleet, as processes: each responds for the whole fleet, by asking the holder."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cluster import HOST, free_port
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings, fleet_secret
from tests.support.scripted_broker import ScriptedBroker
from tests.support.waiting import until


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[SluiceProcess, SluiceProcess]]:
    """A holder, and a member with two workers."""
    holder = f"{HOST}:{free_port()}"
    fleet = {"holder": holder, "members_max": 4, "secret_file": fleet_secret(tmp_path)}
    with ExitStack() as stack:
        broker = stack.enter_context(ScriptedBroker())
        settings = SluiceSettings(
            broker.address,
            quotas={"policy": "schedule", "scope": "cluster"},
            quotas_text='[[capacity]]\nscope = "cluster"\nin = "8M"\n',
        )
        found = []
        for name, keys, workers in (("gw-1", {"bind": holder}, 1), ("gw-2", {}, 2)):
            directory = tmp_path / name
            directory.mkdir()
            sections: dict[str, dict[str, object]] = {
                "fleet": {"name": name, **fleet, **keys},
                "process": {"workers": workers},
            }
            made = replace(settings, ports=SluicePorts.free(), sections=sections)
            found.append(stack.enter_context(SluiceProcess.configured(made, directory)))
        yield found[0], found[1]


def is_divided_by(member: SluiceProcess, name: str) -> bool:
    divided_by: str = member.document("/v1/capacities")["divided_by"]
    return divided_by == name


def test_each_member_responds_for_the_fleet(members: tuple[SluiceProcess, SluiceProcess]) -> None:
    holder, other = members
    for member in members:
        until(partial(is_divided_by, member, "gw-1"))
        found = member.document("/v1/capacities")
        assert (found["problem"], found["capacities"], found["missing"]) == ("", [], [])
    assert holder.stop() == 0

    def is_said() -> bool:
        found = other.document("/v1/capacities")
        return bool(found["problem"]) and not found["divided_by"]

    until(is_said, "the member says that the holder does not respond")
