"""A staged ramp-down."""

from quotas.entities import Entity
from quotas.ramp import ramped

ENTITY = Entity(client_id="a")


def at(step: int, target: float, today: float) -> float:
    wanted = ramped({ENTITY: {"producer_byte_rate": target}}, {"producer_byte_rate": today}, step, 3)
    return wanted[ENTITY]["producer_byte_rate"]


def test_every_step_takes_the_same_share_off() -> None:
    assert [at(step, 1e6, 8e6) for step in (1, 2, 3)] == [4e6, 2e6, 1e6]


def test_a_target_above_todays_use_is_set_at_once() -> None:
    assert at(1, 9e6, 8e6) == 9e6


def test_a_key_that_nobody_uses_is_set_at_once() -> None:
    assert ramped({ENTITY: {"request_percentage": 50.0}}, {}, 1, 3)[ENTITY] == {"request_percentage": 50.0}
