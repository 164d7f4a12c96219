"""`make soak`: hours of honest and hostile clients through one proxy, with restarts and reloads all the while.

    python -m tests.soak --minutes 120

Three real brokers that are restarted one after the other, one proxy whose quotas and policy change every minute,
producers with idempotence and a consumer group, under quotas and without, and hostile clients of seven kinds beside
them. Every ten seconds the proxy is sampled. At the end every acknowledged record must be there once and in order,
resident memory must be flat (2 % between a window after the warm-up and the last one), no socket may be left, and the
proxy must end with 0. The samples, a plot and a summary are left in build/soak.

Exit code 1 when a bar is missed, 2 when the run could not be made.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tests.bench import machine, report
from tests.bench.process import cpu_nanoseconds, descriptors, raise_descriptor_limit, resident_kib, sockets
from tests.bench.report import Outcome
from tests.cluster import Cluster, ClusterOptions, MissingPrerequisiteError, processes
from tests.soak import scene
from tests.soak.judge import Found, Key, Log, Sample, Verdict, outcome, plot, verdict, write
from tests.support.proxy_process import ROOT, SluiceProcess, SluiceSettings
from tests.support.raw_topics import create

_BUILD: Final = ROOT / "build" / "soak"
_SAMPLE_SECONDS: Final = 10.0
_RELOAD_SECONDS: Final = 60.0
_RESTART_SECONDS: Final = 240.0
_CALM_SECONDS: Final = 30.0
# A broker that starts takes connections before it serves them. In Kafka's default of 50 places hostile clients leave no
# room, and the kernel makes an honest one wait for up to half a minute: that would be measured in place of a proxy.
_BROKER: Final = {"socket.listen.backlog.size": "1024"}
_TOPIC_CONFIGS: Final = {"min.insync.replicas": "2"}


@dataclass(slots=True)
class Sampler:
    """Samples the proxy from a thread of its own, so that a broker that takes long to start costs no sample."""

    sluice: SluiceProcess
    clients: scene.Clients
    log: Log
    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    stopping: threading.Event = field(default_factory=threading.Event)
    problem: str = ""
    _cpu: float = 0.0
    _at: float = 0.0

    def run(self) -> None:
        """Sample until told to stop, or until the proxy is gone."""
        while not self.stopping.wait(_SAMPLE_SECONDS):
            try:
                self.log.add(self.sample())
            except (OSError, ValueError, KeyError) as error:
                self.problem = f"no sample: {error!r}"
                if not self.sluice.alive():
                    return

    def sample(self) -> Sample:
        """Look at everything once."""
        pid, now = self.sluice.process_id, time.monotonic()
        cpu = cpu_nanoseconds(pid) / 1e9
        share = 100 * (cpu - self._cpu) / (now - self._at) if self._at else 0.0
        self._cpu, self._at = cpu, now
        ping = self.clients.pinger.ask().get("ping", {})
        counts = self.clients.honest.ask()
        sample = Sample(
            seconds=round(now - self.began, 1),
            resident_kib=resident_kib(pid),
            descriptors=descriptors(pid),
            sockets=sockets(pid),
            cpu_percent=round(share, 1),
            ping_p50_ms=round(ping.get("p50", 0.0), 2),
            ping_p99_ms=round(ping.get("p99", 0.0), 2),
            ping_max_ms=round(ping.get("max", 0.0), 2),
            connections=int(self.sluice.metric("sluice_connections")),
            connection_errors=int(self.sluice.metric("sluice_connection_errors_total")),
            throttled_channels=int(
                self.sluice.metric("sluice_channels_muted") + self.sluice.metric("sluice_channels_held")
            ),
            acknowledged=counts["acknowledged"],
            read=counts["read"],
            reloads=int(self.sluice.metric("sluice_reloads_total")),
        )
        self.say(
            f"{sample.seconds / 60:6.1f} min  {sample.resident_kib / 1024:6.1f} MiB  {sample.descriptors} fds  "
            f"{sample.cpu_percent:.0f} % CPU  p99 {sample.ping_p99_ms:.1f} ms  {sample.acknowledged} records  "
            f"{sample.connection_errors} ended"
        )
        return sample


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, judge, write, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--restart-seconds", type=float, default=_RESTART_SECONDS)
    parser.add_argument("--reload-seconds", type=float, default=_RELOAD_SECONDS)
    parser.add_argument(
        "--direct",
        action="store_true",
        help="producers and consumers go round the proxy: what clients do by themselves",
    )
    parser.add_argument("--directory", type=Path, default=_BUILD, help="where the results are left")
    given = parser.parse_args(arguments)
    processes.exit_on_signals()
    raise_descriptor_limit()
    given.directory.mkdir(parents=True, exist_ok=True)
    console = report.screen()
    try:
        found = soak(given, console)
    except MissingPrerequisiteError as problem:
        console.print(f"[red]{problem}[/red]")
        return 2
    facts = [*machine.describe("three brokers, three replicas"), ("minutes", f"{given.minutes:g}")]
    facts.append(("honest clients", "direct" if given.direct else "through Sluice"))
    judged: Outcome = outcome(found)
    report.show(console, facts, judged)
    drawn = plot(found.samples, found.events, given.directory / "soak.svg")
    write(given.directory / "soak.md", facts, judged, plotted=drawn)
    console.print(f"left in {given.directory}: soak.md, samples.csv" + (", soak.svg" if drawn else ""))
    return 0 if all(bar.passed for bar in judged.bars) else 1


def soak(given: argparse.Namespace, console: Console) -> Found:
    """Bring everything up, let it run, take it down, and return what was found."""
    console.print("Starting three Kafka brokers (about 15 s) …")
    with (
        tempfile.TemporaryDirectory(prefix="sluice-soak-") as name,
        Cluster(ClusterOptions(nodes=3, properties=_BROKER)) as cluster,
    ):
        create(cluster, scene.TOPIC, partitions=scene.PARTITIONS, replication=3, configs=_TOPIC_CONFIGS)
        directory = Path(name)
        limits = {"frame_seconds": 10, "idle_seconds": 60}
        settings = SluiceSettings(cluster.bootstrap(), sections={"limits": limits})
        configuration = scene.Configuration(settings, directory)
        arguments = ["--config", str(configuration.write())]
        sluice = SluiceProcess(arguments, settings.ports, directory).wait_ready()
        try:
            return _run(given, console, cluster, sluice, configuration)
        finally:
            if sluice.alive():
                sluice.stop()
            (given.directory / "sluice.log").write_text(sluice.log(1 << 20))


def _run(
    given: argparse.Namespace,
    console: Console,
    cluster: Cluster,
    sluice: SluiceProcess,
    configuration: scene.Configuration,
) -> Found:
    def say(text: str) -> None:
        console.print(text, end="\r" if console.is_terminal else "\n", highlight=False)

    found = Found(sockets_before=sockets(sluice.process_id))
    log = Log(given.directory / "samples.csv")
    bootstrap = cluster.bootstrap() if given.direct else sluice.bootstrap
    found.samples = log.samples
    with ExitStack() as hostile, scene.clients(sluice, bootstrap, given.directory, hostile) as clients:
        sampler = Sampler(sluice, clients, log, say)
        thread = threading.Thread(target=sampler.run, name="sampler", daemon=True)
        thread.start()
        _happen(given, sampler, scene.Rolling(cluster), configuration, found)
        sampler.stopping.set()
        thread.join()
        log.close()
        found.problem = sampler.problem
        found.alive = sluice.alive()
        found.hostile = clients.hostile.ask()
        hostile.close()
        console.print("\nThe hostile clients are gone; all that was sent is read …")
        ended = clients.honest.ask("stop")
    found.honest = {name: count for name, count in ended.items() if isinstance(count, int)}
    found.verdict = _verified(cluster, ended)
    counted = sluice.connection_errors() if sluice.alive() else {}
    found.errors_by_cause = {cause: int(count) for cause, count in counted.items()}
    found.refused_reloads = (
        int(sluice.metric("sluice_reloads_total", result="refused")) if sluice.alive() else 0
    )
    found.sockets_after = _calm(sluice, found.sockets_before)
    found.exit_code = sluice.stop()
    return found


def _happen(
    given: argparse.Namespace,
    sampler: Sampler,
    rolling: scene.Rolling,
    configuration: scene.Configuration,
    found: Found,
) -> None:
    """Restart brokers and change the configuration until the time is over or the proxy is gone."""
    began, end = sampler.began, sampler.began + given.minutes * 60
    reload_at, restart_at = (
        began + given.reload_seconds,
        began + min(given.restart_seconds, given.minutes * 20),
    )
    while (now := time.monotonic()) < end and sampler.sluice.alive():
        if now >= reload_at:
            configuration.change(sampler.sluice)
            found.events.append((now - began, "reload"))
            reload_at += given.reload_seconds
        if now >= restart_at and end - now > _CALM_SECONDS:
            found.events.append((now - began, "broker"))
            sampler.say(rolling.next())
            restart_at = max(restart_at + given.restart_seconds, time.monotonic() + _CALM_SECONDS)
        time.sleep(0.2)


def _verified(cluster: Cluster, ended: dict[str, Any]) -> Verdict:
    sent: dict[Key, int] = {(one, partition): count for one, partition, count in ended["sent by"]}
    failed: dict[Key, list[int]] = {
        (one, partition): numbers for one, partition, numbers in ended["failed by"]
    }
    return verdict(sent, failed, scene.read_all(cluster))


def _calm(sluice: SluiceProcess, before: int) -> int:
    """Return the sockets that are left when the last client has gone for a while."""
    deadline = time.monotonic() + _CALM_SECONDS
    while sluice.alive() and time.monotonic() < deadline:
        left = sockets(sluice.process_id)
        if left <= before:
            return left
        time.sleep(0.5)
    return sockets(sluice.process_id) if sluice.alive() else -1


if __name__ == "__main__":
    sys.exit(main())
