"""Two gateways in front of real brokers are one fleet: they give each client its quota once, and say if they differ.

Where one is killed bounds are wide, since a second on a busy machine is not exact; `make fleet ARGS=kills` has the
figures. A control process that is stopped costs no rate: `tests/simulation/test_fleet.py`, in virtual time.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import pytest

from tests.cluster import HOST, Cluster, free_port
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
    """Gateways, by their names; a context that shows what they have logged last, and kills them.

    Args:
        quota: of the client id, in bytes/s.
        workers: of each member.
        keys: more keys of `[fleet]`.
    """

    def __init__(
        self, kafka: Cluster, directory: Path, quota: float = QUOTA, workers: int = 1, **keys: object
    ) -> None:
        self._directory = directory
        quotas = {"policy": "schedule", "scope": "cluster"}
        self._settings = SluiceSettings(
            kafka.bootstrap(), quotas=quotas, sections={"process": {"workers": workers}}
        )
        self._keys = {"members_max": 4, "secret_file": fleet_secret(directory), **keys}
        self.quota = quota
        self.members: dict[str, SluiceProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name, member in self.members.items():
            print(f"--- {name}\n{member.log()[-3000:]}")
            member.kill()

    def start(self, name: str, tls: Mapping[str, object] | None = None, **keys: object) -> SluiceProcess:
        """Start a member."""
        directory = self._directory / name
        directory.mkdir(exist_ok=True)
        sections = {**self._settings.sections, "fleet": {"name": name, **self._keys, **keys}}
        if tls is not None:
            sections["fleet.tls"] = tls
        limits = {CLIENT: {"producer_byte_rate": self.quota}}
        settings = replace(self._settings, ports=SluicePorts.free(), client_quotas=limits, sections=sections)
        self.members[name] = SluiceProcess.configured(settings, directory).wait_ready()
        return self.members[name]

    def state(self, name: str) -> dict[str, Any]:
        """What a member knows of the fleet."""
        return self.members[name].document("/fleet")

    @contextmanager
    def loaded(self, topic: str, each: int) -> Iterator[dict[str, list[Load]]]:
        """Let so many clients write through each member."""
        loads = {
            name: [Load(member.bootstrap, topic, CLIENT) for _ in range(each)]
            for name, member in self.members.items()
        }
        try:
            yield loads
        finally:
            for load in everywhere(loads):
                load.stop()


def everywhere(loads: Mapping[str, list[Load]]) -> list[Load]:
    return [load for each in loads.values() for load in each]


def held(kafka: Cluster, directory: Path) -> tuple[Fleet, str]:
    """A fleet whose holder is the member that binds this address."""
    holder = f"{HOST}:{free_port()}"
    return Fleet(kafka, directory, holder=holder), holder


def test_two_members_give_a_client_its_quota_once_and_one_that_loses_the_holder_its_equal_share(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic
) -> None:
    made, holder = held(kafka, tmp_path)
    with made as fleet:
        fleet.start("a", bind=holder)
        fleet.start("b")
        until(lambda: len(fleet.state("b")["members"]) == 2, seconds=10)
        until(lambda: fleet.state("b")["learning"] is False, seconds=LEARNING_SECONDS)
        with fleet.loaded(create_topic(partitions=6), 2) as loads:
            time.sleep(5)
            assert 0.7 * QUOTA <= rate(everywhere(loads), MEASURED_SECONDS) <= OVER * QUOTA
            state = fleet.state("b")
            assert [member["name"] for member in state["members"]] == ["a", "b"]
            ((key, shares),) = state["member_shares"].items()
            assert CLIENT in key
            assert 0.8 <= sum(shares) <= 1
            fleet.members["a"].kill()
            until(lambda: fleet.state("b")["cut_off"], seconds=LEASE_SECONDS + 3)
            time.sleep(2)
            assert 0.6 * QUOTA / 4 <= rate(loads["b"], MEASURED_SECONDS) <= (OVER + 0.3) * QUOTA / 4
        assert "this member is cut off from the fleet" in fleet.members["b"].log()


def test_members_with_other_quotas_say_who_differs_and_are_not_altered(
    kafka: Cluster, tmp_path: Path
) -> None:
    made, holder = held(kafka, tmp_path)
    with made as fleet:
        fleet.start("a", bind=holder)
        fleet.quota = QUOTA / 2
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


def test_members_lease_over_mutual_tls_and_plaintext_is_named(kafka: Cluster, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path, "fleet")
    own = authority.issue("member")
    tls = {
        "cert_file": str(own.cert_file),
        "key_file": str(own.key_file),
        "client_ca_file": str(authority.cert_file),
    }
    made, holder = held(kafka, tmp_path)
    with made as fleet:
        of_a = fleet.start("a", bind=holder, tls=tls)
        fleet.start("b", tls=tls)
        until(lambda: all(fleet.state(name)["leased"] for name in ("a", "b")), seconds=20)
        fleet.start("c")
        until(lambda: of_a.metric("sluice_fleet_received_reports_total", result="tls"), seconds=20)
        until(lambda: "[fleet.tls]" in fleet.state("c")["problem"], seconds=20)
        assert all(fleet.state(name)["leased"] for name in ("a", "b"))


SETTLE_SECONDS: Final = 40.0
BELOW: Final = 0.9
BELOW_SECONDS_MAX: Final = 4  # fleet.md promises 3 s
SECONDS: Final = 14


@pytest.mark.timeout(300)
@pytest.mark.parametrize("holds", [False, True], ids=["member", "holder"])
def test_killed_member_costs_clients_of_the_other_a_few_seconds(
    kafka: Cluster, create_topic: CreateTopic, tmp_path: Path, holds: bool
) -> None:
    quota = 2 * QUOTA
    group = f"__fleet-{tmp_path.name}"
    with Fleet(kafka, tmp_path, quota, workers=2, members_max=2, group=group) as fleet:
        for name in ("a", "b"):
            fleet.start(name, bind=f"{HOST}:{free_port()}")
        members = fleet.members

        def holders() -> list[str]:
            return [name for name, one in members.items() if one.metric("sluice_fleet_holder")]

        until(
            lambda: min(one.metric("sluice_fleet_default_share") for one in members.values()) > 0.4,
            "shares",
            SETTLE_SECONDS,
        )
        until(lambda: len(holders()) == 1, "a holder", SETTLE_SECONDS)
        killed, left = sorted(members, key=lambda name: (name in holders()) is not holds)
        with fleet.loaded(create_topic(partitions=6), 4) as loads:
            all_loads = everywhere(loads)
            until(lambda: 0.75 < rate(all_loads, 2.0) / quota < 1.25, "the quota over both", SETTLE_SECONDS)
            members[killed].kill()
            seconds = [rate(loads[left], 1.0) / quota for _ in range(SECONDS)]
            print([round(one, 2) for one in seconds])
            # librdkafka sends a megabyte at once, so that two seconds are together what one has too much or too little.
            assert sum(seconds[BELOW_SECONDS_MAX:]) / (SECONDS - BELOW_SECONDS_MAX) > BELOW, seconds
            assert sum(seconds) / SECONDS < 1.15, seconds  # with the burst, and what was late
            assert members[left].metric("sluice_fleet_cut_off") == 0
