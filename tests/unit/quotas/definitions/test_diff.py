"""What has to be altered, and that nothing has to be once it was."""

from quotas.definitions.alterations import Difference, alterations, differences
from quotas.definitions.entities import DEFAULT, Entity

A, B, C = Entity(client_id="a"), Entity(client_id="b"), Entity("c", DEFAULT)
CURRENT = {A: {"x": 1.0, "y": 2.0}, B: {"x": 3.0}}
WANTED = {C: {"z": 5.0}, A: {"x": 1.0, "y": 4.0}}


def test_differences_are_limited_to_the_files_entities() -> None:
    assert differences(CURRENT, WANTED, prune=False) == [
        Difference(C, "z", None, 5.0),
        Difference(A, "y", 2.0, 4.0),
    ]


def test_entity_has_exactly_the_limits_that_are_wanted() -> None:
    assert differences(CURRENT, {A: {"x": 1.0}}, prune=False) == [Difference(A, "y", 2.0, None)]


def test_prune_removes_other_entities() -> None:
    assert differences(CURRENT, WANTED, prune=True)[-1] == Difference(B, "x", 3.0, None)


def test_second_run_finds_nothing() -> None:
    assert differences(WANTED, WANTED, prune=True) == []


def test_each_entity_is_altered_once() -> None:
    found = differences(CURRENT, {A: {"x": 9.0, "z": 8.0}, C: {"z": 5.0}}, prune=True)
    assert alterations(found) == [
        ([("client-id", "a")], [("x", 9.0), ("z", 8.0), ("y", None)]),
        ([("user", "c"), ("client-id", None)], [("z", 5.0)]),
        ([("client-id", "b")], [("x", None)]),
    ]
