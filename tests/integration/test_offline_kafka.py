"""A capture that is read from a Kafka topic: one row as JSON in each record, through Spark's Kafka source."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kafka import KafkaProducer

from offline.inputs import files_of
from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support import spark_java
from tests.support.proxy_process import ROOT
from tests.support.synthetic import Client, write_capture

_SECONDS_MAX = 200
CLIENTS = [
    Client(name="a", shape="steady", rate=300_000),
    Client(name="b", shape="steady", rate=200_000, produces=False),
]


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make spark-jars` brings."""
    directory = tmp_path_factory.mktemp("spark-jars")
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(ROOT / "offline" / "spark-jars.xml"),
        f"-DoutputDirectory={directory}",
    ]
    subprocess.run(
        [*command, "dependency:copy-dependencies"], check=True, timeout=_SECONDS_MAX, capture_output=True
    )
    return directory


def ingest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offline", "ingest", *arguments, "--master", "local[2]", "--no-progress"]
    return subprocess.run(
        command,
        env={**os.environ, **spark_java.ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        cwd=ROOT,
        check=False,
    )


@pytest.mark.timeout(400)
def test_a_topic_is_the_same_capture_as_its_files(
    kafka: Cluster, create_topic: CreateTopic, jars: Path, tmp_path: Path
) -> None:
    count = write_capture(tmp_path / "capture", CLIENTS, 2)
    rows = pq.read_table(files_of([str(tmp_path / "capture")])[0]).to_pylist()
    topic = create_topic(partitions=2)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap().split(","))
    for row in rows:
        producer.send(topic, json.dumps(row).encode(), partition=row["connection"] % 2)
    producer.flush()
    arguments = ("--kafka", kafka.bootstrap(), "--topic", topic, "--jars", str(jars))
    done = ingest(*arguments, "--output", str(tmp_path / "work"))
    assert done.returncode == 0, done.stderr
    assert f"{count:,} requests of 1 processes" in done.stdout
    found = pq.read_table(tmp_path / "work" / "ingest" / "requests").to_pylist()
    assert {(row["client_id"], row["seq"], row["request_bytes"]) for row in found} == {
        (row["client_id"], row["seq"], row["request_bytes"]) for row in rows
    }
    producer.send(topic, b"no row", partition=0)
    producer.close()
    spoilt = ingest(*arguments, "--output", str(tmp_path / "other"))
    assert spoilt.returncode == 1
    assert f"kafka:{topic}-0, row" in spoilt.stderr
    assert "a column is null or missing" in spoilt.stderr
