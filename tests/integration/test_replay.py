"""Replays against real brokers: what arrives there, what is reported, and how it fails."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from offline.cli import main
from offline.replay.messages import BATCH_BYTES_MIN
from protocol.api import API_VERSIONS, FETCH, HEARTBEAT, METADATA, PRODUCE
from tests.cluster import HOST, Cluster, free_port
from tests.cluster.sasl import SASL
from tests.conftest import CreateTopic
from tests.support.captures import row, write
from tests.support.numbered import read_all, write_all
from tests.support.proxy_process import SluiceProcess, SluiceSettings

PARTITIONS = 3
RECORDS = 20


def did(number: int, api_key: int, broker: int, topic: str = "", **more: Any) -> dict[str, Any]:
    """Something that a client did, on a connection for each broker."""
    fields: dict[str, Any] = {"api_key": api_key, "api_version": 12, "broker": broker, "connection": broker}
    if topic:
        records = RECORDS if api_key == PRODUCE else -1
        partition = {"topic": topic, "partition": broker - 1, "bytes": 5000, "records": records}
        fields |= {"request_bytes": 5100, "partitions": [partition]}
    return row(number, client_id="replayed", **fields, **more)


def recording(tmp_path: Path, topic: str) -> Path:
    rows = []
    for number in range(120):
        broker = 1 + number % 3
        if number % 4 == 0:
            rows.append(did(number, FETCH, broker, topic, response_bytes=5070))
        elif number % 4 == 3:
            rows.append(did(number, (HEARTBEAT, METADATA, API_VERSIONS)[number % 3], broker))
        else:
            rows.append(did(number, PRODUCE, broker, topic))
    return write(tmp_path / "capture-p-000001.parquet", rows)


def replay(tmp_path: Path, capture: Path, target: str, *words: str) -> tuple[int, dict[str, Any]]:
    report = tmp_path / f"{secrets.token_hex(4)}.json"
    line = ["replay", str(capture), "--target", target, "--json", str(report), "--no-progress", *words]
    line += ["--html", str(report.with_suffix(".html"))]
    code = main(line)
    return code, json.loads(report.read_text()) if report.exists() else {}


def test_every_request_arrives_and_gets_a_response(kafka: Cluster, tmp_path: Path) -> None:
    topic = f"r-{secrets.token_hex(4)}"
    capture = recording(tmp_path, topic)
    target = kafka.bootstrap().split(",")[0]
    code, found = replay(tmp_path, capture, target, "--create", "--speed", "2")
    assert code == 0
    requests = found["requests"]
    assert (requests["sent"], requests["answered"], requests["errors"]) == (120, 120, {})
    assert requests["partitions_left_out"] == 0
    assert found["planned"]["seconds"] == pytest.approx(119 * 0.02 / 2, abs=0.01)
    assert found["apis"]["Produce"]["answered"] == 60
    # Each Fetch finds as many bytes as it brought, in a response with a few fields around them.
    assert found["apis"]["Fetch"]["answered"] == 30
    assert 30 * 5000 < found["achieved"]["response_bytes"] < 30 * 5000 + 120 * 2000
    assert found["fetched"]["larger_than_recorded"] == 0
    assert found["achieved"]["request_bytes"] > 60 * 5000
    filled = PARTITIONS * (1 + -(-(5000 - BATCH_BYTES_MIN) // 1024))
    assert len(read_all(kafka.bootstrap(), topic, PARTITIONS)) == 60 * RECORDS + filled


def test_batches_that_are_larger_than_recorded_fetches_are_said(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker gives at least one whole batch: here of 10 kB, where 5 kB were fetched when it was recorded."""
    topic = create_topic(partitions=PARTITIONS)
    write_all(kafka.bootstrap(), topic, [bytes(10_000)] * PARTITIONS, partitions=PARTITIONS)
    rows = [did(number, FETCH, 1 + number % 3, topic, response_bytes=5070) for number in range(30)]
    capture = write(tmp_path / "capture-p-000001.parquet", rows)
    code, found = replay(tmp_path, capture, kafka.bootstrap().split(",")[0], "--speed", "2")
    assert (code, found["fetched"]["answers"], found["fetched"]["larger_than_recorded"]) == (0, 30, 30)
    assert found["fetched"]["recorded_bytes"] == 30 * 5070
    assert 30 * 10_000 < found["fetched"]["bytes"] < 30 * 10_300
    assert (
        "30 of 30 responses were larger. A broker responds with at least one whole batch"
        in capsys.readouterr().out
    )


def test_quotas_throttle_a_replay(kafka: Cluster, tmp_path: Path, create_topic: CreateTopic) -> None:
    capture = recording(tmp_path, create_topic(partitions=PARTITIONS))
    quotas = {"replayed": {"producer_byte_rate": 1000.0}}
    settings = SluiceSettings(kafka.bootstrap(), client_quotas=quotas)
    with SluiceProcess.configured(settings, tmp_path) as sluice:
        code, found = replay(tmp_path, capture, sluice.bootstrap, "--linger", "3")
    assert code == 0
    assert found["throttle_ms"]["requests"] > 0
    assert found["apis"]["Produce"]["throttle_ms"]["requests"] == found["throttle_ms"]["requests"]
    assert found["recorded"]["throttle_ms"]["requests"] == 0


def test_kept_payloads_arrive_once_more(kafka: Cluster, tmp_path: Path, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=PARTITIONS)
    directory = tmp_path / "capture"
    sections = {"capture": {"directory": str(directory), "frames": "keep"}}
    sent = [secrets.token_bytes(size) for size in (10, 1000, 200_000) for _ in range(3)]
    with SluiceProcess.configured(SluiceSettings(kafka.bootstrap(), sections=sections), tmp_path) as sluice:
        write_all(sluice.bootstrap, topic, sent, partitions=PARTITIONS, settings={"enable.idempotence": True})
    code, found = replay(tmp_path, directory, kafka.bootstrap().split(",")[0])
    assert (code, found["requests"]["errors"]) == (0, {})
    assert sorted(read_all(kafka.bootstrap(), topic, PARTITIONS)) == sorted(2 * sent)


def test_missing_topics_are_named(kafka: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = recording(tmp_path, "not-there")
    code, _ = replay(tmp_path, capture, kafka.bootstrap().split(",")[0])
    assert code == 1
    assert "the target lacks 1 topics (not-there); --create makes them" in capsys.readouterr().err


def test_target_that_is_not_there_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = recording(tmp_path, "t")
    code, found = replay(tmp_path, capture, f"{HOST}:{free_port()}")
    assert (code, found) == (1, {})
    err = capsys.readouterr().err
    assert "cannot be reached" in err
    assert len(err.splitlines()) == 1


def test_target_that_wants_sasl_is_one_clear_line(
    kafka: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = replay(tmp_path, recording(tmp_path, "t"), kafka.bootstrap(SASL).split(",")[0])
    assert code == 1
    assert (
        "closed the connection at Metadata version 9: it refuses it, or expects TLS or SASL"
        in capsys.readouterr().err
    )
