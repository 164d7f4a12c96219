"""`sluice reassign plan` in front of real brokers: right about them, without a trace, and as strict as Kafka's tool."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from proxy.cli import main
from tests.cluster import Cluster, tools
from tests.conftest import CreateTopic
from tests.support.numbered import write_all

RECORD_BYTES = 10_000
RECORDS = 100
UNKNOWN_BROKER = 77


def replicas_of(kafka: Cluster, topic: str) -> list[int]:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    found = client.list_topics(topic, timeout=20).topics[topic].partitions[0]
    replicas: list[int] = found.replicas
    return replicas


def file_of(directory: Path, *entries: tuple[str, int, Sequence[int]]) -> Path:
    path = directory / "move.json"
    listed = [{"topic": topic, "partition": number, "replicas": list(to)} for topic, number, to in entries]
    path.write_text(json.dumps({"version": 1, "partitions": listed}), encoding="utf-8")
    return path


def planned(kafka: Cluster, path: Path, *words: str) -> int:
    start = ["reassign", "plan", "--bootstrap-server", kafka.bootstrap()]
    return main([*start, "--reassignment-json-file", str(path), *words])


def test_plan_is_true_of_the_cluster_and_changes_nothing(
    kafka: Cluster, create_topic: CreateTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = create_topic(replication=2, configs={"min.insync.replicas": "2"})
    write_all(kafka.bootstrap(), topic, [bytes(RECORD_BYTES)] * RECORDS)
    first, second = replicas_of(kafka, topic)
    (third,) = {1, 2, 3} - {first, second}
    path = file_of(tmp_path, (topic, 0, (third, second)))
    assert planned(kafka, path, "--format", "json") == 0
    report = json.loads(capsys.readouterr().out)
    (batch,) = report["batches"]
    (step,) = batch["steps"]
    assert (step["current"], step["replicas"]) == ([first, second], [third, second])
    assert (step["adds"], step["drops"], step["elects"]) == ([third], [first], third)
    # A replica is the records and their batches' headers.
    assert RECORDS * RECORD_BYTES <= step["bytes"] <= 1.1 * RECORDS * RECORD_BYTES
    assert planned(kafka, path) == 0
    assert f"{first},{second} -> {third},{second}" in capsys.readouterr().out
    assert replicas_of(kafka, topic) == [first, second]


@pytest.mark.parametrize("fault", ["unknown broker", "unknown partition", "partition twice", "broker twice"])
def test_bad_file_is_refused_in_the_words_of_kafkas_tool(
    kafka: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    entries: Mapping[str, list[tuple[str, int, Sequence[int]]]] = {
        "unknown broker": [(topic, 0, (1, UNKNOWN_BROKER))],
        "unknown partition": [(topic, 0, (1,)), (topic, 5, (1,))],
        "partition twice": [(topic, 0, (1,)), (topic, 0, (2,))],
        "broker twice": [(topic, 0, (1, 1))],
    }
    path = file_of(tmp_path, *entries[fault])
    assert planned(kafka, path) == 1
    said = capsys.readouterr().err.strip().removeprefix("sluice: ").removeprefix(f"{path}: ")
    words = ("--bootstrap-server", kafka.bootstrap(), "--reassignment-json-file", str(path), "--execute")
    with pytest.raises(tools.ToolError) as refused:
        tools.run(tools.REASSIGN_PARTITIONS, *words)
    assert said in str(refused.value)
