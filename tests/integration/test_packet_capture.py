"""tcpdump's capture of real clients, imported, has the rows that Sluice itself has recorded of the same traffic.

The clients log in and talk to Sluice over loopback; Sluice records what passes, tcpdump what is on the wire between
them.
"""

import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from offline.cli import main
from offline.inputs import read_footers
from protocol.api import FETCH, PRODUCE, SASL_AUTHENTICATE
from tests.cluster import Cluster, processes
from tests.cluster.sasl import SASL, SLUICE_LOGIN
from tests.conftest import CreateTopic
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings
from tests.support.round_trips import ROUND_TRIPS, Credentials
from tests.support.waiting import until
from tests.support.wire import wired

MECHANISMS: Final = {
    "librdkafka": "PLAIN",
    "kafka-python": "SCRAM-SHA-256",
    "aiokafka": "SCRAM-SHA-512",
    "java": "PLAIN",
}
USERS: Final = {"librdkafka": "alice", "kafka-python": "bob", "aiokafka": "alice", "java": "bob"}
VALUES: Final = [secrets.token_hex(size).encode() for size in (10, 2000, 400_000, 30, 100_000)]
MARKER: Final = b"the-last-packet"

Row = dict[str, Any]


def tcpdump() -> str:
    """The path of tcpdump; the test is skipped without it, or without the right to use it, unless CI=true."""
    tool = shutil.which("tcpdump", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if tool is not None and os.geteuid() == 0:
        return tool
    missing = "tcpdump is not installed" if tool is None else "only root may capture packets"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


@contextmanager
def captured(ports: SluicePorts, directory: Path) -> Iterator[Path]:
    """What tcpdump sees at the ports of a Sluice; all of it is in the file when the block has ended."""
    file, log = directory / "loopback.pcap", directory / "tcpdump.log"
    log.touch()
    # It stays root, so that it may write the file.
    words = (
        tcpdump(),
        "-Z",
        "root",
        "-i",
        "lo",
        "-w",
        str(file),
        "--immediate-mode",
        "-U",
        "-B",
        "65536",
        "-n",
    )
    child = processes.start((*words, f"tcp and portrange {ports.bootstrap}-{ports.admin - 1}"), log=log)
    try:
        until(lambda: "listening on lo" in log.read_text(), log.read_text)
        yield file
        with wired(("127.0.0.1", ports.bootstrap)) as wire:
            wire.send_bytes(MARKER)
            until(lambda: MARKER in file.read_bytes()[-10_000:], "the last packet is in the file")
    finally:
        processes.end(child)


def rows(directory: Path) -> list[Row]:
    found: list[Row] = []
    for path in sorted(directory.glob("*.parquet")):
        found += pq.read_table(path).to_pylist()
    return [row for row in found if row["client_id"]]


def requests(found: Sequence[Row]) -> Mapping[tuple[str, str], Counter[tuple[int, ...]]]:
    """By client id and user: every request's API, version and size."""
    counted: dict[tuple[str, str], Counter[tuple[int, ...]]] = {}
    for row in found:
        client = (row["client_id"], row["principal"])
        request = (row["api_key"], row["api_version"], row["request_bytes"])
        counted.setdefault(client, Counter())[request] += 1
    return counted


def data(found: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    """What was written and read: by client and API, the size of each response, and the partitions with records."""
    return Counter(
        (
            row["client_id"],
            row["api_key"],
            row["response_bytes"],
            tuple((part["topic"], part["partition"], part["bytes"]) for part in row["partitions"]),
        )
        for row in found
        if row["api_key"] in (PRODUCE, FETCH) and sum(part["bytes"] for part in row["partitions"])
    )


def test_a_packet_capture_has_the_rows_that_sluice_records(
    kafka: Cluster, tmp_path: Path, create_topic: CreateTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = {"capture": {"directory": str(tmp_path / "sluice"), "partition_sample": 1.0}}
    made = SluiceSettings(kafka.bootstrap(SASL), cluster=SLUICE_LOGIN, sections=sections)
    with SluiceProcess.configured(made, tmp_path) as sluice:
        with captured(sluice.ports, tmp_path) as file:
            for family, round_trip in ROUND_TRIPS.items():
                who = Credentials.of(USERS[family], MECHANISMS[family])
                topic = create_topic()
                assert round_trip(sluice.bootstrap, topic, family, who, tmp_path, VALUES) == VALUES
        sluice.stop()
    brokers = [f"--broker={node}=127.0.0.1:{sluice.ports.address(node)[1]}" for node in (1, 2, 3)]
    capsys.readouterr()
    assert main(["import", "pcap", str(file), "--output", str(tmp_path / "packets"), *brokers]) == 0
    told = capsys.readouterr().out
    recorded, imported = rows(tmp_path / "sluice"), rows(tmp_path / "packets")
    assert "lost" not in told

    assert requests(imported) == requests(recorded)
    assert data(imported) == data(recorded)
    users = {(row["client_id"], row["principal"]) for row in imported if row["api_key"] in (PRODUCE, FETCH)}
    assert users == set(USERS.items())
    for family in ROUND_TRIPS:
        produced = [row for row in imported if row["client_id"] == family and row["api_key"] == PRODUCE]
        assert sum(row["request_bytes"] for row in produced) > sum(map(len, VALUES))
        assert all(row["upstream_us"] > 0 for row in produced)
    assert {row["broker"] for row in imported if row["api_key"] == PRODUCE} <= {1, 2, 3}
    assert any(row["api_key"] == SASL_AUTHENTICATE for row in imported)
    (footer,) = read_footers([str(path) for path in (tmp_path / "packets").glob("*.parquet")])
    assert footer.source.startswith("high: from a packet capture")
