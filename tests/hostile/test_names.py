"""A client that the broker accepts as alice gets alice's quota, however its token is spelt."""

import pytest

from tests.hostile.attacks import evasion
from tests.hostile.attacks.naming import NAMING

SECONDS = 3.0


@pytest.mark.parametrize("name", [each.name for each in NAMING])
def test_token_is_read_as_the_broker_reads_it(name: str) -> None:
    chosen = [each for each in NAMING if each.name == name]
    (found,) = evasion.measure(chosen, "schedule", SECONDS, hold_seconds=(3.0, 5.0), beside=1)
    assert not found.failed
    assert 0 < found.total <= found.allowance.in_run
