"""Connections, brokers' responses and files cannot end the process."""

import pytest

from tests.hostile.attacks import stopping
from tests.hostile.scene import Row

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("row", stopping.ROWS, ids=lambda row: row.name)
def test_process_goes_on(row: Row) -> None:
    assert stopping.measure({row.name})[row.name] <= row.bar
