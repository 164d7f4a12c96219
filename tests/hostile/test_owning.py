"""What Sluice keeps in Kafka is its own, at its ports and, with a secret, beside them."""

from collections.abc import Mapping

import pytest

from tests.hostile.attacks import owning
from tests.hostile.scene import Row

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def figures() -> Mapping[str, float]:
    return owning.measure()


@pytest.mark.parametrize("row", owning.ROWS, ids=lambda row: row.name)
def test_attack_has_no_effect(figures: Mapping[str, float], row: Row) -> None:
    assert figures[row.name] <= row.bar
