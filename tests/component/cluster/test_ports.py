"""tests.cluster.ports: consecutive, low, and never given twice."""

import pytest

from tests.cluster.ports import PORT_MAX, PORT_MIN, free_ports


def test_ports_are_consecutive_and_below_the_ephemeral_range() -> None:
    ports = free_ports(5)

    assert ports == list(range(ports[0], ports[0] + 5))
    assert PORT_MIN <= ports[0] <= ports[-1] < PORT_MAX < 32768


def test_port_is_not_given_twice() -> None:
    given = [port for _ in range(20) for port in free_ports(3)]

    assert len(set(given)) == len(given)


def test_processes_of_one_run_choose_from_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert 24000 <= free_ports()[0] < 28000  # the second third of 20000 to 32000
