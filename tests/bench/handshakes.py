"""`python -m tests.bench.handshakes [--before DIRECTORY]`: the CPU of a client's TLS handshake, by port and by name.

Two processes of this checkout, one with a port for each broker and one with `broker_host`, and with `--before` a third
of another checkout, with ports. A child process makes full handshakes with each of them in turn (P-256, TLS 1.3),
which it closes at once; the CPU of the proxy is read around them. No broker runs: a connection is opened at the first
request. The ratio is that of rounds next to each other. Never part of `make test`; nothing else may run.
"""

import argparse
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.process import cpu_nanoseconds
from tests.cluster import HOST, processes
from tests.support.gateways import accepts
from tests.support.one_port import Site, broker_name
from tests.support.proxy_process import ROOT, SluiceSettings
from tests.support.waiting import until

_NOWHERE: Final = f"{HOST}:1"  # brokers that do not run
_BROKER: Final = 1


@dataclass(frozen=True, slots=True)
class Lane:
    """One proxy: its process, the port of broker 1, and the name that a client's hello has."""

    name: str
    child: "subprocess.Popen[bytes]"
    port: int
    server_name: str

    def handshakes_ns(self, client: "subprocess.Popen[str]", count: int) -> float:
        """Have the child make so many handshakes; return the CPU of the proxy for each, in ns."""
        assert client.stdin is not None
        assert client.stdout is not None
        before = cpu_nanoseconds(self.child.pid)
        client.stdin.write(json.dumps([self.port, self.server_name, count]) + "\n")
        client.stdin.flush()
        assert client.stdout.readline().strip() == "done", "the child has made them"
        return (cpu_nanoseconds(self.child.pid) - before) / count


def play(authority: str) -> None:
    """The child: make the handshakes that each line asks for."""
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    for line in sys.stdin:
        port, name, count = json.loads(line)
        for _ in range(count):
            with (
                socket.create_connection((HOST, port)) as plain,
                context.wrap_socket(plain, server_hostname=name) as secured,
            ):
                assert not secured.session_reused
        print("done", flush=True)


def _start(
    name: str, root: Path, directory: Path, settings: SluiceSettings, port: int, server_name: str
) -> Lane:
    directory.mkdir()
    state = directory / "state"
    state.mkdir()
    (state / "brokers.json").write_text(json.dumps({str(_BROKER): [HOST, 1]}))
    words = [sys.executable, "-m", "proxy", "serve", "--config", str(settings.write(directory))]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    child = processes.start(words, log=directory / "log", cwd=root, env=environment)
    until(lambda: accepts(port), f"{name} accepts", 30)
    return Lane(name, child, port, server_name)


def _lanes(site: Site, directory: Path, before: Path | None) -> list[Lane]:
    quiet: Mapping[str, Mapping[str, object]] = {"log": {"level": "error"}}
    ports = {"first_broker_port": None, "broker_id_max": None, "broker_host": None}
    lanes: list[Lane] = []
    for name, root in (("a port for each broker, before", before), ("a port for each broker", ROOT)):
        if root is not None:
            made = site.settings(_NOWHERE, sections=_state(quiet, directory / name))
            listener = {
                **made.listener,
                **ports,
                "first_broker_port": made.ports.first_broker,
                "broker_id_max": 9,
            }
            settings = SluiceSettings(made.bootstrap, made.ports, listener=listener, sections=made.sections)
            port = made.ports.first_broker + _BROKER
            lanes.append(_start(name, root, directory / name, settings, port, broker_name(_BROKER)))
    name = "one port, the name chooses"
    settings = site.settings(_NOWHERE, sections=_state(quiet, directory / name))
    lanes.append(
        _start(name, ROOT, directory / name, settings, settings.ports.bootstrap, broker_name(_BROKER))
    )
    return lanes


def _state(more: Mapping[str, Mapping[str, object]], directory: Path) -> dict[str, Mapping[str, object]]:
    return {**more, "state": {"directory": str(directory / "state")}}


def _table(lanes: Sequence[Lane], figures: Mapping[str, Sequence[float]]) -> str:
    first = figures[lanes[0].name]
    rows = ["| listener | CPU of a handshake | ratio (quartiles) |", "|---|--:|--:|"]
    for lane in lanes:
        own = figures[lane.name]
        low, middle, high = statistics.quantiles(
            [one / other for one, other in zip(own, first, strict=True)], n=4
        )
        ratio = f"{middle:.3f} ({low:.3f} … {high:.3f})"
        rows.append(f"| {lane.name} | {statistics.median(own) / 1000:.0f} µs | {ratio} |")
    return "\n".join(rows)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout, whose handshakes are the first lane")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--handshakes", type=int, default=400, help="in a round, with each proxy")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        play(options.play)
        return
    with tempfile.TemporaryDirectory() as place:
        site = Site.make(Path(place))
        lanes = _lanes(site, Path(place), options.before)
        words = [sys.executable, "-m", "tests.bench.handshakes", "--play", str(site.authority.cert_file)]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as client:
            for lane in lanes:  # the first ones are slower
                lane.handshakes_ns(client, options.handshakes)
            figures: dict[str, list[float]] = {lane.name: [] for lane in lanes}
            for number in range(options.rounds):
                for lane in lanes if number % 2 else lanes[::-1]:
                    figures[lane.name].append(lane.handshakes_ns(client, options.handshakes))
            assert client.stdin is not None
            client.stdin.close()
        for lane in lanes:
            processes.kill(lane.child)
        print(
            f"{options.rounds} rounds of {options.handshakes} handshakes with each\n\n{_table(lanes, figures)}"
        )


if __name__ == "__main__":
    main()
