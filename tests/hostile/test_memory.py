"""What peers can make Sluice keep in memory is bounded, and is given back."""

import pytest

from tests.hostile.attacks import remembering
from tests.hostile.scene import Row

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("row", remembering.ROWS, ids=lambda row: row.name)
def test_memory_stays_within_its_bounds(row: Row) -> None:
    assert remembering.measure({row.name})[row.name] <= row.bar
