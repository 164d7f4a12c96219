"""`sluice-offline import pcap` on real files: both formats, compressed, cut off, several files; and its summary."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from commandline.program import FAILED, NEGATIVE, OK
from offline.cli import main
from offline.inputs import check_footers, files_of, read_footers
from tests.support.frames import (
    api_versions,
    fetch,
    fetched_from,
    heartbeat,
    produce_response,
    produce_to,
    some_response,
    topic_id,
)
from tests.support.hellos import hello
from tests.support.packets import BEGIN_US, Caught, Talk, write_pcap, write_pcapng


def packets(**options: Any) -> list[Caught]:
    """Five requests of one connection."""
    said = Talk(**options).open()
    said.ask(api_versions(correlation_id=0), some_response(40, correlation_id=0))
    for number, size in enumerate((20_000, 300), 1):
        asked = produce_to(9, {"t": [size]}, correlation_id=number)
        said.ask(asked, produce_response(9, correlation_id=number, throttle_ms=7))
    said.ask(fetch(13, correlation_id=3), fetched_from(13, {"t": [30_000]}, correlation_id=3))
    said.ask(heartbeat(correlation_id=4), some_response(10, correlation_id=4))
    return said.close().caught()


def rows(directory: Path) -> list[dict[str, Any]]:
    """The rows of the only capture in a directory, which `ingest` would take."""
    names = [str(directory)]
    check_footers(names)
    (name,) = files_of(names)
    found: list[dict[str, Any]] = pq.read_table(name).to_pylist()
    return found


def summary(capsys: pytest.CaptureFixture[str], *words: object, code: int = OK) -> dict[str, Any]:
    """Import with these arguments, and return the summary as JSON."""
    assert main(["import", "pcap", *map(str, words), "--format", "json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_row_has_what_the_packets_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_pcap(tmp_path / "a.pcap", packets())
    found = summary(capsys, file, "--output", tmp_path / "out", "--broker", "3=10.0.0.2:9092")
    made = rows(tmp_path / "out")
    assert found["rows"] == len(made) == 5
    assert made[1] == {
        "wall_ms": BEGIN_US // 1000 + 6,  # three packets of the handshake, a request and its response
        "mono_us": 5000,
        "process": made[0]["process"],
        "connection": 1,
        "seq": 1,
        "principal": "ANONYMOUS",
        "client_id": "a",
        "ip": "10.0.0.1",
        "listener": "10.0.0.2:9092",
        "broker": 3,
        "api_key": 0,
        "api_version": 9,
        "request_bytes": len(produce_to(9, {"t": [20_000]})) - 4,
        "response_bytes": len(produce_response(9)) - 4,
        "upstream_us": 1000,
        "throttle_ms": 7,
        "delay_ms": 0,
        "quota": "",
        "mutations": 0,
        "partitions": [{"topic": "t", "partition": 0, "bytes": 20_000, "records": -1}],
    }
    assert made[3]["partitions"][0]["topic"] == topic_id("t").hex()  # no Metadata response told its name
    assert made[0]["process"].startswith("pcap-20260921T")
    assert found["file"].endswith(f"capture-{made[0]['process']}-000001.parquet")


@pytest.mark.parametrize("kind", ["big-endian", "nanoseconds", "pcapng", "gzip", "pcapng.gz"])
def test_all_formats_give_the_same_rows(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other"
    if kind == "big-endian":
        write_pcap(file, packets(), order=">")
    elif kind == "nanoseconds":
        write_pcap(file, packets(), nano=True)
    elif kind.startswith("pcapng"):
        write_pcapng(file, packets())
    else:
        write_pcap(file, packets())
    if kind.endswith(("gzip", "gz")):
        file.write_bytes(gzip.compress(file.read_bytes()))
    summary(capsys, write_pcap(tmp_path / "a.pcap", packets()), "--output", tmp_path / "one")
    summary(capsys, file, "--output", tmp_path / "two")
    assert rows(tmp_path / "two") == rows(tmp_path / "one")


def test_parts_of_a_capture_are_read_in_the_order_of_their_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    caught = packets()
    parts = [write_pcap(tmp_path / name, caught[at : at + 9]) for name, at in (("c", 0), ("b", 9), ("a", 18))]
    rest = write_pcapng(tmp_path / "0", caught[27:])
    found = summary(capsys, parts[2], rest, parts[0], parts[1], "--output", tmp_path / "out")
    assert (found["rows"], found["connections"], found["cut_start"], found["cut_end"]) == (5, 1, 0, 0)


def test_captures_of_two_machines_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has one direction only."""
    caught = packets()
    from_client = [packet for packet in caught if packet.data[26:30] == bytes((10, 0, 0, 1))]
    from_broker = [packet for packet in caught if packet not in from_client]
    files = [write_pcap(tmp_path / "a", from_client), write_pcap(tmp_path / "b", from_broker)]
    found = summary(capsys, *files, "--output", tmp_path / "out")
    assert (found["rows"], found["unanswered"], found["lost"]) == (5, 0, 0)


