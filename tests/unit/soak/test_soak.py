"""What the soak makes of records and samples, and what its hostile clients send; without sockets."""

import random
import struct
from pathlib import Path

import pytest

from tests.soak import hostile, judge
from tests.soak.judge import Sample, Tally, Verdict, record, verdict


def sample(seconds: float, resident_kib: int, sockets: int = 10) -> Sample:
    """One moment; what is not asked about is nothing."""
    return Sample(seconds, resident_kib, sockets, sockets, 1.0, 1.0, 2.0, 3.0, 4, 0, 0, 100, 90, 1)


def found(**changes: object) -> judge.Found:
    """A run in which everything went well."""
    good: dict[str, object] = {
        "samples": [sample(10.0 * number, 40_000) for number in range(13)],
        "verdict": Verdict(100, 0, 0, 0),
        "honest": {"acknowledged": 100, "failed": 0, "unresolved": 0, "missed by the group": 0},
        "sockets_before": 10,
        "sockets_after": 10,
        "alive": True,
        "exit_code": 0,
    }
    return judge.Found(**(good | changes))  # type: ignore[arg-type]  # each name has its own type


def missed(run: judge.Found) -> list[str]:
    return [bar.name for bar in judge.outcome(run).bars if not bar.passed]


def test_record_that_is_late_is_out_of_order_once() -> None:
    tally = Tally()
    for number in (0, 2, 1, 3):
        tally.see(0, record(1, number))
    assert (tally.disordered, tally.doubled, tally.records) == (1, 0, 4)


def test_partitions_are_numbered_apart() -> None:
    tally = Tally()
    tally.see(0, record(1, 0))
    tally.see(1, record(1, 0))
    assert verdict({(1, 0): 1, (1, 1): 1}, {}, tally) == Verdict(2, 0, 0, 0)


def test_failed_record_may_be_there_or_not() -> None:
    tally = Tally()
    tally.see(0, record(1, 0))
    assert verdict({(1, 0): 2}, {(1, 0): [0, 1]}, tally) == Verdict(0, 0, 0, 0)


def test_memory_is_compared_after_the_warm_up() -> None:
    # 100 min: warm-up 15 min, then thirds of 85/3 min: 15 to 43.3 and 71.7 to 100.
    run = [
        sample(60.0 * minute, 100 if minute < 15 else 200 if minute < 60 else 202) for minute in range(101)
    ]
    early, late = judge.windows(run)
    assert (early[0].seconds, early[-1].seconds) == (15 * 60.0, 43 * 60.0)
    assert (late[0].seconds, late[-1].seconds) == (72 * 60.0, 100 * 60.0)
    assert judge.growth(run) == pytest.approx(0.01)


def test_figure_without_samples_is_absent() -> None:
    assert judge.growth([]) is None
    assert "resident memory, late over early" in missed(found(samples=[]))


def test_run_in_which_all_is_well_meets_every_bar() -> None:
    assert missed(found()) == []


@pytest.mark.parametrize(
    ("changes", "bar"),
    [
        ({"samples": [sample(10.0 * n, 40_000 + 200 * n) for n in range(13)]}, "resident memory, late over early"),
        ({"sockets_after": 11}, "sockets left over"),
        ({"verdict": Verdict(100, 1, 0, 0)}, "records lost"),
        ({"verdict": Verdict(100, 0, 1, 0)}, "records doubled"),
        ({"verdict": Verdict(100, 0, 0, 1)}, "records out of order"),
        ({"verdict": Verdict(0, 0, 0, 0)}, "records acknowledged"),
        ({"refused_reloads": 1}, "reloads refused"),
        ({"exit_code": 1}, "its exit code"),
        ({"alive": False}, "the proxy lived to the end"),
    ],
)  # fmt: skip
def test_each_bar_is_missed_by_its_own_fault(changes: dict[str, object], bar: str) -> None:
    assert missed(found(**changes)) == [bar]


def test_samples_are_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    log = judge.Log(tmp_path / "samples.csv")
    log.add(sample(10.0, 40_000))
    assert (tmp_path / "samples.csv").read_text().splitlines()[1].startswith("10.0,40000,10,10,")
    log.close()


def test_half_a_request_is_half_of_what_it_announces() -> None:
    sent = hostile.half_join_group(random.Random(1))
    assert len(sent) == 2048
    assert struct.unpack_from(">i", sent) == (4096,)


def test_announced_request_has_a_header_and_little_more() -> None:
    sent = hostile.announced(random.Random(1))
    length, key = struct.unpack_from(">ih", sent)
    assert (length, key, len(sent)) == (100_000_000, 0, 40)


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_no_kind_sends_much_at_once(kind: str) -> None:
    chance = random.Random(1)
    assert max(len(hostile.KINDS[kind].opening(chance)) for _ in range(50)) <= 32_768
