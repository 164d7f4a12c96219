"""A staged ramp-down."""

import pytest

from offline.jobs.apply import rollout
from quotas.definitions.alterations import Quotas
from quotas.definitions.entities import DEFAULT, Entity

ENTITY = Entity(client_id="a")


def at(step: int, target: float, today: float, current: Quotas | None = None) -> float:
    limits = {ENTITY: {"producer_byte_rate": target}}
    wanted = rollout(limits, {"producer_byte_rate": today}, current or {}, step, 3)
    return wanted[ENTITY]["producer_byte_rate"]


def test_every_step_takes_the_same_share_off() -> None:
    assert [at(step, 1e6, 8e6) for step in (1, 2, 3)] == [4e6, 2e6, 1e6]


def test_a_target_above_todays_use_is_set_at_once() -> None:
    assert at(1, 9e6, 8e6) == 9e6


def test_a_key_without_use_is_set_at_once() -> None:
    assert rollout({ENTITY: {"request_percentage": 50.0}}, {}, {}, 1, 3)[ENTITY] == {
        "request_percentage": 50.0
    }


@pytest.mark.parametrize("entity", [ENTITY, Entity(client_id=DEFAULT)])
def test_no_step_is_above_the_limit_in_force(entity: Entity) -> None:
    current = {entity: {"producer_byte_rate": 3e6, "consumer_byte_rate": 1.0}}
    assert [at(step, 1e6, 8e6, current) for step in (1, 2, 3)] == [3e6, 2e6, 1e6]


def test_a_step_that_was_taken_is_not_taken_again() -> None:
    first = at(1, 1e6, 8e6)
    assert at(1, 1e6, 8e6, {ENTITY: {"producer_byte_rate": first}}) == first


def test_limit_below_the_target_is_raised_to_the_target() -> None:
    assert [at(step, 1e6, 8e6, {ENTITY: {"producer_byte_rate": 5e5}}) for step in (1, 3)] == [1e6, 1e6]


def test_limits_of_other_entities_have_no_effect() -> None:
    others = {Entity(client_id="b"): {"producer_byte_rate": 7.0}, Entity("u"): {"producer_byte_rate": 7.0}}
    assert at(1, 1e6, 8e6, others) == 4e6


@pytest.mark.parametrize(
    "base", [Entity("u", DEFAULT), Entity("u"), Entity(DEFAULT, "a"), Entity(DEFAULT), Entity(client_id="a")]
)
def test_a_pair_of_user_and_client_has_its_fallback_limit(base: Entity) -> None:
    pair = Entity("u", "a")
    current = {base: {"producer_byte_rate": 3e6}, Entity(client_id=DEFAULT): {"producer_byte_rate": 9e6}}
    wanted = rollout({pair: {"producer_byte_rate": 1e6}}, {"producer_byte_rate": 8e6}, current, 1, 3)
    assert wanted[pair] == {"producer_byte_rate": 3e6}
