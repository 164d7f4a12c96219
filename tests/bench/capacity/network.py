"""Hosts of their own for brokers, each with a network card of so many bytes/s in either direction.

A host is a network namespace, its card a pair of virtual Ethernet devices whose two ends are shaped by `tc` (tbf): all
connections of a broker wait in one queue, as in front of a real card. The bench, its clients and Sluice are at the
other side of it, at `HUB`. The addresses are those that RFC 2544 reserves for such measurements. TCP's congestion
control is CUBIC, whatever the machine's is.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.cluster import Host, MissingPrerequisiteError

HUB: Final = "198.18.0.1"
_NETWORK: Final = "198.18.0.0/24"
_BRIDGE: Final = "sluice-bench"
_CONTROL: Final = ("scope", "link", "congctl", "cubic")
# What `tc` sends at once, and more than all connections together may have in the queue: nothing is dropped.
_BURST: Final = "32kb"
_QUEUE: Final = "16mb"


@contextmanager
def network(count: int) -> Iterator[tuple[Host, ...]]:
    """Make so many hosts that reach each other and `HUB`; they are removed at the end.

    Raises:
        MissingPrerequisiteError: this needs root and iproute2.
    """
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        raise MissingPrerequisiteError(
            "network namespaces need root, and ip and tc (apt-get install iproute2)"
        )
    _remove(count)  # what a killed run has left
    try:
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{HUB}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        _run("ip", "route", "replace", _NETWORK, "dev", _BRIDGE, "src", HUB, *_CONTROL)
        yield tuple(_host(number) for number in range(1, count + 1))
    finally:
        _remove(count)


def shape(count: int, bytes_per_second: int) -> None:
    """Bound what each host sends, and what it receives."""
    for number in range(1, count + 1):
        for place in (("-n", _name(number)), ()):
            words = ("dev", _name(number), "root", "tbf", "rate", f"{8 * bytes_per_second}bit")
            _run("tc", *place, "qdisc", "replace", *words, "burst", _BURST, "limit", _QUEUE)


def _host(number: int) -> Host:
    name, address = _name(number), f"198.18.0.{10 + number}"
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", name)
    _run("ip", "link", "set", name, "master", _BRIDGE, "up")
    _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", name)
    for device in ("lo", name):
        _run("ip", "-n", name, "link", "set", device, "up")
    _run("ip", "-n", name, "route", "replace", _NETWORK, "dev", name, "src", address, *_CONTROL)
    return Host(address, ("ip", "netns", "exec", name))


def _name(number: int) -> str:
    return f"sluice-host{number}"


def _remove(count: int) -> None:
    for number in range(1, count + 1):
        _run("ip", "link", "delete", _name(number), check=False)
        _run("ip", "netns", "delete", _name(number), check=False)
    _run("ip", "link", "delete", _BRIDGE, check=False)


def _run(*words: str, check: bool = True) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise ChildProcessError(f"{' '.join(words)}: {done.stderr}")
