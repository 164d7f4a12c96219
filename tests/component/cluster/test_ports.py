"""tests.cluster.ports: consecutive, low, and never given twice."""

import subprocess
import sys

from tests.cluster.ports import PORT_MAX, PORT_MIN, WIDTH, free_port, free_ports


def test_ports_are_consecutive_and_below_the_ephemeral_range() -> None:
    ports = free_ports(5)

    assert ports == list(range(ports[0], ports[0] + 5))
    assert PORT_MIN <= ports[0] <= ports[-1] < PORT_MAX < 32768


def test_port_is_not_given_twice() -> None:
    given = [port for _ in range(20) for port in free_ports(3)]

    assert len(set(given)) == len(given)


def test_processes_choose_from_different_ports() -> None:
    with child() as first, child() as second:
        ports = (free_port(), chosen_by(first), chosen_by(second))
    assert len({(port - PORT_MIN) // WIDTH for port in ports}) == 3, ports


def child() -> "subprocess.Popen[str]":
    """Start a process that prints a free port, and ends with its input."""
    program = (
        "import sys\nfrom tests.cluster import free_port\nprint(free_port(), flush=True)\nsys.stdin.read()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def chosen_by(process: "subprocess.Popen[str]") -> int:
    assert process.stdout
    return int(process.stdout.readline())
