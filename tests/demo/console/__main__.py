"""`python -m tests.demo.console`: bring the cluster up, print the page's address, stay until Ctrl-C or `--seconds`.

With `--screenshots DIR` a Chromium opens the pages after a minute and leaves pictures of them.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cluster import HOST, Cluster, ClusterOptions, MissingPrerequisiteError, processes
from tests.demo.console.clients import (
    QUOTAS,
    SLOW_BROKER,
    TOPIC_QUOTA,
    TOPICS,
    TROUBLES,
    Place,
    running,
    slow_broker,
)
from tests.support.console_process import ConsoleProcess
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings
from tests.support.raw_topics import describe

_PORT: Final = 9190
_SETTLE_SECONDS: Final = 75.0  # until the last minute has no beginning in it


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="make console-demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long it runs (default: until Ctrl-C)")
    parser.add_argument("--port", type=int, default=_PORT, help="the page's port; 0 for a free one")
    parser.add_argument("--answers", action="store_true", help="say what is wrong with each client")
    parser.add_argument(
        "--screenshots", type=Path, metavar="DIR", help="leave pictures there, after a minute"
    )
    options = parser.parse_args()
    processes.exit_on_signals()
    try:
        with cluster_with_troubles(options.port) as console:
            _say(console, answers=options.answers)
            began = time.monotonic()
            if options.screenshots is not None:
                time.sleep(_SETTLE_SECONDS)
                _take_screenshots(console, options.screenshots)
            while options.seconds is None or time.monotonic() - began < options.seconds:
                time.sleep(0.5)
    except MissingPrerequisiteError as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


@contextmanager
def cluster_with_troubles(port: int = 0) -> Iterator[ConsoleProcess]:
    """Three brokers, Sluice, the clients, and the console."""
    print("Starting three Kafka brokers (about 15 s) …", flush=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-demo-")))
        cluster = stack.enter_context(Cluster(ClusterOptions(nodes=3)))
        _create_topics(cluster.bootstrap())
        settings = SluiceSettings(
            cluster.bootstrap(), quotas={"policy": "schedule", "scope": "cluster"}, client_quotas=QUOTAS
        )
        print("Starting sluice serve, seven clients, and sluice console …", flush=True)
        sluice = stack.enter_context(SluiceProcess.configured(settings, directory))
        _set_topic_quota(sluice)
        stores = describe(cluster, "stores")
        uplink = HOST, sluice.ports.first_broker + TOPICS["stores"]
        stack.enter_context(slow_broker(cluster.process_id(SLOW_BROKER)))
        stack.enter_context(running(Place(sluice.bootstrap, uplink, stores)))
        admins = [f"{HOST}:{sluice.ports.admin}"]
        yield stack.enter_context(ConsoleProcess(admins, directory=directory, port=port))


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(name, num_partitions=1, replica_assignment=[[broker]]) for name, broker in TOPICS.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)


def _set_topic_quota(sluice: SluiceProcess) -> None:
    topic, limit = TOPIC_QUOTA
    words = ("--topic", topic, f"producer_byte_rate={limit}")
    line = [sys.executable, "-m", "proxy", "quotas", "set", "--bootstrap-server", sluice.bootstrap, *words]
    subprocess.run(line, cwd=ROOT, check=True, timeout=60, capture_output=True)


def _say(console: ConsoleProcess, *, answers: bool) -> None:
    print(f"\nThe console: {console.url}\n")
    print(f"Five clients have a trouble: {', '.join(TROUBLES)}. Which one has which? (Ctrl-C ends the demo.)")
    for name, (trouble, _) in TROUBLES.items() if answers else ():
        print(f"  {name}: {trouble}")
    sys.stdout.flush()


def _take_screenshots(console: ConsoleProcess, directory: Path) -> None:
    """Leave pictures: the first screen, light and dark and narrow, and each client."""
    from tests.support.chromium import chromium, picture

    directory.mkdir(parents=True, exist_ok=True)
    clients = {
        f"console-{name}": f"client?{urlencode({'client_id': name, 'user': 'ANONYMOUS'})}"
        for name in TROUBLES
    }
    with chromium() as light:
        for name, path in {"console": "", **clients}.items():
            picture(light, console.url + path, directory / f"{name}.png")
    with chromium(dark=True) as dark:
        picture(dark, console.url, directory / "console-dark.png")
    with chromium(width=600) as narrow:
        picture(narrow, console.url, directory / "console-narrow.png")
    print(f"pictures: {directory}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
