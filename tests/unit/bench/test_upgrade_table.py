"""What the tables and bars of a rolling upgrade say of a run that is made up."""

from collections import Counter
from pathlib import Path

import pytest

from tests.bench.fleet.faults import Direction
from tests.bench.fleet.upgrade import BACK, CONNECTIONS, QUOTA, UPGRADE, WITHOUT, Phase, Seen, Upgraded
from tests.bench.fleet.upgrade_table import draw, report, took
from tests.bench.report import Bar
from tests.support.pods import Replaced, configuration

REQUEST = 50_000
PODS = tuple(Replaced(number, number == 0, 25.0 - 2 * number, 1.5, 2.0) for number in (2, 1, 0))
JAVA = Seen(*("java", 3000), lost=0, doubled=0, given_up=0, missed=0, repeated=2, gap=0.4, consumer_gap=0.6)


@pytest.fixture
def found() -> Upgraded:
    """Half a minute at exactly the quota, ten seconds without an upgrade and twice ten with one."""
    steady = [(at * REQUEST / QUOTA, at * REQUEST / QUOTA, REQUEST) for at in range(30 * QUOTA // REQUEST)]
    return Upgraded(
        "HEAD",
        phases=[
            Phase(WITHOUT, 0.0, 10.0, (), 0, 0),
            Phase(UPGRADE, 10.0, 20.0, PODS, 40, 0),
            Phase(BACK, 20.0, 30.0, PODS, 50, 0),
        ],
        directions={name: Direction(let_through=list(steady)) for name in CONNECTIONS},
        probed=[(at / 10, 0.001 * at) for at in range(300)],
        lives=[(-5.0, 22.0), (-5.0, 24.0), (-5.0, 26.0), *[(21.0, float("inf"))] * 3],
        families=[JAVA],
    )


def missed(found: Upgraded) -> list[Bar]:
    return [bar for bar in report(found).bars if not bar.passed]


def test_run_without_a_fault_meets_all_bars(found: Upgraded) -> None:
    assert missed(found) == []
    latency, quotas, pods, families = report(found).tables
    # Records 0 to 99 took 0 to 99 ms, and the next hundred as much more.
    assert [row[3:7] for row in latency.rows] == [
        ("49 ms", "98 ms", "99 ms", "99 ms"),
        ("149 ms", "198 ms", "199 ms", "199 ms"),
    ]
    assert {row[2] for row in quotas.rows} == {"1.000"}
    assert [row[0] for row in pods.rows] == ["2", "1", "0, the holder"] * 2
    assert families.rows == (("java", "3000", "0", "0", "0", "0.4 s", "0", "2", "0.6 s"),)


def test_records_count_in_the_phase_in_which_they_were_due(found: Upgraded) -> None:
    found.probed = [(9.9, 0.5), (10.0, 0.2), (10.1, 0.1), (20.0, 0.3)]
    assert took(found, found.phases[1]) == [0.1, 0.2]


def test_held_requests_that_a_drain_lets_through_at_once_are_above_the_bound(found: Upgraded) -> None:
    # A burst of a second, and a request for each of three processes, are allowed; one is due at the same time.
    each = found.directions["produce"].let_through
    each += [(15.0, 15.0, REQUEST)] * (QUOTA // REQUEST + 2)
    assert missed(found) == []
    each += [(15.0, 15.0, REQUEST)] * 20
    (bar,) = missed(found)
    assert bar.name == "upgrade, produce: above the bound"
    assert bar.measured == pytest.approx(20 * REQUEST / QUOTA, abs=0.2)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("lost", {"lost": 1}),
        ("there twice", {"doubled": 1}),
        ("given up", {"given_up": 1}),
        ("not consumed", {"missed": 1}),
    ],
)
def test_each_fault_of_a_family_misses_its_bar(found: Upgraded, name: str, change: dict[str, int]) -> None:
    whole = {"lost": 0, "doubled": 0, "given_up": 0, "missed": 0, **change}
    found.families.append(Seen("other", 10, repeated=0, gap=0.1, consumer_gap=0.1, **whole))
    (bar,) = missed(found)
    assert name in bar.name


def test_lost_records_of_the_others_and_refused_connections_miss_theirs(found: Upgraded) -> None:
    found.probe_lost, found.probe_doubled, found.probe_seen = 1, 1, Counter({"not delivered": 1, "fatal": 1})
    found.phases[1] = Phase(UPGRADE, 10.0, 20.0, PODS, 40, 1)
    found.directions["consume"].seen["skipped or repeated"] = 1
    assert len(missed(found)) == 6


def test_picture_has_both_panels(found: Upgraded, tmp_path: Path) -> None:
    draw(found, tmp_path / "upgrade.svg")
    text = (tmp_path / "upgrade.svg").read_text()
    assert "rate / quota" in text
    assert "ms until acknowledged" in text


def test_service_leads_to_no_pod_until_it_is_told_to() -> None:
    text = configuration(20_000, 12, 25_000, [("pod-0-0", "127.0.1.2"), ("pod-0-1", "127.0.2.2")])
    assert "bind 127.0.0.1:20000-20011" in text
    assert "server pod-0-1 127.0.2.2 disabled" in text
