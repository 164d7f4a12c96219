"""A client cannot delay others by announcing requests in their names, or by occupying ports."""

from collections.abc import Mapping

import pytest

from tests.hostile.attacks import standing
from tests.hostile.scene import Row

SECONDS = 8.0  # of announcing: longer than any wait that is allowed

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def measured() -> Mapping[str, float]:
    return standing.measure(SECONDS)


@pytest.mark.parametrize("row", standing.ROWS, ids=lambda row: row.name)
def test_honest_client_is_served_in_time(row: Row, measured: Mapping[str, float]) -> None:
    assert measured[row.name] <= row.bar
