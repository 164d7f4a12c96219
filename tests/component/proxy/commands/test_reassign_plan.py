"""`sluice reassign plan`: what it prints, what it refuses, and its exit codes; the cluster is made up."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from kafka_client import Security
from proxy.commands import reassign_plan
from proxy.config import Address
from proxy.control.reassign.cluster import ClusterState
from quotas.reassignment.step import PartitionState, TopicPartition
from tests.support.command_line import Sluice

MB = 1_000_000


def partition(*replicas: int, min_isr: int = 1) -> PartitionState:
    return PartitionState(replicas, replicas, replicas[0], (), (), min_isr)


CLUSTER = {
    ("t", 0): partition(1, 2, 3),
    ("t", 1): partition(2, 3, 1, min_isr=2),
    ("t", 2): PartitionState((4, 1, 2), (1, 2), 1, (4,), (), 1),
}
LIVE = frozenset({1, 2, 3, 4, 5})
DEAD = 6


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five brokers that live and one that does not; 24 MB a replica."""

    async def ask(
        servers: Sequence[Address], security: Security, targets: Mapping[TopicPartition, object]
    ) -> reassign_plan.ClusterWithSizes:
        seen = ClusterState(LIVE, LIVE | {DEAD}, CLUSTER, {"t": "00"}, {})
        return reassign_plan.ClusterWithSizes(seen, dict.fromkeys(CLUSTER, 24 * MB))

    monkeypatch.setattr(reassign_plan, "read_cluster", ask)


Targets = Mapping[int, Sequence[int]]


@pytest.fixture
def move(tmp_path: Path) -> Callable[[Targets], Path]:
    """Write targets of the topic t to a file as Kafka's tool takes it."""

    def write(targets: Targets) -> Path:
        entries = [
            {"topic": "t", "partition": number, "replicas": list(to)} for number, to in targets.items()
        ]
        path = tmp_path / "move.json"
        path.write_text(json.dumps({"version": 1, "partitions": entries}), encoding="utf-8")
        return path

    return write


@pytest.fixture
def planned(sluice: Sluice, move: Callable[[Targets], Path]) -> Callable[..., str]:
    def plan(targets: Targets, *words: object, code: int = 0) -> str:
        start = ("reassign", "plan", "--bootstrap-server", "b:1", "--reassignment-json-file", move(targets))
        return sluice(*start, *words, code=code)

    return plan


Planned = Callable[..., str]


@pytest.mark.usefixtures("cluster")
def test_table_shows_each_batch(planned: Planned) -> None:
    assert planned({0: (4, 5, 3), 1: (2, 3, 4)}, "--parallel-leader-movements", "1") == (
        "batch 1: 2 partitions, 2 replicas added, 48.0 MB\n"
        "  partition  replicas        add  drop  leader    bytes\n"
        "  t-0        1,2,3 -> 4,3,1  4    2     1 -> 4  24.0 MB\n"
        "  t-1        2,3,1 -> 2,3,4  4    1     2       24.0 MB\n"
        "\n"
        "batch 2: 1 partition, 1 replica added, 24.0 MB\n"
        "  partition  replicas        add  drop  leader    bytes\n"
        "  t-0        4,3,1 -> 4,5,3  5    1     4       24.0 MB\n"
        "\n"
        "in all: 3 steps in 2 batches, 3 replicas added, at most 2 at once, 1 leader movement, 72.0 MB\n"
    )


@pytest.mark.usefixtures("cluster")
def test_json_has_the_same_plan(planned: Planned) -> None:
    report = json.loads(planned({0: (4, 5, 3)}, "--format", "json", "--parallel-replica-count", "2"))
    assert report["limits"]["parallel_replica_count"] == 2
    assert report["batches"] == [
        {
            "batch": 1,
            "replicas_added": 2,
            "leaders_moved": 1,
            "bytes": 48 * MB,
            "steps": [
                {
                    "topic": "t",
                    "partition": 0,
                    "replicas": [4, 5, 3],
                    "adds": [4, 5],
                    "drops": [2, 1],
                    "elects": 4,
                    "current": [1, 2, 3],
                    "leader": 1,
                    "bytes": 48 * MB,
                }
            ],
        }
    ]
    assert (report["steps"], report["bytes"], report["replicas_added_at_once_max"]) == (1, 48 * MB, 2)
    assert report["waiting"] == []


@pytest.mark.usefixtures("cluster")
def test_plan_that_does_not_end_is_a_warning_and_exit_code_3(planned: Planned) -> None:
    lines = planned({0: (1, 2, DEAD), 2: (1, 2, 5)}, code=3).splitlines()
    other = "another reassignment of it is under way: adding [4], removing []"
    assert [line for line in lines if line.startswith("warning")] == [
        "warning: t-0 would not reach its target: waits for broker 6, which is not alive",
        f"warning: t-2 would not reach its target: {other}",
    ]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("targets", "problem"),
    [
        ({0: (1, 9)}, "Unknown broker id 9"),
        ({0: (1, 2), 7: (1, 2)}, "Unable to find partition: t-7"),
        ({1: (4,)}, "t-1: The manual partition assignment has 1 replicas, fewer than min.insync.replicas 2"),
    ],
)
def test_plan_refuses_what_kafka_or_sluice_would_refuse(
    planned: Planned, sluice: Sluice, targets: Targets, problem: str
) -> None:
    planned(targets, code=1)
    assert problem in sluice.err


@pytest.mark.usefixtures("cluster")
def test_limits_come_from_the_configuration_and_from_arguments(planned: Planned, tmp_path: Path) -> None:
    config = tmp_path / "sluice.toml"
    config.write_text(
        '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\n'
        "[reassignment]\nparallel_replica_count = 3\nmax_movements_in_per_broker = 4\n",
        encoding="utf-8",
    )
    words = ("--config", config, "--max-movements-in-per-broker", "2", "--format", "json")
    limits = json.loads(planned({0: (4, 5, 3)}, *words))["limits"]
    assert (limits["parallel_replica_count"], limits["max_movements_in_per_broker"]) == (3, 2)


def test_impossible_limit_is_refused(planned: Planned, sluice: Sluice) -> None:
    planned({0: (1,)}, "--parallel-partition-count", "0", code=1)
    assert "--parallel-partition-count: must be between 1 and 1000000" in sluice.err


@pytest.mark.parametrize("command", ["plan", "estimate"])
def test_cluster_without_a_response_is_one_line(
    sluice: Sluice, move: Callable[[Targets], Path], command: str
) -> None:
    words = ("--bootstrap-server", "127.0.0.1:1", "--reassignment-json-file", move({0: (1,)}))
    sluice("reassign", command, *words, code=1)
    assert sluice.err.startswith("sluice: ")