def test_a_file_that_is_cut_off_is_read_until_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    caught = packets()
    whole = write_pcap(tmp_path / "a", caught).read_bytes()
    (tmp_path / "a").write_bytes(whole[: -len(caught[-1].data) - 16 - len(caught[-2].data) - 20])
    found = summary(capsys, tmp_path / "a", "--output", tmp_path / "out")
    assert found["files_cut"] == [str(tmp_path / "a")]
    assert (found["packets"], found["rows"], found["cut_end"]) == (len(caught) - 3, 5, 1)
    assert main(["import", "pcap", str(tmp_path / "a"), "--output", str(tmp_path / "out")]) == OK
    assert f"{tmp_path / 'a'} ends within a packet" in capsys.readouterr().out


def test_a_compressed_file_that_is_cut_off_is_read_until_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only its checksum is missing: what Python's gzip had not given away by then is lost, at most some kilobytes."""
    compressed = gzip.compress(write_pcap(tmp_path / "a", packets()).read_bytes())
    (tmp_path / "a").write_bytes(compressed[:-8])
    found = summary(capsys, tmp_path / "a", "--output", tmp_path / "out")
    assert found["files_cut"] == [str(tmp_path / "a")]
    assert found["rows"] in {4, 5}


@pytest.mark.parametrize("size", [0, 3, 24, 30])
def test_a_file_without_a_packet_has_no_request(
    size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pcap(tmp_path / "a", packets())
    file.write_bytes(file.read_bytes()[:size])
    code = main(["import", "pcap", str(file), "--output", str(tmp_path / "out")])
    said = capsys.readouterr()
    if size < 24:  # no header
        assert code == FAILED
        assert said.err.startswith(f"sluice-offline: {file} is no packet capture that libpcap can read: ")
    else:
        assert code == NEGATIVE
        assert "no request of Kafka's was found" in said.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"any text, and nothing else", "is no packet capture that libpcap can read"),
        (gzip.compress(b"any text, and nothing else"), "is no packet capture that libpcap can read"),
        (gzip.compress(bytes(100))[:20], "is no packet capture that libpcap can read"),
        (
            b"\xd4\xc3\xb2\xa1\2\0\4\0" + bytes(8) + b"\0\0\4\0\x7f\0\0\0",
            "link type 127, which cannot be read",
        ),
        (None, "No such file"),
    ],
    ids=["text", "gzipped text", "gzip cut off", "link type", "missing"],
)
def test_what_is_no_packet_capture_is_named(
    content: bytes | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a"
    if content is not None:
        file.write_bytes(content)
    good = write_pcap(tmp_path / "good", packets())
    assert main(["import", "pcap", str(good), str(file), "--output", str(tmp_path / "out")]) == FAILED
    said = capsys.readouterr().err
    assert str(file) in said
    assert problem in said
    assert not (tmp_path / "out").exists()


def test_tls_is_said_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Talk().open().say(0, hello(b"kafka.test")).close()
    file = write_pcap(tmp_path / "a", said.caught())
    assert main(["import", "pcap", str(file), "--output", str(tmp_path / "out")]) == NEGATIVE
    out = capsys.readouterr().out
    assert "1 connection of TLS: nothing of them can be read" in out
    assert "no request of Kafka's was found, and nothing was written" in out
    assert not (tmp_path / "out").exists()


WAITED = "from a packet capture, so what clients waited before they sent is not known"


@pytest.mark.parametrize(
    ("lost", "tls", "expected"),
    [
        (0, 0, f"high: {WAITED}"),
        (1, 0, f"medium: {WAITED}, 2.9 % of its bytes are missing"),  # 1448 of 50.7 kB
        (9, 0, f"low: {WAITED}, 25.7 % of its bytes are missing"),
        (0, 1, f"medium: {WAITED}, 1 of 2 connections are TLS and left out"),
        (0, 2, f"low: {WAITED}, 2 of 3 connections are TLS and left out"),
    ],
)
def test_the_file_says_what_it_cannot_know(
    lost: int, tls: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    caught = packets()
    del caught[8 : 8 + lost]  # within the first Produce
    for number in range(tls):
        caught += Talk(client=("10.0.0.7", 2000 + number)).open().say(0, hello(b"kafka.test")).caught()
    found = summary(capsys, write_pcap(tmp_path / "a", caught), "--output", tmp_path / "out")
    assert found["source"] == expected
    assert [one.source for one in read_footers(files_of([str(tmp_path / "out")]))] == [expected]


def test_the_same_capture_is_the_same_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So `ingest` finds a capture that was imported twice, and importing it again replaces it."""
    file = write_pcap(tmp_path / "a", packets())
    for _ in range(2):
        summary(capsys, file, "--output", tmp_path / "out")
    assert len(files_of([str(tmp_path / "out")])) == 1


def test_a_clock_that_was_set_back_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    caught = packets()
    later = packets(client=("10.0.0.9", 5), now_us=BEGIN_US - 3_600_000_000)
    found = summary(capsys, write_pcap(tmp_path / "a", [*caught, *later]), "--output", tmp_path / "out")
    assert found["clock_steps"] == 1
    times = [row["mono_us"] for row in rows(tmp_path / "out")]
    assert times == sorted(times)
    assert times[-1] < 1_000_000


def test_an_output_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("")
    file = write_pcap(tmp_path / "a", packets())
    assert main(["import", "pcap", str(file), "--output", str(tmp_path / "out")]) == FAILED
    assert "is a file, not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--ports", "9092,x"],
        ["--ports", "0"],
        ["--broker", "1=broker:9092"],
        ["--broker", "10.0.0.1:9092"],
        ["--broker", "x=10.0.0.1:9092"],
        ["--broker", "1=10.0.0.1"],
    ],
)
def test_arguments_are_checked(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import", "pcap", "a", "--output", str(tmp_path), *words])
    assert ended.value.code == 2
    assert words[1].split(",")[-1] in capsys.readouterr().err


def test_the_summary_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    caught = packets()
    del caught[8]
    file = write_pcap(tmp_path / "a", [*caught, caught[-5]])
    assert main(["import", "pcap", str(file), "--output", str(tmp_path / "out"), "--ports", "9092"]) == OK
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["packets", f"{len(caught) + 1}", "over", "15", "ms"] in lines
    assert ["lost", "1.4", "kB", "that", "were", "acknowledged,", "and", "have", "no", "packet"] in lines
    assert ["requests", "5"] in lines
    assert "recommend will say: medium: from a packet capture" in out


@pytest.mark.parametrize("write", [write_pcap, write_pcapng])
def test_damaged_files_end_with_a_sentence_or_a_capture(
    write: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fifty times some bytes change, mostly in the headers of the file and of its packets, or its end is missing."""
    whole = write(tmp_path / "whole", packets()).read_bytes()
    chance = random.Random(1)
    codes: Counter[int] = Counter()
    for _ in range(50):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 1, 5))):
            damaged[chance.randrange(chance.choice((200, len(whole))))] = chance.choice((0, 127, 255))
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        (tmp_path / "damaged").write_bytes(damaged)
        code = main(["import", "pcap", str(tmp_path / "damaged"), "--output", str(tmp_path / "out")])
        codes[code] += 1
        said = capsys.readouterr()
        assert (code == FAILED) == said.err.startswith("sluice-offline: ")
        if code == OK:
            check_footers([str(tmp_path / "out")])
    assert set(codes) == {OK, FAILED, NEGATIVE}
