"""`sluice reassign plan`: shows the steps of a reassignment, batch by batch, and changes nothing (KIP-435).

It reads partitions, live brokers and replica sizes from the cluster, and assumes that every step succeeds. It refuses
what `kafka-reassign-partitions --execute`, Kafka's controller or Sluice would refuse, with their messages. Exit code 3
if a partition would not reach its target in the current state: a broker is dead, or another reassignment is under way.
"""

import argparse
import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

from commandline import amounts
from commandline.arguments import add_format, print_result
from commandline.program import NEGATIVE, OK
from kafka_client import Security
from proxy.commands.servers import add_brokers, brokers_of
from proxy.config import Address, load, read_text, schema
from proxy.config.schema import read_value
from proxy.system.errors import ConfigError, ServerError, SluiceError
from quotas.reassignment.batch import BatchLimits, Plan, plan_moves
from quotas.reassignment.step import Move, Step, TopicPartition

if TYPE_CHECKING:
    from proxy.control.reassign.cluster import ClusterState

_TEXT: Final = "Print the steps of a reassignment, batch by batch, without doing anything."
_COUNT_MAX: Final = 1_000_000
_SHOWN_MAX: Final = 50
_LIMITS: Final = (
    ("parallel_replica_count", "replicas of one partition that move at once"),
    ("parallel_partition_count", "partitions that move at once"),
    ("parallel_leader_movements", "of these that may change their leader"),
    ("max_concurrent_replica_movements", "replicas that move at once, in all"),
    ("max_movements_in_per_broker", "replicas that one broker receives at once"),
    ("max_movements_out_per_broker", "replicas that one broker sends at once"),
)

Sizes = Mapping[TopicPartition, int]
Targets = dict[tuple[str, int], tuple[int, ...]]


class ClusterWithSizes(NamedTuple):
    """The cluster's state, and the sizes in bytes of the partitions to reassign."""

    state: "ClusterState"
    sizes: Sizes


