"""What `make failover` calls the time without records, and how its table is written."""

import pytest

from tests.interop.failover.__main__ import cell, table
from tests.interop.failover.measure import Case, Fault, Outcome, Role, gaps
from tests.interop.families import FAMILIES
from tests.support.gateways import BALANCED, LISTED, configuration

FAULT_MS = 1000


def case(role: Role = Role.PRODUCER) -> Case:
    return Case("Java 3.6.2", FAMILIES[0], role, LISTED, Fault.KILLED)


@pytest.mark.parametrize(
    ("times_ms", "now_ms", "seconds"),
    [
        pytest.param(
            {0: [0, 900, 1010, 1050]}, 1060, 0.11, id="gap that ended before the fault"
        ),  # 1010 - 900
        pytest.param({0: [980, 1480, 1500]}, 1510, 0.5, id="since the last record before it"),  # 1480 - 980
        pytest.param({0: [990, 1010, 1990], 1: [990, 1900, 1990]}, 2000, 0.98, id="slowest"),  # 1990 - 1010
        pytest.param({0: [990, 1010, 4990], 1: [950]}, 5000, 4.05, id="none since the fault"),  # 5000 - 950
    ],
)
def test_longest_gap_since_the_fault_counts(
    times_ms: dict[int, list[int]], now_ms: int, seconds: float
) -> None:
    assert gaps(times_ms, FAULT_MS, now_ms) == seconds


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(case(), seconds=0.21), "0.2 s"),
        (Outcome(case()), "**no**, nor within 60 s after it is back"),
        (Outcome(case(), back_seconds=0.5, given_up=2), "**no** (+0.5 s), 2 given up"),
        (Outcome(case(), seconds=0.21, lost=1), "0.2 s, **1 lost**"),
        (Outcome(case(), trouble="never began"), "never began"),
    ],
)
def test_a_cell_says_what_went_wrong(outcome: Outcome, text: str) -> None:
    assert cell(outcome) == text


def test_a_row_has_the_producer_and_then_the_consumer() -> None:
    outcomes = [Outcome(case(Role.CONSUMER), seconds=2.0), Outcome(case(), seconds=1.0)]

    assert list(table(outcomes)) == [
        "| client | both in `bootstrap.servers`, one killed |",
        "|---|---|",
        "| Java 3.6.2 | 1.0 s / 2.0 s |",
    ]


def test_the_shipped_configuration_is_run_with_other_addresses_alone() -> None:
    text = configuration(21000, 11, {"127.0.0.2": 21011, "127.0.0.3": 22011})

    assert "    bind 127.0.0.1:21000-21010\n" in text  # 11 ports
    assert "    server gateway-1 127.0.0.2 check addr 127.0.0.1 port 21011\n" in text
    assert "    server gateway-2 127.0.0.3 check addr 127.0.0.1 port 22011\n" in text
    assert "option httpchk GET /readyz" in text
    assert BALANCED.hosts == ("127.0.0.1",)
