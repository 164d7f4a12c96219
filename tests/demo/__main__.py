"""`python -m tests.demo`: bring everything up, show it, judge it, take it down.

The policy is `schedule` and the scope `cluster`: one budget for each client over all three brokers.
The first seconds are not judged: clients are starting, and a quota allows a burst.
The exit code is 1 when a client is off by more than 5 %, or saw an error.
"""

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.bench import report
from tests.bench.process import Child, module_process
from tests.cluster import Cluster, ClusterOptions
from tests.demo.plan import DIRECTIONS, FETCH, PLANS, PRODUCE, TOLERANCE, ClientPlan, Outcome, topic_of
from tests.support.proxy_process import SluiceProcess, SluiceSettings

_RECENT: Final = 7  # readings, each half a second: what the live table calls "now"


@dataclass(frozen=True, slots=True)
class Reading:
    """One moment: bytes so far by direction, and the seconds that the connection has waited that waits longest."""

    monotonic: float
    moved: dict[str, int]
    waited: dict[str, float]

    def rate_until(self, last: "Reading", direction: str) -> float:
        """Return the bytes/s from here to a later reading."""
        seconds = last.monotonic - self.monotonic
        return (last.moved[direction] - self.moved[direction]) / seconds if seconds > 0 else 0.0

    def waited_until(self, last: "Reading", direction: str) -> float:
        """Return the part of the time from here to a later reading that was waited."""
        seconds = last.monotonic - self.monotonic
        return min(1.0, (last.waited[direction] - self.waited[direction]) / seconds) if seconds > 0 else 0.0


@dataclass
class DemoClient:
    """One running client and what it has reported.

    Attributes:
        marked: where measuring began: what came before (start, the burst that a quota allows) does not count.
        trouble: what went wrong at the client, or nothing.
    """

    plan: ClientPlan
    child: Child
    recent: deque[Reading] = field(default_factory=lambda: deque(maxlen=_RECENT))
    marked: Reading | None = None
    trouble: str = ""

    def update(self, sluice: SluiceProcess) -> None:
        """Ask the client for its counters, and the proxy for its waits."""
        try:
            report = self.child.ask()
        except (ChildProcessError, BrokenPipeError) as error:
            self.trouble = f"ended by itself: {error}"
            return
        if report["errors"]:
            self.trouble = f"saw {report['errors']} errors"
        name = "sluice_client_longest_wait_seconds_total"
        waited = {
            direction: sluice.metric(name, client_id=self.plan.client_id, type=direction)
            for direction in DIRECTIONS
        }
        moved = {PRODUCE: int(report["sent"]), FETCH: int(report["received"])}
        self.recent.append(Reading(report["monotonic"], moved, waited))

    def rate_now(self, direction: str) -> float:
        """Return the rate of the last seconds."""
        return self.recent[0].rate_until(self.recent[-1], direction) if self.recent else 0.0

    def waited_now(self, direction: str) -> float:
        """Return the part of the last seconds that the connection waited which waited longest."""
        return self.recent[0].waited_until(self.recent[-1], direction) if self.recent else 0.0

    def outcome(self, direction: str) -> Outcome:
        """Return the rate, and the part of the time that was waited, since it was marked."""
        if self.marked is None:
            return Outcome(self.plan, direction, 0.0, 0.0)
        first, last = self.marked, self.recent[-1]
        rate, waited = first.rate_until(last, direction), first.waited_until(last, direction)
        return Outcome(self.plan, direction, rate, waited)


_BAR_WIDTH: Final = 10
_OVER: Final = 1.05


def live_table(clients: Sequence[DemoClient], title: str) -> Table:
    """Draw what each client does now beside what it may do; 80 columns are enough."""
    table = Table(title=title, title_justify="left")
    table.add_column("client id", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("quota\nMB/s", "now\nMB/s", "now /\nquota", "waits, of\nits time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for client in clients:
        for name, direction in zip(
            (client.plan.client_id, f"[dim]{client.plan.says}"), DIRECTIONS, strict=True
        ):
            quota, now = client.plan.quota(direction), client.rate_now(direction)
            table.add_row(
                name,
                direction,
                f"{quota / 1e6:.2f}",
                f"{now / 1e6:.2f}",
                f"{now / quota:.2f}",
                f"{client.waited_now(direction):.0%}",
                _bar(now / quota),
                end_section=direction == DIRECTIONS[-1],
            )
    return table


def _bar(share: float) -> str:
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    colour = "green" if share <= _OVER else "red"
    return f"[{colour}]{'█' * filled}[/]{'░' * (_BAR_WIDTH - filled)}"


_PARTITIONS: Final = 6
_SETTLE_SECONDS: Final = 10.0
_REFRESH_SECONDS: Final = 0.5


def main(console: Console) -> bool:
    """Return whether every rate is right, and no client saw an error."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=35.0, help="how long it is shown")
    seconds = max(parser.parse_args().seconds, _SETTLE_SECONDS + 2.0)
    console.print("Starting three Kafka brokers (about 15 s) …")
    with (
        tempfile.TemporaryDirectory(prefix="sluice-demo-") as name,
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
        with SluiceProcess.configured(settings, Path(name)) as sluice, ExitStack() as stack:
            clients = [_started(plan, sluice.bootstrap, Path(name), stack) for plan in PLANS]
            _watch(console, sluice, clients, seconds)
            return _judge(console, clients)


def _started(plan: ClientPlan, bootstrap: str, directory: Path, stack: ExitStack) -> DemoClient:
    words = ["--bootstrap", bootstrap, "--client-id", plan.client_id, "--topic", topic_of(plan)]
    words += [] if plan.offered is None else ["--offered", str(plan.offered)]
    log = directory / f"{plan.client_id}.log"
    return DemoClient(plan, stack.enter_context(module_process("tests.demo.client", *words, log=log)))


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic_of(plan), num_partitions=_PARTITIONS, replication_factor=1) for plan in PLANS]
    for created in admin.create_topics(topics).values():
        created.result(30)


def _watch(console: Console, sluice: SluiceProcess, clients: Sequence[DemoClient], seconds: float) -> None:
    began = time.monotonic()
    settled = False
    with Live(console=console, auto_refresh=False) as live:
        while (elapsed := time.monotonic() - began) < seconds:
            for client in clients:
                client.update(sluice)
            if not settled and elapsed >= _SETTLE_SECONDS:
                settled = True
                for client in clients:
                    client.marked = client.recent[-1] if client.recent else None
            doing = "measuring" if settled else "settling"
            title = f"sluice at {sluice.bootstrap} · {elapsed:.0f} of {seconds:.0f} s · {doing}"
            live.update(live_table(clients, title), refresh=True)
            time.sleep(_REFRESH_SECONDS)


def _judge(console: Console, clients: Sequence[DemoClient]) -> bool:
    outcomes = [client.outcome(direction) for client in clients for direction in DIRECTIONS]
    lines = [("green" if outcome.ok else "bold red", outcome.line()) for outcome in outcomes]
    troubles = [client for client in clients if client.trouble]
    lines += [("bold red", f"NOT ok: {client.plan.client_id} {client.trouble}") for client in troubles]
    for style, line in ("", ""), *lines:
        console.print(line, style=style, highlight=False, soft_wrap=True)
    right = all(outcome.ok for outcome in outcomes) and not troubles
    console.print(f"within {TOLERANCE:.0%} of what is right: {'yes' if right else 'NO'}")
    return right


if __name__ == "__main__":
    sys.exit(report.run(main))
