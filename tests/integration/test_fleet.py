"""Two gateways in front of real brokers are one fleet: they give each client its quota once, and say if they differ."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import HOST, Cluster, free_ports
from tests.conftest import CreateTopic
from tests.support.certificates import Authority
from tests.support.load import Load, rate
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings, fleet_secret, sluice
from tests.support.waiting import until

CLIENT: Final = "hot"
QUOTA: Final = 2_000_000.0
LEARNING_SECONDS: Final = 20
LEASE_SECONDS: Final = 16
MEASURED_SECONDS: Final = 10.0
# In ten seconds there may be the burst of one, and a request of 1 MB at each of two members.
OVER: Final = 1.2


class Fleet:
    """The gateways `a`, which is the holder, and `b`."""

    def __init__(self, kafka: Cluster, directory: Path) -> None:
        self.holder = f"{HOST}:{free_ports(1)[0]}"
        self._directory = directory
        self._settings = SluiceSettings(kafka.bootstrap(), quotas={"policy": "schedule", "scope": "cluster"})
        self._keys = {"holder": self.holder, "members_max": 4, "secret_file": fleet_secret(directory)}
        self.limit = QUOTA
        self.members: dict[str, SluiceProcess] = {}

    def start(self, name: str, tls: dict[str, object] | None = None, **keys: object) -> SluiceProcess:
        """Start a member."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        keys = {"name": name, **self._keys, **keys}
        keys = {key: value for key, value in keys.items() if value is not None}
        limits = {CLIENT: {"producer_byte_rate": self.limit}}
        ports = SluicePorts.free()
        sections = {"fleet": keys} if tls is None else {"fleet": keys, "fleet.tls": tls}
        settings = replace(self._settings, ports=ports, client_quotas=limits, sections=sections)
        self.members[name] = SluiceProcess.configured(settings, directory).wait_ready()
        return self.members[name]

    def state(self, name: str) -> dict[str, Any]:
        """What a member knows of the fleet."""
        return self.members[name].document("/fleet")

    def kill(self) -> None:
        """End all members, and show what they have logged last."""
        for name, member in self.members.items():
            print(f"--- {name}\n{member.log()[-3000:]}")
            member.kill()


@contextmanager
def loaded(fleet: Fleet, topic: str, each: int = 2) -> Iterator[list[Load]]:
    loads = [Load(member.bootstrap, topic, CLIENT) for member in fleet.members.values() for _ in range(each)]
    try:
        yield loads
    finally:
        for load in loads:
            load.stop()


@pytest.fixture
def fleet(kafka: Cluster, tmp_path: Path) -> Iterator[Fleet]:
    """Two members that know each other."""
    found = Fleet(kafka, tmp_path)
    try:
        found.start("a", bind=found.holder)
        found.start("b")
        until(lambda: len(found.state("b")["members"]) == 2, seconds=10)
        until(lambda: found.state("b")["learning"] is False, seconds=LEARNING_SECONDS)
        yield found
    finally:
        found.kill()


def test_two_members_give_a_client_its_quota_once(fleet: Fleet, create_topic: CreateTopic) -> None:
    with loaded(fleet, create_topic(partitions=6)) as loads:
        time.sleep(5)
        assert 0.7 * QUOTA <= rate(loads, MEASURED_SECONDS) <= OVER * QUOTA
        state = fleet.state("b")
        assert [member["name"] for member in state["members"]] == ["a", "b"]
        ((key, shares),) = state["member_shares"].items()
        assert CLIENT in key
        assert 0.8 <= sum(shares) <= 1


def test_member_that_loses_the_holder_goes_on_at_its_equal_share(
    fleet: Fleet, create_topic: CreateTopic
) -> None:
    with loaded(fleet, create_topic(partitions=6)) as loads:
        time.sleep(3)
        fleet.members["a"].kill()
        of_b = loads[2:]
        until(lambda: fleet.state("b")["cut_off"], seconds=LEASE_SECONDS + 3)
        time.sleep(2)
        assert 0.6 * QUOTA / 4 <= rate(of_b, MEASURED_SECONDS) <= (OVER + 0.3) * QUOTA / 4
    assert "this member is cut off from the fleet" in fleet.members["b"].log()


def test_members_with_other_quotas_say_who_differs_and_are_not_altered(
    kafka: Cluster, tmp_path: Path
) -> None:
    fleet = Fleet(kafka, tmp_path)
    try:
        fleet.start("a", bind=fleet.holder)
        fleet.limit = QUOTA / 2
        fleet.start("b")
        server = ("--bootstrap-server", fleet.members["b"].bootstrap)
        said = sluice("quotas", "set", *server, "--client-id", CLIENT, "producer_byte_rate=7", code=1)
        assert 'set store = "topic", or change the file at every member' in said
        assert "producer_byte_rate = " in sluice("quotas", "export", *server)
        until(lambda: all(fleet.state(name)["disagreements"] for name in ("a", "b")), seconds=30)
        for name in ("a", "b"):
            (sentence,) = fleet.state(name)["disagreements"]
            assert sentence.startswith("the quotas differ: 1 with digest ")
            assert sentence.split()[-1] in ("a", "b")
            assert fleet.members[name].metric("sluice_fleet_disagreements") == 1
        config = tmp_path / "b" / "sluice.toml"
        said = sluice("check", "--config", config, code=3)
        assert "members of the fleet, by " in said
        assert "differs: the quotas differ: 1 with digest " in said
        of_a = tmp_path / "a" / "quotas.toml"
        (tmp_path / "b" / "quotas.toml").write_text(of_a.read_text())
        until(lambda: not any(fleet.state(name)["disagreements"] for name in ("a", "b")), seconds=30)
        said = sluice("check", "--config", config)
        assert said.splitlines()[-1].startswith(f"{config} is right")  # and warns that there is no secret
        logged = fleet.members["a"].log(1 << 20)
        assert logged.count("members of the fleet differ") == 1
        assert logged.count("members of the fleet agree again") == 1
    finally:
        fleet.kill()


def test_members_lease_over_mutual_tls_and_plaintext_is_named(kafka: Cluster, tmp_path: Path) -> None:
    fleet = Fleet(kafka, tmp_path)
    authority = Authority.make(tmp_path, "fleet")
    own = authority.issue("member")
    tls: dict[str, object] = {
        "cert_file": str(own.cert_file),
        "key_file": str(own.key_file),
        "client_ca_file": str(authority.cert_file),
    }
    try:
        fleet.start("a", bind=fleet.holder, tls=tls)
        fleet.start("b", tls=tls)
        until(lambda: all(fleet.state(name)["leased"] for name in ("a", "b")), seconds=20)
        fleet.start("c")
        until(
            lambda: fleet.members["a"].metric("sluice_fleet_received_reports_total", result="tls"), seconds=20
        )
        until(lambda: "[fleet.tls]" in fleet.state("c")["problem"], seconds=20)
        assert all(fleet.state(name)["leased"] for name in ("a", "b"))
    finally:
        fleet.kill()
