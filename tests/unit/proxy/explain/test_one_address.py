"""A client's report for the connections of one address."""

import pytest

from proxy.explain import parts
from proxy.explain.report import ClientReport, ConnectionReport, ConnectionsSum, from_address, of_address
from proxy.explain.rules import Rule


def connection(peer: str, muted: float, client: float, idle: float) -> ConnectionReport:
    times = [0.0] * len(parts.NAMES)
    times[parts.MUTED], times[parts.CLIENT], times[parts.IDLE] = muted, client, idle
    return ConnectionReport(peer, 1, 60_000, tuple(times))


ALL = (
    connection("10.0.0.4:50001", 10_000, 0, 50_000),
    connection("10.0.0.4:50002", 20_000, 5_000, 35_000),
    connection("10.0.0.41:50003", 30_000, 0, 30_000),
    connection("::1:50004", 0, 0, 60_000),
)
PRODUCE, REQUEST = Rule("produce", "producer_byte_rate"), Rule("request", "request_percentage")


def whole() -> ClientReport:
    times = tuple(map(sum, zip(*(one.times for one in ALL), strict=True)))
    waits = ((PRODUCE, 48_000.0), (REQUEST, 12_000.0))
    return ClientReport("", "web", ALL, len(ALL), times, waits, 100, 300.0, unread_ms=9_000.0)


def report_of(address: str) -> ClientReport:
    sums = ConnectionsSum()
    for one in from_address(iter(ALL), address):
        sums.add(one)
    return of_address(whole()._replace(connections=sums.worst()), sums, address)


@pytest.mark.parametrize(
    ("address", "ports"),
    [("", "1234"), ("10.0.0.4", "12"), ("10.0.0.41", "3"), ("::1", "4"), ("10.0.0", ""), ("1", "")],
)
def test_connections_of_an_address_are_chosen_by_all_of_it(address: str, ports: str) -> None:
    assert "".join(one.peer[-1] for one in from_address(iter(ALL), address)) == ports


def test_times_are_those_of_its_connections() -> None:
    found = report_of("10.0.0.4")
    assert found.address == "10.0.0.4"
    assert found.connections_total == 2
    assert found.times[parts.MUTED] == 30_000
    assert found.times[parts.CLIENT] == found.unread_ms == 5_000  # not the 9,000 of the whole client
    assert sum(found.times) == 120_000


def test_waits_are_given_in_proportion_to_the_time_waited() -> None:
    # 30 of 60 s were waited there: 24 of 48 s for bytes, 6 of 12 s for request time
    assert report_of("10.0.0.4").waits == ((PRODUCE, 24_000), (REQUEST, 6_000))


def test_address_that_does_not_wait_has_no_rule() -> None:
    assert report_of("::1").waits == ()
