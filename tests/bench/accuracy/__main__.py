"""`python -m tests.bench.accuracy`: Kafka's own quotas, `kip13` and `schedule`, in one run.

Writes docs/benchmarks.md and the picture beside it.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tests.bench import machine, report
from tests.bench.accuracy import judge
from tests.bench.accuracy.judge import KAFKA, Options
from tests.bench.accuracy.relay import read_events, relayed
from tests.bench.clients import complaints, fill
from tests.bench.lanes import NODE
from tests.bench.options import DOCUMENT
from tests.bench.process import module_process
from tests.cluster import HOST, Cluster, ClusterOptions, Listener, free_port, tools
from tests.support.proxy_process import SluiceProcess, SluiceSettings

LISTENER: Final = "COUNTED"
REQUEST_BYTES: Final = 1_000_000
_OVERHEAD_BYTES: Final = 200
"""Header, topic and record batch around the one value of a Produce request."""
_FILL_RECORD_BYTES: Final = 10_000


class Bench:
    """The broker behind the counting relay, and the runs against it."""

    def __init__(self, options: Options, cluster: Cluster, bootstrap: str, directory: Path) -> None:
        self.options = options
        self.cluster = cluster
        self.bootstrap = bootstrap
        self.directory = directory

    @contextmanager
    def sluice(
        self, name: str, policy: str, sections: Mapping[str, Mapping[str, object]] | None = None, **more: Any
    ) -> Iterator[str]:
        """Start a proxy before the relay, and give its bootstrap server; `more` are fields of its settings."""
        directory = self.directory / name
        directory.mkdir()
        rates = {"producer_byte_rate": self.options.quota, "consumer_byte_rate": self.options.quota}
        fields: dict[str, Any] = {"client_quotas": {"<default>": rates}, **more}
        settings = SluiceSettings(
            self.bootstrap, quotas={"policy": policy, "scope": None}, sections=sections or {}, **fields
        )
        with SluiceProcess.configured(settings, directory) as sluice:
            yield sluice.bootstrap

    def run(self, run: tuple[str, str, int], bootstraps: Sequence[str], client_id: str = "") -> judge.Figures:
        """Let the clients run (policy, direction, connections), as many at each server, and judge what passed.

        Each run has a client id of its own, so each begins fresh.
        """
        policy, direction, connections = run
        client_id = client_id or client_name(*run)
        if policy == KAFKA:
            rates = {"producer_byte_rate": self.options.quota, "consumer_byte_rate": self.options.quota}
            tools.set_client_quota(self.cluster.bootstrap(), client_id, **rates)
        size = REQUEST_BYTES - (_OVERHEAD_BYTES if direction == "produce" else 0)
        words = ["--topic", direction, "--client-id", client_id, "--bytes", size]
        words += ["--connections", connections // len(bootstraps)]
        with ExitStack() as stack:
            children = []
            for number, bootstrap in enumerate(bootstraps):
                more = [direction, *words, "--bootstrap", bootstrap]
                log = self.directory / f"{client_id}-{number}.log"
                children.append(stack.enter_context(module_process("tests.bench.clients", *more, log=log)))
            for child in children:
                child.say("go")
            time.sleep(self.options.seconds + 1)  # the first second begins after the first byte
            tally = complaints(children)
        return judge.judge(run, read_events(self.directory / "events.txt", client_id), tally, self.options)


@contextmanager
def counted(options: Options) -> Iterator[Bench]:
    """Start a broker whose listener COUNTED is advertised as the relay, and the relay; its topics are filled."""
    port = free_port()
    wanted = ClusterOptions(nodes=1, listeners=(Listener(LISTENER, advertised=((HOST, port),)),))
    with tempfile.TemporaryDirectory(prefix="sluice-accuracy-") as name, Cluster(wanted) as cluster:
        for topic in options.directions:
            tools.create_topic(cluster.bootstrap(), topic)
        if "consume" in options.directions:
            # Twice what one connection may read, and room for the burst: no connection comes to the end.
            size = 2 * options.quota * (options.seconds + 15)
            fill(cluster.bootstrap(), "consume", size // _FILL_RECORD_BYTES, _FILL_RECORD_BYTES)
        with relayed(port, cluster.address(NODE, LISTENER)[1], Path(name) / "events.txt"):
            yield Bench(options, cluster, f"{HOST}:{port}", Path(name))


def client_name(policy: str, direction: str, connections: int) -> str:
    """Return the client id of one run."""
    return f"{policy}-{direction}-{connections}"


def main(console: Console) -> bool:
    """Measure, print, write."""
    options = judge.parse_options()
    runs = [(direction, count) for direction in options.directions for count in options.connections]
    minutes = len(options.policies) * len(runs) * (options.seconds + 3) / 60
    console.print(f"{len(options.policies) * len(runs)} runs of {options.seconds} s: {minutes:.0f} minutes")
    found: list[judge.Figures] = []
    with counted(options) as bench:
        for policy in options.policies:
            with ExitStack() as stack:
                bootstrap = bench.bootstrap
                if policy != KAFKA:
                    bootstrap = stack.enter_context(bench.sluice(policy, policy))
                for direction, connections in runs:
                    found.append(bench.run((policy, direction, connections), [bootstrap]))
                    console.print(f"[dim]·[/dim] {found[-1]}", highlight=False, soft_wrap=True)
    extra = ""
    if options.write:
        picture = DOCUMENT.with_name("accuracy.svg")
        judge.draw(found, picture)
        extra = f"\n![Rate in every second]({picture.name})\n"
    block = "accuracy" if options.write else ""
    report.publish(console, machine.describe(), judge.report(found, options), block, extra)
    return True


if __name__ == "__main__":
    sys.exit(report.run(main))
