"""Every attack that is no evasion, in its short form, stays within its bar: it ends no process, holds no loop, fills no
memory, delays no other client, and alters nothing that Sluice keeps in Kafka.
"""

from collections.abc import Mapping
from functools import cache, partial

import pytest

from tests.hostile.attacks import owning, remembering, stalling, standing, stopping
from tests.hostile.scene import Row

TOGETHER = {
    "stalling": cache(stalling.measure),
    "standing": cache(partial(standing.measure, 8.0)),  # of announcing: longer than any wait that is allowed
    "owning": cache(owning.measure),
}
ALONE = {"stopping": stopping, "remembering": remembering}
MODULES = (stopping, stalling, remembering, standing, owning)
ATTACKS = [
    pytest.param(module.__name__.rpartition(".")[2], row, id=row.name)
    for module in MODULES
    for row in module.ROWS
]

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize(("family", "row"), ATTACKS)
def test_attack_stays_within_its_bar(family: str, row: Row) -> None:
    found: Mapping[str, float] = ALONE[family].measure({row.name}) if family in ALONE else TOGETHER[family]()
    assert found[row.name] <= row.bar
