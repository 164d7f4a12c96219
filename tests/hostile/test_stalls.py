"""No frame holds the loop: an honest client beside each of the worst ones waits no longer than beside none."""

from collections.abc import Mapping

import pytest

from tests.hostile.attacks import stalling
from tests.hostile.scene import Row

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def measured() -> Mapping[str, float]:
    return stalling.measure()


@pytest.mark.parametrize("row", stalling.ROWS, ids=lambda row: row.name)
def test_honest_client_does_not_notice(row: Row, measured: Mapping[str, float]) -> None:
    assert measured[row.name] <= row.bar
