"""From what the relays counted of clients that share a capacity to tables, bars and the picture."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from quotas.definitions.classes import SHARED_BURST_SECONDS
from tests.bench.accuracy.relay import Counted
from tests.bench.capacity import faults, sharing
from tests.bench.capacity.classes import CAPACITY, CLIENTS, parts
from tests.bench.capacity.sharing import Marks, Shared, bars, draw
from tests.bench.fleet.shapes import Shape

SIZE = 50_000
MARKS = Marks(100.0, 120.0, 134.0, 146.0)
A_SHARE = parts(CLIENTS)
WITHOUT_A = parts(CLIENTS[1:])


def steady(name: str, began: float, ended: float, rate: float) -> list[Counted]:
    """Requests at equal distances."""
    count = round((ended - began) * rate / SIZE)
    times = (began + index * SIZE / rate for index in range(count))
    return [Counted(at, at, name, 0, SIZE) for at in times]


def shared(late: float = 0.0, without_a: Mapping[str, float] = WITHOUT_A) -> Shared:
    """Each has its part; `a` begins so many seconds after its return."""
    noted = {
        "a": [*steady("a", 100, 120, A_SHARE["a"]), *steady("a", 134 + late, 146, A_SHARE["a"])],
        **{
            name: [
                *steady(name, 100, 120, A_SHARE[name]),
                *steady(name, 120, 134, without_a[name]),
                *steady(name, 134, 146, A_SHARE[name]),
            ]
            for name in ("b", "c")
        },
    }
    return Shared(Shape(2, 2), MARKS, noted, {})


def missed(found: Shared) -> set[str]:
    return {bar.name.removeprefix("2 × 2: ") for bar in bars(found) if not bar.passed}


def test_run_in_which_each_has_its_part_meets_every_bar() -> None:
    assert missed(shared()) == set()
    assert [round(row.had / row.part, 2) for row in sharing.rows(shared())] == [1.0] * 8


def test_owner_that_has_its_rate_a_tenth_of_a_second_late_misses_a_bar() -> None:
    # 0.9 s of 4.25 MB/s are 0.956 of 4 MB/s in the first second.
    assert missed(shared(late=0.1)) == set()
    assert missed(shared(late=0.2)) == {"`a` back, first second / rate"}


def test_equal_parts_in_place_of_parts_by_weight_miss_a_bar() -> None:
    half = CAPACITY / 2
    assert missed(shared(without_a={"b": half, "c": half})) == {"`a` away, part by weight off by"}


def test_unused_part_of_the_capacity_misses_a_bar() -> None:
    less = {name: 0.96 * part for name, part in WITHOUT_A.items()}
    assert missed(shared(without_a=less)) == {"all together at least"}


def test_picture_shades_what_is_lent(tmp_path: Path) -> None:
    path = tmp_path / "capacity.svg"
    draw([shared(), shared()], path)
    # In each panel one area of `b` and of `c`, and two of `a`, which was away.
    assert path.read_text().count("opacity: 0.25") == 2 * 4


def played(extra: int = 0, gap: tuple[float, float] = (0.0, 0.0)) -> faults.Played:
    """The capacity for 40 s, less a gap, and so many bytes more at 30 s."""
    through = {
        name: [(at, at, SIZE) for at, *_ in steady(name, 0, 40, part) if not gap[0] <= at < gap[1]]
        for name, part in WITHOUT_A.items()
    }
    through["b"] += [(30.0, 30.0, SIZE)] * (extra // SIZE)
    marks = [(faults.FAULTS[0], 5.0, 15.0), (faults.FAULTS[1], 15.0, 25.0), (faults.FAULTS[2], 25.0, 35.0)]
    return faults.Played(marks, [(-1.0, 99.0)] * 2, through, Counter())


def test_faults_say_how_long_the_capacity_was_not_used() -> None:
    none, worker, member = faults.rows(played(gap=(17.0, 18.0)))
    assert (none.below, member.below) == (0.0, 0.0)
    assert worker.below == pytest.approx(3.0, abs=0.2)
    assert worker.together == pytest.approx(0.9, abs=0.01)


def test_faults_are_held_to_the_bound_with_what_is_lent_for_a_second() -> None:
    # A burst, and of the 5 of 8 MB/s that are lent what a second has.
    allowed = SHARED_BURST_SECONDS + 5 / 8
    (below, _), (above, _) = (
        faults.report(played(extra=round(seconds * CAPACITY))).bars
        for seconds in (allowed - 0.05, allowed + 0.05)
    )
    assert below.passed
    assert not above.passed
