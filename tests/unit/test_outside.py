"""`make outside`: which checkout it is, and what differs."""

from pathlib import Path

import pytest

from tests.outside import tls
from tests.outside.__main__ import DIRECT, THROUGH, differences, main, table
from tests.outside.projects import PROJECTS

COLUMNS = {
    DIRECT: {"a": "pass", "b": "fail", "c": "pass", "d": "skip"},
    THROUGH: {"a": "fail", "b": "fail", "c": "pass"},
}


def test_other_outcomes_and_absent_tests_differ() -> None:
    assert differences(COLUMNS) == ["a", "d"]


def test_table_names_each_difference_and_each_common_failure() -> None:
    lines = table("kafka-go", COLUMNS, ["a", "c", "d"]).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["pass", "2", "1"],
        ["fail", "1", "2"],
        ["skip", "1", "0"],
    ]
    assert lines[4:] == [
        "differs: a: pass, fail",
        "differs: d: skip, absent",
        "differed at first: c",
        "fails at both: b",
    ]


def test_checkout_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module github.com/segmentio/kafka-go\n")
    assert [name for name, project in PROJECTS.items() if project.is_at(tmp_path)] == ["kafka-go"]


def test_other_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "is no checkout of franz-go, librdkafka, kafka-go, rskafka" in capsys.readouterr().err


def test_each_address_leads_to_a_name_of_the_one_port() -> None:
    names = {("127.0.1.1", 9093): "kafka.test", ("127.0.0.1", 9092): "b1.kafka.test"}
    server = "127.0.0.1:9093 ssl verify required ca-file ca.pem"
    written = (
        f"listen {bound}\n    bind {bound}\n    server sluice {server} sni str({name}) verifyhost {name}\n"
        for bound, name in (("127.0.1.1:9093", "kafka.test"), ("127.0.0.1:9092", "b1.kafka.test"))
    )
    assert tls.configuration(9093, names, Path("ca.pem")).endswith("".join(written))
