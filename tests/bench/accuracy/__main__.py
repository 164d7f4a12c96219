"""`python -m tests.bench.accuracy`: Kafka's own quotas, `kip13` and `schedule`, in one run.

Writes docs/benchmarks.md and the picture beside it.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench import machine, report
from tests.bench.accuracy import clients, judge
from tests.bench.accuracy import judge as plot
from tests.bench.accuracy.judge import KAFKA, Options, parse_options
from tests.bench.accuracy.relay import read_events
from tests.bench.lanes import NODE, sluice_command, wait_for
from tests.bench.process import tail
from tests.cluster import (
    HOST,
    Cluster,
    ClusterOptions,
    Listener,
    MissingPrerequisiteError,
    free_ports,
    processes,
    tools,
)

LISTENER: Final = "COUNTED"
PRODUCED: Final = "accuracy-produce"
CONSUMED: Final = "accuracy-consume"
_GRACE_SECONDS: Final = 60


class Bench:
    """The broker behind the counting relay, and the runs against it."""

    def __init__(self, options: Options, cluster: Cluster, relay_port: int, directory: Path) -> None:
        self.options = options
        self.cluster = cluster
        self.directory = directory
        self.events = directory / "events.txt"
        self._relay_bootstrap = f"{HOST}:{relay_port}"
        self._relay_port = relay_port

    @contextmanager
    def relay(self) -> Iterator[None]:
        """Run the relay; the broker's listener COUNTED is advertised as the relay."""
        command = [sys.executable, "-m", "tests.bench.accuracy.relay", "--port", str(self._relay_port)]
        command += [
            "--broker-port",
            str(self.cluster.address(NODE, LISTENER)[1]),
            "--events",
            str(self.events),
        ]
        with self.process(command, "relay", self._relay_port):
            yield

    @contextmanager
    def policy(self, name: str) -> Iterator[str]:
        """Make a policy hold, and give clients their bootstrap server."""
        if name == KAFKA:
            quota = self.options.quota
            for direction, connections in self.runs():
                client_id = client_name(name, direction, connections)
                rates = {"producer_byte_rate": quota, "consumer_byte_rate": quota}
                tools.set_client_quota(self.cluster.bootstrap(), client_id, **rates)
            yield self._relay_bootstrap
            return
        first = free_ports(3)[0]
        config = self.directory / f"{name}.toml"
        config.write_text(self.configuration(name, first))
        with self.process(sluice_command(config), name, first + 1 + NODE):
            yield f"{HOST}:{first}"

    def runs(self) -> Iterator[tuple[str, int]]:
        """Give every direction with every count of connections."""
        for direction in self.options.directions:
            for connections in self.options.connections:
                yield direction, connections

    def run(self, policy: str, direction: str, connections: int, bootstrap: str) -> judge.Figures:
        """Let the clients run, and judge what passed. Each run has a client id of its own, so each begins fresh."""
        client_id = client_name(policy, direction, connections)
        topic = PRODUCED if direction == "produce" else CONSUMED
        command = [sys.executable, "-m", "tests.bench.accuracy.clients", direction, "--bootstrap", bootstrap]
        command += ["--topic", topic, "--client-id", client_id, "--connections", str(connections)]
        command += [
            "--seconds",
            str(self.options.seconds + 1),
        ]  # the first second begins after the first byte
        log = self.directory / f"{client_id}.log"
        with log.open("wb") as sink:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=sink,
                timeout=self.options.seconds + _GRACE_SECONDS,
                check=False,
            )
        if done.returncode != 0:
            raise ChildProcessError(f"the clients of {client_id} failed: {tail(log)}")
        tally = json.loads(done.stdout)
        return judge.judge(
            (policy, direction, connections), read_events(self.events, client_id), tally, self.options
        )

    def configuration(self, policy: str, first: int) -> str:
        quotas = self.directory / "quotas.toml"
        quotas.write_text(
            f'[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = {self.options.quota}\n'
            f"consumer_byte_rate = {self.options.quota}\n"
        )
        return (
            f'[cluster]\nbootstrap = "{self._relay_bootstrap}"\n\n[[listeners]]\nname = "clients"\nbind = "{HOST}"\n'
            f"bootstrap_port = {first}\nfirst_broker_port = {first + 1}\nbroker_id_max = {NODE}\n\n"
            f'[quotas]\nfile = "{quotas}"\npolicy = "{policy}"\n\n[admin]\nbind = ""\n'
        )

    @contextmanager
    def process(self, command: list[str], name: str, port: int) -> Iterator[None]:
        """Run a process that listens on a port."""
        log = self.directory / f"{name}.log"
        child = processes.start(command, log=log)
        try:
            wait_for(port, child, log)
            yield
        finally:
            processes.end(child)


def client_name(policy: str, direction: str, connections: int) -> str:
    """Return the client id of one run."""
    return f"{policy}-{direction}-{connections}"


def measure(options: Options, console: Console) -> list[judge.Figures]:
    """Run everything that was asked for."""
    relay_port = free_ports(1)[0]
    wanted = ClusterOptions(nodes=1, listeners=(Listener(LISTENER, advertised=((HOST, relay_port),)),))
    found: list[judge.Figures] = []
    with tempfile.TemporaryDirectory(prefix="sluice-accuracy-") as name, Cluster(wanted) as cluster:
        bench = Bench(options, cluster, relay_port, Path(name))
        for topic in (PRODUCED, CONSUMED):
            tools.create_topic(cluster.bootstrap(), topic)
        if "consume" in options.directions:
            # Twice what one connection may read, and room for the burst: no connection comes to the end.
            clients.fill(cluster.bootstrap(), CONSUMED, 2 * options.quota * (options.seconds + 15))
        with bench.relay():
            for policy in options.policies:
                with bench.policy(policy) as bootstrap:
                    for direction, connections in bench.runs():
                        began = time.monotonic()
                        found.append(bench.run(policy, direction, connections, bootstrap))
                        _say(console, found[-1], time.monotonic() - began)
    return found


def _say(console: Console, figures: judge.Figures, seconds: float) -> None:
    console.print(
        f"[dim]·[/dim] {figures.policy} {figures.direction} {figures.connections}: first {figures.first:.2f},"
        f" steady {figures.steady:.3f}, largest {figures.largest:.2f}, Jain {figures.jain:.3f},"
        f" timeouts {figures.timeouts}, errors {figures.errors} ({seconds:.0f} s)",
        highlight=False,
        soft_wrap=True,
    )


def main() -> int:
    """Measure, print, write."""
    options = parse_options()
    console = report.screen()
    processes.exit_on_signals()
    runs = len(options.policies) * len(options.directions) * len(options.connections)
    console.print(
        f"{runs} runs of {options.seconds} s: about {runs * (options.seconds + 3) / 60:.0f} minutes"
    )
    try:
        found = measure(options, console)
    except MissingPrerequisiteError as problem:
        console.print(f"[red]{problem}[/red]")
        return 1
    outcome = judge.report(found, options)
    facts = machine.describe()
    report.show(console, facts, outcome)
    if options.write:
        picture = options.document.with_name("accuracy.svg")
        picture.write_text(plot.svg(found))
        report.write(
            options.document, "accuracy", facts, outcome, f"\n![Rate in every second]({picture.name})\n"
        )
        console.print(f"written to {options.document} and {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