def add_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the arguments of `sluice reassign plan`."""
    command = commands.add_parser("plan", help=_TEXT, description=_TEXT)
    command.set_defaults(command=run)
    add_file_arguments(command)
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="take the limits from Sluice's configuration"
    )
    limits = BatchLimits()
    for name, text in _LIMITS:
        default = getattr(limits, name)
        command.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="NUMBER",
            help=f"{text} (default: as in --config; {'no limit' if default is None else default} without it)",
        )
    add_format(command)


def run(options: argparse.Namespace) -> int:
    """Print the steps in which Sluice would carry out a reassignment; returns the exit code."""
    limits = _limits(options)
    targets = read_reassignment(options.reassignment_json_file)
    servers, security = brokers_of(options)
    state, sizes = asyncio.run(read_cluster(servers, security, targets))
    check_targets(targets, state)
    moves = [Move(*key, state.partitions[key].replicas, target) for key, target in targets.items()]
    plan = plan_moves(moves, state.partitions, state.live, limits, state.cordoned)
    print_result(options.format, describe(plan, limits, sizes), table(plan, sizes))
    return NEGATIVE if plan.waiting else OK


def _limits(options: argparse.Namespace) -> BatchLimits:
    limits = BatchLimits() if options.config is None else load(options.config, os.environ).reassignment.limits
    overrides = {}
    for name, _ in _LIMITS:
        value = getattr(options, name)
        if value is not None:
            overrides[name] = read_value(
                f"--{name.replace('_', '-')}", Annotated[int, schema.number(1, _COUNT_MAX)], value
            )
    return replace(limits, **overrides)


async def read_cluster(
    servers: Sequence[Address], security: Security, targets: Mapping[TopicPartition, Sequence[int]]
) -> ClusterWithSizes:
    """Read the cluster's state and the sizes of these partitions.

    Raises:
        ServerError: the cluster does not respond.
    """
    from proxy.control.cluster import BrokerClient, BrokerMap, Poller
    from proxy.control.reassign.cluster import Cluster, ClusterError
    from proxy.system.stats import Stats

    context = security.tls
    tls = None if context is None else lambda: context
    client = BrokerClient(BrokerMap(tuple(servers), Stats()), security.login, tls)
    poller = Poller(client, None, follow=True)
    await poller.poll()
    if poller.problem:
        raise ServerError(poller.problem)
    cluster = Cluster(client)
    try:
        wanted = {broker for target in targets.values() for broker in target}
        state = await cluster.read_state([topic for topic, _ in targets], wanted, registered=True)
        leaders = {key: state.partitions[key].leader for key in targets if key in state.partitions}
        held = await cluster.sizes(sorted({leader for leader in leaders.values() if leader >= 0}))
    except ClusterError as error:
        raise ServerError(str(error)) from error
    finally:
        cluster.close()
    sizes = {key: held.get(leader, {}).get(key, 0) for key, leader in leaders.items()}
    return ClusterWithSizes(state, sizes)


def check_targets(targets: Mapping[TopicPartition, tuple[int, ...]], state: "ClusterState") -> None:
    """Check the targets as Kafka's tool, its controller and Sluice do.

    Raises:
        SluiceError: one of them would refuse the targets; the message and the order of checks are theirs.
    """
    from protocol.messages.reassignments import AlterRequest
    from proxy.control.reassign.planning import Handling, validate

    unknown = sorted({broker for target in targets.values() for broker in target} - state.registered)
    if unknown:
        raise SluiceError(f"Unknown broker id {unknown[0]}")
    missing = [f"{topic}-{number}" for topic, number in sorted(set(targets) - set(state.partitions))]
    if missing:
        raise SluiceError(f"Unable to find partition: {', '.join(missing[:_SHOWN_MAX])}")
    verdicts = validate(AlterRequest(0, True, list(targets.items())), {}, state, len(targets), "")
    refused = [
        f"{'-'.join(map(str, verdict.key))}: {verdict.outcome.error_message}"
        for verdict in verdicts
        if verdict.kind is Handling.REFUSED
    ]
    if refused:
        raise SluiceError(f"Error reassigning partition(s): {'; '.join(refused[:_SHOWN_MAX])}")


def describe(plan: Plan, limits: BatchLimits, sizes: Sizes) -> dict[str, object]:
    """Return the plan as a JSON document."""
    steps = [step for batch in plan.batches for step in batch]
    return {
        "version": 1,
        "limits": asdict(limits),
        "batches": [
            {
                "batch": number,
                **_totals(batch, sizes),
                "steps": [{**asdict(step), "bytes": _bytes(step, sizes)} for step in batch],
            }
            for number, batch in enumerate(plan.batches, start=1)
        ],
        "steps": len(steps),
        **_totals(steps, sizes),
        "replicas_added_at_once_max": _replicas_at_once_max(plan),
        "waiting": [
            {"topic": topic, "partition": number, "reason": waiting.reason}
            for (topic, number), waiting in sorted(plan.waiting.items())
        ],
    }


def _totals(steps: Sequence[Step], sizes: Sizes) -> dict[str, int]:
    return {
        "replicas_added": sum(len(step.adds) for step in steps),
        "leaders_moved": sum(step.moves_leader for step in steps),
        "bytes": sum(_bytes(step, sizes) for step in steps),
    }


def _bytes(step: Step, sizes: Sizes) -> int:
    return len(step.adds) * sizes.get(step.key, 0)


def _replicas_at_once_max(plan: Plan) -> int:
    return max((sum(len(step.adds) for step in batch) for batch in plan.batches), default=0)


def table(plan: Plan, sizes: Sizes) -> Iterator[str]:
    """Yield the lines of the plan for people."""
    for number, batch in enumerate(plan.batches, start=1):
        sums = _totals(batch, sizes)
        added, size = amounts.count(sums["replicas_added"], "replica"), amounts.size(sums["bytes"])
        yield f"batch {number}: {amounts.count(len(batch), 'partition')}, {added} added, {size}"
        rows = [("partition", "replicas", "add", "drop", "leader", "bytes")]
        rows += [_row(step, sizes) for step in batch]
        width = max(len(row[-1]) for row in rows)
        yield from (
            f"  {line}" for line in amounts.aligned([(*row[:-1], row[-1].rjust(width)) for row in rows])
        )
        yield ""
    steps = [step for batch in plan.batches for step in batch]
    sums = _totals(steps, sizes)
    batches = "1 batch" if len(plan.batches) == 1 else f"{len(plan.batches)} batches"
    yield (
        f"in all: {amounts.count(len(steps), 'step')} in {batches}, "
        f"{amounts.count(sums['replicas_added'], 'replica')} added, at most {_replicas_at_once_max(plan)} at once, "
        f"{amounts.count(sums['leaders_moved'], 'leader movement')}, {amounts.size(sums['bytes'])}"
    )
    waiting = sorted(plan.waiting.items())
    for (topic, partition), why in waiting[:_SHOWN_MAX]:
        yield f"warning: {topic}-{partition} would not reach its target: {why.reason}"
    if len(waiting) > _SHOWN_MAX:
        yield f"warning: and {len(waiting) - _SHOWN_MAX} more"


def _row(step: Step, sizes: Sizes) -> tuple[str, str, str, str, str, str]:
    leader = str(step.leader)
    if step.moves_leader:  # "any": no election follows, so the first replica in sync leads
        leader += f" -> {'any' if step.elects is None else step.elects}"
    return (
        f"{step.topic}-{step.partition}",
        f"{_list(step.current)} -> {_list(step.replicas)}",
        _list(step.adds),
        _list(step.drops),
        leader,
        amounts.size(_bytes(step, sizes)) if step.adds else "-",
    )


def _list(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


# ----------------------------------------------------------------------------------------------------
# Kafka's reassignment file, validated as in `kafka-reassign-partitions --execute`, with the same messages.
#
#     {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any",
#     "any"]}]}
#
# `version` and `log_dirs` are optional; other fields are ignored, as in Kafka. Log directories are validated and then
# dropped: Sluice does not choose a broker's disks.


_VERSION: Final = 1
_Item = TypeVar("_Item")


def add_file_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the commands that check a reassignment file against a cluster."""
    add_brokers(command)
    command.add_argument(
        "--reassignment-json-file",
        required=True,
        type=Path,
        metavar="FILE",
        help="the reassignment, as kafka-reassign-partitions takes it",
    )


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
    brokers = tuple(_whole(f"{path}.replicas", broker) for broker in replicas)
    return (topic, _whole(f"{path}.partition", partition)), brokers


def _field(path: str, entry: Mapping[str, object], name: str) -> object:
    if name not in entry:
        raise ConfigError(path, f"No such field exists: `{name}`")
    return entry[name]


def _whole(path: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(path, "must be a whole number", value)
    return value


def _duplicates(items: Iterable[_Item]) -> list[_Item]:
    return [item for item, times in Counter(items).items() if times > 1]
