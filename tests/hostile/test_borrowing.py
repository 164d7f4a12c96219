"""No way to more than one's part of a capacity: a neighbour has its promised rate beside each attack, and all together
have no more than there is.

The long form is `make hostile ARGS="--only borrowing"`, which has the bars as they are.
"""

from collections.abc import Mapping
from functools import cache

import pytest

from tests.hostile.attacks import borrowing
from tests.hostile.attacks.borrowing import BORROWINGS, Found

SECONDS = 2.5
NAMES = ("b-claims", "b-group", "b-names-in-turn", "b-new", "b-first", "b-small-first")
# What a loaded machine makes of such a time: bytes of before are read within it, and a process waits for its turn.
LATE = 1.15
LACKS_MAX = 0.3

pytestmark = pytest.mark.timeout(240)


@cache
def found() -> Mapping[str, Found]:
    """What each of them brought; all run when the first is asked for."""
    chosen = [each for each in BORROWINGS if each.name in NAMES]
    return {each.borrowing.name: each for each in borrowing.measure(chosen, SECONDS)}


@pytest.mark.parametrize("name", NAMES)
def test_borrower_gets_no_more_than_its_part(name: str) -> None:
    each = found()[name]
    lacks, part, capacity = each.figures
    assert not each.failed
    assert lacks <= LACKS_MAX, f"the neighbour lacks {lacks:.0%} of its rate"
    assert part <= each.bars[1] * LATE
    assert capacity <= each.bars[2] * LATE
