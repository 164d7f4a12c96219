"""Brokers that replicate through Sluice: throttled by Kafka's tool, by Sluice alone, and not at all (KIP-73).

Three brokers of their own, whose inter-broker listener is advertised at one Sluice. Sizes are read off log files.
Bounds are wide, since this machine runs other tests too and sizes are read off files: no second over twice the quota
and a few batches, where a move without a throttle is over in one. That no second is over the quota and one batch is
shown in virtual time (`tests/unit/quotas/replication/test_rates.py`), and measured by `make replication`.
"""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli import main
from tests.cluster import tools
from tests.cluster.sasl import SASL_USERS, password
from tests.support.certificates import Authority
from tests.support.growth import Growth
from tests.support.load import Load, rate
from tests.support.replication_rig import ReplicationRig, reassignment_json
from tests.support.waiting import until
from tests.support.workers import ALIKE

MB = 1_000_000
BATCH = 110_000
LAG_SECONDS = 6  # replica.lag.time.max.ms of these brokers; Kafka's default is 30
CAPACITY = 8 * MB
PROMISED = 6 * MB
QUOTAS = f"""
[[capacity]]
scope = "cluster"
in = {CAPACITY}

[[quota]]
client_id = "busy"
producer_byte_rate = {PROMISED}
producer_byte_rate_ceiling = {CAPACITY}
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicationRig]:
    properties = {"replica.lag.time.max.ms": str(LAG_SECONDS * 1000)}
    directory = tmp_path_factory.mktemp("replication")
    with ReplicationRig(directory, properties=properties, quotas_text=QUOTAS) as rig:
        yield rig


def reconfigure(rig: ReplicationRig, **keys: object) -> None:
    """Change `[replication]` and wait until it holds; the policy is `schedule` again unless it is given."""
    rig.reconfigure(**{"policy": "schedule", **keys})


def assert_held(watched: Growth, rate: int) -> None:
    """Nothing came faster than a throttle allows; see the bounds above."""
    assert watched.largest_second() <= 2 * rate + 3 * BATCH


def filled(rig: ReplicationRig, topic: str, megabytes: float) -> int:
    rig.create(topic, [[1]])
    rig.fill(topic, megabytes)
    return rig.size(topic, 1)


def test_reassignment_tool_throttles_and_verify_takes_it_away(rig: ReplicationRig) -> None:
    reconfigure(rig, throttled="cluster", policy="schedule")
    size = filled(rig, "tool", 12)
    said = rig.reassign({"tool": [[1, 3]]}, 2 * MB)
    assert "inter-broker throttle limit was set to 2000000 B/s" in said
    watched = rig.watch("tool", 3, size)
    assert_held(watched, 2 * MB)
    assert watched.seconds >= 0.8 * size / (2 * MB)
    assert watched.seconds <= 3 * size / (2 * MB)
    assert rig.sluice.metric("sluice_replicas_left_out_total") > 0
    assert size <= rig.copied("tool", 3) <= 1.1 * size  # a leader may end a response in the middle of a batch
    until(lambda: rig.in_sync("tool") == {0: {1, 3}}, "in sync")
    assert "is completed" in rig.reassign({"tool": [[1, 3]]}, None, "--verify")
    until(lambda: not rig.sluice.metric("sluice_replication_quota_byte_rate"), "no quota")


def test_replicas_being_added_are_throttled_without_any_config(rig: ReplicationRig) -> None:
    reconfigure(rig, throttled="reassignments", leader_rate="2M", follower_rate="3M")
    size = filled(rig, "added", 12)
    rig.reassign({"added": [[1, 2, 3]]})
    watched = rig.watch("added", 3, size)
    assert_held(watched, 2 * MB)
    until(lambda: rig.in_sync("added") == {0: {1, 2, 3}}, "in sync")
    words = ("--describe", "--entity-type", "topics", "--entity-name", "added")
    assert "throttled" not in tools.configs(rig.cluster.bootstrap(), *words), "nothing is left behind"


def test_throttle_is_raised_and_switched_off_in_flight(rig: ReplicationRig) -> None:
    reconfigure(rig, throttled="reassignments", leader_rate="200k", follower_rate="200k")
    size = filled(rig, "raised", 30)
    rig.reassign({"raised": [[1, 3]]})
    rig.watch("raised", 3, 300_000)
    reconfigure(rig, leader_rate="2M", follower_rate="2M")
    began = time.monotonic()
    rig.watch("raised", 3, 5 * MB)
    assert time.monotonic() - began < 20  # 23 s at the old rate
    rig.sluice.signal(signal.SIGUSR1)
    began = time.monotonic()
    rig.watch("raised", 3, size)
    assert time.monotonic() - began < 11.5  # 25 MB would take 12.5 s
    rig.sluice.signal(signal.SIGUSR1)


def test_sluice_killed_in_the_middle_loses_nothing(rig: ReplicationRig) -> None:
    reconfigure(rig, throttled="reassignments", leader_rate="2M", follower_rate="2M")
    size = filled(rig, "killed", 12)
    rig.create("beside", [[1, 2, 3]])
    rig.reassign({"killed": [[1, 3]]})
    rig.watch("killed", 3, 4 * MB)
    rig.sluice.signal(signal.SIGKILL)
    rig.sluice.stop()
    rig.start_sluice()
    rig.sluice.wait_ready()
    watched = rig.watch("killed", 3, size)
    assert_held(watched, 2 * MB)
    until(lambda: rig.in_sync("killed") == {0: {1, 3}}, "in sync")
    assert rig.in_sync("beside") == {0: {1, 2, 3}}


def test_a_reassignment_uses_what_clients_leave_and_keeps_its_rate(rig: ReplicationRig) -> None:
    reconfigure(
        rig, throttled="reassignments", leader_rate=None, follower_rate="1M", follower_rate_ceiling="8M"
    )
    size = filled(rig, "lent", 60)
    rig.create("busy", [[2]])
    rig.reassign({"lent": [[1, 3]]})
    alone = rig.watch("lent", 3, 20 * MB)
    assert alone.rate > 3 * MB, "nothing else uses the capacity of 8 MB/s"
    assert alone.largest_second() <= 2 * CAPACITY
    loads = [Load(rig.sluice.bootstrap, "busy", "busy") for _ in range(3)]
    try:
        time.sleep(3)
        began = rig.size("lent", 3)
        assert rate(loads, 3) > 0.8 * PROMISED, "the client has its rate"
        shared = (rig.size("lent", 3) - began) / 3
        row = next(one for one in rig.sluice.document("/v1/capacities")["capacities"] if one["waiting"])
        said = {one["entity"]: one for one in row["classes"]}
    finally:
        for load in loads:
            load.stop()
    assert 0.6 * MB < shared < 3 * MB, "its rate, and a half of the 1 MB/s that are left"
    follower = said["follower replication"]
    assert (follower["broker"], follower["rate"], follower["ceiling"]) == (3, 1 * MB, 8 * MB)
    assert rig.sluice.metric("sluice_class_byte_rate", **{"class": "follower replication"}) > 0.9 * MB
    rig.watch("lent", 3, size)
    reconfigure(rig, leader_rate="2M", follower_rate="2M", follower_rate_ceiling=None)


def test_kafkas_windows_hold_the_rate_on_average(rig: ReplicationRig) -> None:
    reconfigure(rig, throttled="reassignments", policy="kip73", leader_rate="2M", follower_rate="2M")
    size = filled(rig, "windows", 40)
    rig.reassign({"windows": [[1, 3]]})
    watched = rig.watch("windows", 3, size)
    # Eleven empty windows hold 22 MB, which may come at once, as in Kafka.
    assert watched.seconds >= 0.7 * (size - 24 * MB) / (2 * MB)
    assert watched.seconds <= 3 * size / (2 * MB)


@ALIKE
def test_brokers_authenticate_to_each_other_through_sluice(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = f'user_sluice="{password("sluice")}"'
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": (f'{module} username="sluice" password="{password("sluice")}" {users};'),
    }
    rig = ReplicationRig(
        tmp_path,
        {"throttled": "reassignments", "leader_rate": "2M"},
        nodes=2,
        protocol="SASL_PLAINTEXT",
        listener_properties=properties,
        properties={"sasl.mechanism.inter.broker.protocol": "PLAIN"},
        cluster_options={"format_arguments": SASL_USERS},
    )
    with rig:
        size = filled(rig, "sasl", 6)
        rig.reassign({"sasl": [[1, 2]]})
        assert_held(rig.watch("sasl", 2, size), 2 * MB)


@ALIKE
def test_tls_between_brokers_ends_at_sluice(tmp_path: Path) -> None:
    """Sluice shows a certificate of its own to followers and to leaders; each side trusts one authority."""
    authority = Authority.make(tmp_path, "brokers")
    broker, own = authority.issue("broker"), authority.issue("sluice", "/O=Example/CN=sluice")
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.store_file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert_file),
        "ssl.client.auth": "required",
    }
    tls = {"cert_file": str(own.cert_file), "key_file": str(own.key_file)}
    rig = ReplicationRig(
        tmp_path,
        {"throttled": "reassignments", "leader_rate": "2M"},
        nodes=2,
        protocol="SSL",
        listener_properties=properties,
        sections={
            "listeners.tls": {**tls, "client_ca_file": str(authority.cert_file)},
            "cluster.tls": {**tls, "ca_file": str(authority.cert_file)},
        },
        bootstrap_internal=True,
    )
    with rig:
        size = filled(rig, "tls", 6)
        rig.reassign({"tls": [[1, 2]]})
        assert_held(rig.watch("tls", 2, size), 2 * MB)
        assert rig.sluice.metric("sluice_tls_handshakes_total", side="client") > 0


@ALIKE
def test_estimate_matches_the_time_that_the_cluster_takes(
    rig: ReplicationRig, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reconfigure(rig, throttled="reassignments", policy="schedule", leader_rate="2M", follower_rate="2M")
    size = filled(rig, "estimated", 12)
    plan = tmp_path / "plan.json"
    plan.write_text(reassignment_json({"estimated": [[1, 2]]}))
    words = ["reassign", "estimate", "--bootstrap-server", rig.cluster.bootstrap(), "--format", "json"]
    words += ["--reassignment-json-file", str(plan), "--throttle", "2M", "--sample-seconds", "1"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bytes_moved"] == size
    assert report["seconds"] == pytest.approx(size / (2 * MB), rel=0.01)
    rig.reassign({"estimated": [[1, 2]]})
    watched = rig.watch("estimated", 2, size)
    assert 0.7 * report["seconds"] <= watched.seconds <= 3 * report["seconds"]


def test_broker_bounced_in_the_middle_catches_up_within_the_quota(rig: ReplicationRig) -> None:
    reconfigure(rig, throttled="reassignments", policy="schedule", leader_rate="2M", follower_rate="2M")
    size = filled(rig, "bounced", 12)
    rig.reassign({"bounced": [[1, 3]]})
    rig.watch("bounced", 3, 3 * MB)
    rig.cluster.stop_broker(3)
    rig.cluster.start_broker(3)
    watched = rig.watch("bounced", 3, size)
    assert_held(watched, 2 * MB)
    until(lambda: rig.in_sync("bounced") == {0: {1, 3}}, "in sync")


def test_low_volume_partitions_stay_in_sync_beside_a_move(rig: ReplicationRig) -> None:
    """KAFKA-4313: every replica is listed, the high-volume one is behind, and the others' ISR does not flap."""
    reconfigure(
        rig,
        throttled="file",
        policy="schedule",
        leader_rate="500k",
        follower_rate="500k",
        leader_throttled_replicas={"high": "*", "low": "*"},
        follower_throttled_replicas={"high": "*", "low": "*"},
    )
    rig.create("low", [[1, 3]] * 4)
    filled(rig, "high", 30)
    rig.reassign({"high": [[1, 3]]})
    rig.watch("high", 3, 200_000)
    deadline = time.monotonic() + 2 * LAG_SECONDS
    while time.monotonic() < deadline:
        rig.fill("low", 0.01, partitions=4)
        assert rig.in_sync("low") == {number: {1, 3} for number in range(4)}
        time.sleep(0.5)
    assert rig.size("high", 3) < 25 * MB, "it is still being moved"
    reconfigure(rig, throttled="off", leader_throttled_replicas={}, follower_throttled_replicas={})
    rig.watch("high", 3, rig.size("high", 1))
