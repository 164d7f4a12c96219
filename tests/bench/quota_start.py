"""How long `sluice serve` takes to start with many quota entities: `python -m tests.bench.quota_start`.

From a quotas file, without brokers, and from a topic on one broker; until `/readyz` responds with 200. Printed are
seconds by the clock, CPU seconds of all of its processes, and the peak of their resident memory. The broker and other
processes of the machine take their part of the cores, so the load average is printed, and CPU seconds are compared.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench.process import cpu_seconds, family, status_kib
from tests.cluster import Cluster, ClusterOptions
from tests.support import record_flood
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.scripted_broker import ScriptedBroker
from tests.support.topic_quotas import Topic

_ENTITIES: Final = 1_000_000
_SECONDS_MAX: Final = 300.0
_RECORDS_PER_SECOND: Final = 50_000


def main() -> int:
    """Measure each start, and print a line for it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quota_start", description=__doc__)
    parser.add_argument("--entities", type=int, default=_ENTITIES, metavar="N", help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--only", choices=("file", "topic"), help="measure one of them")
    options = parser.parse_args()
    print(f"{options.entities:,} entities, {options.workers} worker(s)", flush=True)
    with tempfile.TemporaryDirectory(prefix="sluice-start-") as name:
        if options.only != "topic":
            _from_file(Path(name), options.entities, options.workers)
        if options.only != "file":
            _from_topic(Path(name), options.entities, options.workers)
    return 0


def _from_file(directory: Path, entities: int, workers: int) -> None:
    tables = (
        f'[[quota]]\nclient_id = "client-{number}"\nproducer_byte_rate = {1_000_000 + number}\n\n'
        for number in range(entities)
    )
    with ScriptedBroker() as broker:
        settings = SluiceSettings(
            broker.address, quotas_text="".join(tables), sections={"process": {"workers": workers}}
        )
        config = settings.write(directory)
        began = time.monotonic()
        process = SluiceProcess(["--config", str(config)], settings.ports, directory)
        try:
            _measure("file", process, began)
        finally:
            process.kill()


def _from_topic(directory: Path, entities: int, workers: int) -> None:
    with Cluster(ClusterOptions(nodes=1)) as cluster, Topic(cluster.bootstrap(), directory) as topic:
        topic.kill(topic.start("first"))  # it has created the topic
        with record_flood.begin(topic.bootstrap, topic.name, entities, _RECORDS_PER_SECOND) as flood:
            assert flood.wait() == 0, "all records are written"
        sections = {"process": {"workers": workers}}
        began = time.monotonic()
        _measure("topic", topic.start("second", ready=False, sections=sections), began)


def _measure(what: str, process: SluiceProcess, began: float) -> None:
    process.wait_ready(_SECONDS_MAX)
    seconds, cpu = time.monotonic() - began, cpu_seconds(process.process_id)
    peak = sum(status_kib(one, "VmHWM") for one in family(process.process_id)) / 1024
    load = os.getloadavg()[0]
    print(f"{what}: {seconds:.1f} s, CPU {cpu:.1f} s, peak {peak:.0f} MiB, load {load:.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
