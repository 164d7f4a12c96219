"""Packets to advice: the pipeline reads an imported capture as any other, and states what it cannot know."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from offline.cli import main
from offline.jobs import backtest, demand, ingest, recommend
from offline.options import BacktestOptions, Goal, IngestOptions
from offline.store import Store
from tests.support.frames import produce_response, produce_to
from tests.support.hellos import hello
from tests.support.packets import Talk, write_pcap
from tests.support.pipeline import first

SECONDS = 30
RECORDS = 50_000


def test_quotas_follow_from_packets(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two clients produce 50 kB a second and 100 kB a second; a third connection is TLS."""
    caught = Talk(client=("10.0.0.9", 1)).open().say(0, hello(b"kafka.test")).caught()
    for number, (name, each_second) in enumerate((("slow", 1), ("fast", 2))):
        said = Talk(client=("10.0.0.1", 5000 + number)).open()
        for sent in range(SECONDS * each_second):
            asked = produce_to(9, {"t": [RECORDS]}, correlation_id=sent, client_id=name)
            said.ask(asked, produce_response(9, correlation_id=sent))
            said.now_us += 1_000_000 // each_second - 2000
        caught += said.close().caught()
    caught.sort(key=lambda packet: packet.time_us)
    file = write_pcap(tmp_path / "kafka.pcap", caught)
    assert main(["import", "pcap", str(file), "--output", str(tmp_path / "capture")]) == 0

    store = Store(spark, str(tmp_path / "work"))
    lines = ingest.run(spark, IngestOptions(inputs=(str(tmp_path / "capture"),)), store)
    source = "from a packet capture, so what clients waited before they sent is not known"
    source += ", 1 of 3 connections are TLS and left out"
    assert f"medium: {source}" in lines
    assert store.read("ingest/requests").count() == 3 * SECONDS
    assert store.read("ingest/problems").count() == 0

    demand.run(spark, store, store)
    fast = first(store.read("demand/entities").filter(F.col("client_id") == "fast"))
    assert fast["peak_10s"] == pytest.approx(2 * RECORDS, rel=0.02)  # and the fields around the records
    backtest.run(spark, BacktestOptions(candidates=5), store, store)
    recommend.run(spark, Goal(), store, store)
    default = first(store.read("recommend/recommendations").filter(F.col("kind") == "default"))
    assert default["confidence"].startswith("low: 30 s recorded")
    assert default["confidence"].endswith(source)
