"""Kafka's file of a reassignment, refused in the words of Kafka's tool."""

from pathlib import Path

import pytest

from proxy.commands.reassign_plan import read_reassignment
from proxy.system.errors import ConfigError


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def entry(fields: str) -> str:
    return f'{{"version":1,"partitions":[{fields}]}}'


def test_file_is_read_with_and_without_optional_parts(tmp_path: Path) -> None:
    text = (
        '{"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]},'
        '{"topic":"u","partition":3,"replicas":[2],"comment":"ignored"}]}'
    )
    assert read_reassignment(written(tmp_path / "f", text)) == {("t", 0): (1, 2), ("u", 3): (2,)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not valid JSON: "),
        ("[]", "must be an object with partitions"),
        ('{"version":2,"partitions":[]}', "Not supported version field value 2"),
        ("{}", "Partition reassignment list cannot be empty"),
        ('{"partitions":[]}', "Partition reassignment list cannot be empty"),
        ('{"partitions":{}}', "partitions: must be a list"),
        (entry('{"topic":"t","partition":0}'), r"partitions\[0\]: No such field exists: `replicas`"),
        (entry('{"topic":"t","partition":0,"replicas":[]}'), "Partition replica list cannot be empty"),
        (entry('{"topic":"t","partition":0,"replicas":["1"]}'), "replicas: must be a whole number"),
        (entry('{"topic":7,"partition":0,"replicas":[1]}'), "topic: must be a string"),
        (entry('{"topic":"t","partition":true,"replicas":[1]}'), "partition: must be a whole number"),
        (
            entry('{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any"]}'),
            r"Size of replicas list \[1, 2\] is different from size of log dirs list",
        ),
        (
            entry('{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}'),
            "Partition reassignment contains duplicate topic partitions: t-0",
        ),
        (
            entry(
                '{"topic":"t","partition":0,"replicas":[1,1]},{"topic":"t","partition":1,"replicas":[2,3,2]}'
            ),
            (
                "may not contain duplicate entries: t-0 contains multiple entries for 1. "
                "t-1 contains multiple entries for 2"
            ),
        ),
    ],
)
def test_malformed_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_reassignment(written(tmp_path / "f", text))
