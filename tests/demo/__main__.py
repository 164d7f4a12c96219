"""`python -m tests.demo`: bring everything up, show it, judge it, take it down.

The policy is `schedule` and the scope `cluster`: one budget for each client over all three brokers.
The first seconds are not judged: clients are starting, and a quota allows a burst.
The exit code is 1 when a client is off by more than 5 %, or saw an error.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.live import Live

from tests.cluster import Cluster, ClusterOptions, MissingPrerequisiteError, processes
from tests.demo.measure import DemoClient, topic_of
from tests.demo.plan import DIRECTIONS, PLANS, TOLERANCE, Outcome
from tests.demo.table import live_table
from tests.support.proxy_process import SluiceProcess, SluiceSettings

_PARTITIONS: Final = 6
_SETTLE_SECONDS: Final = 10.0
_REFRESH_SECONDS: Final = 0.5


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=35.0, help="how long it is shown")
    seconds = max(parser.parse_args().seconds, _SETTLE_SECONDS + 2.0)
    processes.exit_on_signals()
    console = Console()
    try:
        return _demo(console, seconds)
    except MissingPrerequisiteError as error:
        console.print(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _demo(console: Console, seconds: float) -> int:
    console.print("Starting three Kafka brokers (about 15 s) …")
    with (
        tempfile.TemporaryDirectory(prefix="sluice-demo-") as directory,
        Cluster(ClusterOptions(nodes=3)) as cluster,
    ):
        _create_topics(cluster.bootstrap())
        settings = SluiceSettings(
            cluster.bootstrap(),
            # A short burst: brokers that have just started stall, and what a client makes up for afterwards would
            # be a twentieth of all that it moves in so short a time.
            quotas={"policy": "schedule", "scope": "cluster", "burst_seconds": 0.2},
            client_quotas={
                plan.client_id: {
                    "producer_byte_rate": plan.produce_quota,
                    "consumer_byte_rate": plan.fetch_quota,
                }
                for plan in PLANS
            },
        )
        console.print("Starting sluice serve, policy schedule, scope cluster, and three clients …")
        with SluiceProcess.configured(settings, Path(directory)) as sluice:
            outcomes, troubles = _watch(console, sluice, Path(directory), seconds)
    return _judge(console, outcomes, troubles)


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic_of(plan), num_partitions=_PARTITIONS, replication_factor=1) for plan in PLANS]
    for created in admin.create_topics(topics).values():
        created.result(30)


def _watch(
    console: Console, sluice: SluiceProcess, directory: Path, seconds: float
) -> tuple[list[Outcome], list[str]]:
    clients = [DemoClient.start(plan, sluice.bootstrap, directory) for plan in PLANS]
    began = time.monotonic()
    settled = False
    try:
        with Live(console=console, auto_refresh=False) as live:
            while (elapsed := time.monotonic() - began) < seconds:
                for client in clients:
                    client.update(sluice)
                if not settled and elapsed >= _SETTLE_SECONDS:
                    settled = True
                    for client in clients:
                        client.mark()
                doing = "measuring" if settled else "settling"
                title = f"sluice at {sluice.bootstrap} · {elapsed:.0f} of {seconds:.0f} s · {doing}"
                live.update(live_table(clients, title), refresh=True)
                time.sleep(_REFRESH_SECONDS)
        return (
            [client.outcome(direction) for client in clients for direction in DIRECTIONS],
            [f"{client.plan.client_id} {client.trouble}" for client in clients if client.trouble],
        )
    finally:
        for client in clients:
            processes.end(client.child)


def _judge(console: Console, outcomes: Sequence[Outcome], troubles: Sequence[str]) -> int:
    console.print()
    for outcome in outcomes:
        console.print(
            outcome.line(), style="green" if outcome.ok else "bold red", highlight=False, soft_wrap=True
        )
    for trouble in troubles:
        console.print(f"NOT ok: {trouble}", style="bold red", highlight=False, soft_wrap=True)
    right = all(outcome.ok for outcome in outcomes) and not troubles
    console.print(f"within {TOLERANCE:.0%} of what is right: {'yes' if right else 'NO'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
