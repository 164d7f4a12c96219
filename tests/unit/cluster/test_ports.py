"""tests.cluster.ports: consecutive, low, and never given twice."""

from tests.cluster.ports import PORT_MAX, PORT_MIN, free_ports


def test_ports_are_consecutive_and_below_the_ephemeral_range() -> None:
    ports = free_ports(5)

    assert ports == list(range(ports[0], ports[0] + 5))
    assert PORT_MIN <= ports[0] <= ports[-1] < PORT_MAX < 32768


def test_port_is_not_given_twice() -> None:
    given = [port for _ in range(20) for port in free_ports(3)]

    assert len(set(given)) == len(given)
