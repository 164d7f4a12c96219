"""`sluice reassign plan`: shows the steps of a reassignment, batch by batch, and changes nothing (KIP-435).

It reads partitions, live brokers and replica sizes from the cluster, and assumes that every step succeeds. It refuses
what `kafka-reassign-partitions --execute`, Kafka's controller or Sluice would refuse, with their messages. Exit code 3
if a partition would not reach its target in the current state: a broker is dead, or another reassignment is under way.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from commandline import amounts
from commandline.arguments import add_format
from commandline.program import NEGATIVE, OK
from proxy.commands.reassign_file import add_file_arguments, read_reassignment
from proxy.config import Address, load
from proxy.config.readers import addresses, count
from proxy.system.errors import ServerError, SluiceError
from quotas.reassignment.batch import BatchLimits, Plan, plan_moves
from quotas.reassignment.step import Move, Step, TopicPartition

if TYPE_CHECKING:
    from proxy.commands.command_config import Security
    from proxy.reassign.cluster import ClusterState


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


class ClusterWithSizes(NamedTuple):
    """The cluster's state, and the bytes of the partitions that are to move."""

    state: "ClusterState"
    sizes: Sizes


def add_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its arguments."""
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
    """Run the command; return its exit code."""
    # Imported late: `--version` and `check` need no sockets.
    from proxy.commands.command_config import Security, read_command_config

    limits = _limits(options)
    targets = read_reassignment(options.reassignment_json_file)
    security = read_command_config(options.command_config) if options.command_config else Security()
    servers = addresses("--bootstrap-server", options.bootstrap_server)
    state, sizes = asyncio.run(read_cluster(servers, security, targets))
    check_targets(targets, state)
    moves = [Move(*key, state.partitions[key].replicas, target) for key, target in targets.items()]
    plan = plan_moves(moves, state.partitions, state.live, limits)
    if options.format == "json":
        print(json.dumps(describe(plan, limits, sizes), indent=2))
    else:
        print("\n".join(table(plan, sizes)))
    return NEGATIVE if plan.waiting else OK


def _limits(options: argparse.Namespace) -> BatchLimits:
    limits = BatchLimits() if options.config is None else load(options.config, os.environ).reassignment.limits
    overrides = {}
    for name, _ in _LIMITS:
        value = getattr(options, name)
        if value is not None:
            overrides[name] = count(1, _COUNT_MAX)(f"--{name.replace('_', '-')}", value)
    return replace(limits, **overrides)


async def read_cluster(
    servers: Sequence[Address], security: "Security", targets: Mapping[TopicPartition, object]
) -> ClusterWithSizes:
    """Read the cluster's state and the sizes of these partitions.

    Raises:
        ServerError: the cluster does not respond.
    """
    from proxy.cluster import BrokerClient, BrokerMap, Poller
    from proxy.reassign.cluster import Cluster, ClusterError
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
        state = await cluster.read_state([topic for topic, _ in targets], registered=True)
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
    from proxy.reassign.validation import Handling, validate

    unknown = sorted({broker for target in targets.values() for broker in target} - state.registered)
    if unknown:
        raise SluiceError(f"Unknown broker id {unknown[0]}")
    missing = [
        f"{topic}-{number}" for topic, number in sorted(targets) if (topic, number) not in state.partitions
    ]
    if missing:
        raise SluiceError(f"Unable to find partition: {', '.join(missing[:_SHOWN_MAX])}")
    verdicts = validate(AlterRequest(0, True, list(targets.items())), {}, state, len(targets), "")
    refused = [
        f"{topic}-{number}: {verdict.outcome.error_message}"
        for verdict in verdicts
        for topic, number in [verdict.key]
        if verdict.kind is Handling.REFUSED
    ]
    if refused:
        raise SluiceError(f"Error reassigning partition(s): {'; '.join(refused[:_SHOWN_MAX])}")


def describe(plan: Plan, limits: BatchLimits, sizes: Sizes) -> dict[str, object]:
    """Return the report as a JSON document."""
    steps = [step for batch in plan.batches for step in batch]
    return {
        "version": 1,
        "limits": asdict(limits),
        "batches": [
            {
                "batch": number,
                **_totals(batch, sizes),
                "steps": [_step_document(step, sizes) for step in batch],
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


def _step_document(step: Step, sizes: Sizes) -> dict[str, object]:
    return {**asdict(step), "bytes": _bytes(step, sizes)}


def _bytes(step: Step, sizes: Sizes) -> int:
    return len(step.adds) * sizes.get(step.key, 0)


def _replicas_at_once_max(plan: Plan) -> int:
    return max((sum(len(step.adds) for step in batch) for batch in plan.batches), default=0)


def table(plan: Plan, sizes: Sizes) -> Iterator[str]:
    """Yield the lines of the report as text."""
    for number, batch in enumerate(plan.batches, start=1):
        sums = _totals(batch, sizes)
        added, size = _number(sums["replicas_added"], "replica"), amounts.size(sums["bytes"])
        yield f"batch {number}: {_number(len(batch), 'partition')}, {added} added, {size}"
        rows = [("partition", "replicas", "add", "drop", "leader", "bytes")]
        rows += [_row(step, sizes) for step in batch]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            yield "  ".join(("", *cells, row[-1].rjust(widths[-1])))
        yield ""
    steps = [step for batch in plan.batches for step in batch]
    sums = _totals(steps, sizes)
    yield (
        f"in all: {_number(len(steps), 'step')} in {_number(len(plan.batches), 'batch', 'batches')}, "
        f"{_number(sums['replicas_added'], 'replica')} added, at most {_replicas_at_once_max(plan)} at once, "
        f"{_number(sums['leaders_moved'], 'leader movement')}, {amounts.size(sums['bytes'])}"
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


def _number(amount: int, one: str, many: str = "") -> str:
    return f"{amount} {one}" if amount == 1 else f"{amount} {many or one + 's'}"
