"""Kafka's reassignment file, validated as in `kafka-reassign-partitions --execute`, with the same messages.

    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}

`version` and `log_dirs` are optional; other fields are ignored, as in Kafka. Log directories are validated and then
dropped: Sluice does not choose a broker's disks.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from proxy.config import read_text
from proxy.system.errors import ConfigError

Targets = dict[tuple[str, int], tuple[int, ...]]
_VERSION: Final = 1
_Item = TypeVar("_Item")


def add_file_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the commands that check a reassignment file against a cluster."""
    command.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="the brokers")
    command.add_argument(
        "--reassignment-json-file",
        required=True,
        type=Path,
        metavar="FILE",
        help="the reassignment, as kafka-reassign-partitions takes it",
    )
    command.add_argument("--command-config", type=Path, metavar="FILE", help="a Java client's properties")


def read_reassignment(path: Path) -> Targets:
    """Read a reassignment file; returns the target replicas by (topic, partition).

    Raises:
        ConfigError: Kafka's tool would refuse the file.
    """
    try:
        content = json.loads(read_text(path))
    except RecursionError:
        raise ConfigError(str(path), "is not valid JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(str(path), f"is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(str(path), "must be an object with partitions", content)
    version = content.get("version", _VERSION)
    if version != _VERSION:
        raise ConfigError(str(path), f"Not supported version field value {version}")
    entries = content.get("partitions", [])
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: partitions", "must be a list", entries)
    if not entries:
        raise ConfigError(str(path), "Partition reassignment list cannot be empty")
    read = [_entry(f"{path}: partitions[{index}]", entry) for index, entry in enumerate(entries)]
    if any(not replicas for _, replicas in read):
        raise ConfigError(str(path), "Partition replica list cannot be empty")
    twice = _duplicates(partition for partition, _ in read)
    if twice:
        names = ",".join(f"{topic}-{number}" for topic, number in twice)
        raise ConfigError(str(path), f"Partition reassignment contains duplicate topic partitions: {names}")
    duplicate_replicas = {partition: _duplicates(replicas) for partition, replicas in read}
    problems = [
        f"{topic}-{number} contains multiple entries for {','.join(map(str, brokers))}"
        for (topic, number), brokers in duplicate_replicas.items()
        if brokers
    ]
    if problems:
        message = f"Partition replica lists may not contain duplicate entries: {'. '.join(problems)}"
        raise ConfigError(str(path), message)
    return dict(read)


def _entry(path: str, entry: object) -> tuple[tuple[str, int], tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise ConfigError(path, "must be an object with topic, partition and replicas", entry)
    topic, partition = _field(path, entry, "topic"), _field(path, entry, "partition")
    if not isinstance(topic, str):
        raise ConfigError(f"{path}.topic", "must be a string", topic)
    replicas = _field(path, entry, "replicas")
    if not isinstance(replicas, list):
        raise ConfigError(f"{path}.replicas", "must be a list of broker ids", replicas)
    directories = entry.get("log_dirs", ["any"] * len(replicas))
    if not isinstance(directories, list) or len(directories) != len(replicas):
        raise ConfigError(
            path,
            f"Size of replicas list {replicas} is different from size of log dirs list {directories} "
            f"for partition {topic}-{partition}",
        )
    brokers = tuple(_number(f"{path}.replicas", broker) for broker in replicas)
    return (topic, _number(f"{path}.partition", partition)), brokers


def _field(path: str, entry: Mapping[str, object], name: str) -> object:
    if name not in entry:
        raise ConfigError(path, f"No such field exists: `{name}`")
    return entry[name]


def _number(path: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(path, "must be a whole number", value)
    return value


def _duplicates(items: Iterable[_Item]) -> list[_Item]:
    return [item for item, times in Counter(items).items() if times > 1]
