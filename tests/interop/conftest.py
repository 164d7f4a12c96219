"""Fixtures of the interop tests: the families, the proxy in front of the cluster, topics and crowds.

`SLUICE_INTEROP_DIRECT=1` leaves the proxy out: the drivers talk to the brokers, which shows whether it is a
driver that is wrong.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import Cluster, MissingPrerequisiteError
from tests.interop.families import FAMILIES, Family, MissingToolError
from tests.interop.runs import Crowd
from tests.support.proxy_process import SluiceProcess, SluiceSettings

DIRECT = os.environ.get("SLUICE_INTEROP_DIRECT") == "1"


@dataclass(frozen=True, slots=True)
class Target:
    """Where clients connect: a bootstrap address, and the brokers they must find from there."""

    bootstrap: str
    brokers: tuple[str, ...]


def available(family: Family) -> Family:
    """Return the family when this machine has what it needs; else the test is skipped, or fails where CI=true."""
    try:
        family.build()
    except (MissingToolError, MissingPrerequisiteError) as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{family.name}: {error}", pytrace=False)
        pytest.skip(f"{family.name}: {error}")
    return family


def present() -> list[Family]:
    """Return the families that this machine can run; the missing ones are told by the tests of each family."""
    found = []
    for family in FAMILIES:
        try:
            family.build()
        except (MissingToolError, MissingPrerequisiteError):
            continue
        found.append(family)
    return found


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    """Each client family in turn."""
    assert isinstance(request.param, Family), "the parameters are FAMILIES"
    return available(request.param)


@pytest.fixture(scope="session")
def interop_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where drivers and proxies write their logs."""
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def target(kafka: Cluster, interop_directory: Path) -> Iterator[Target]:
    """Sluice, with quotas that none of these clients reaches: everything is counted, nothing is held."""
    if DIRECT:
        named = [f"{node}@{host}:{port}" for node in kafka.nodes for host, port in [kafka.address(node)]]
        yield Target(kafka.bootstrap(), tuple(named))
        return
    directory = interop_directory / "unthrottled"
    directory.mkdir()
    generous = {"producer_byte_rate": 1_000_000_000, "consumer_byte_rate": 1_000_000_000}
    settings = SluiceSettings(kafka.bootstrap(), client_quotas={"<default>": generous})
    with SluiceProcess.configured(settings, directory) as sluice:
        ports = settings.ports
        yield Target(sluice.bootstrap, tuple(f"{node}@{ports.broker(node)}" for node in kafka.nodes))


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    """Drivers that run side by side, all ended with the test."""
    with Crowd(tmp_path) as started:
        yield started
