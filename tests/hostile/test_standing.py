"""Nobody stands in others' way: in the schedule by announcing in their names, at the ports by sitting on them."""

from collections.abc import Mapping

import pytest

from tests.hostile.attacks import standing
from tests.hostile.attacks.harm import Row

SECONDS = 8.0  # of announcing: longer than any wait that is allowed

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def measured() -> Mapping[str, float]:
    return standing.measure(SECONDS)


@pytest.mark.parametrize("row", standing.ROWS, ids=lambda row: row.name)
def test_honest_client_is_served_in_time(row: Row, measured: Mapping[str, float]) -> None:
    assert measured[row.name] <= row.bar
