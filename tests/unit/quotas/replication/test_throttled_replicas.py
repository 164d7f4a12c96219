"""quotas.replication.replication_quotas: lists as Kafka takes them, and what is said of those it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.replication.replication_quotas import (
    EVERY_REPLICA,
    PROBLEMS_MAX,
    ReplicaList,
    ThrottledReplicas,
    parse_replicas,
)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [("", set()), ("0:1", {(0, 1)}), ("0:1,1:2", {(0, 1), (1, 2)}), (" 0:1 , ,1:2,", {(0, 1), (1, 2)})],
)
def test_replica_list_is_read(text: str, pairs: set[tuple[int, int]]) -> None:
    assert parse_replicas(text) == (ReplicaList(pairs=frozenset(pairs)), [])


@pytest.mark.parametrize("text", ["*", " * ", "*,0:1"])
def test_star_means_every_replica(text: str) -> None:
    assert parse_replicas(text) == (EVERY_REPLICA, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0:1,x", "entry 2, 'x': not [partition]:[replica]"),
        ("0-1,0:1", "entry 1, '0-1': not [partition]:[replica]; did you mean '0:1'?"),
        ("0:1,*", "entry 2, '*': \"*\" must be the whole list"),
        ("0:1,3000000000:1", "entry 2, '3000000000:1': a number is over 2147483647"),
        ("0:1,-1:2", "entry 2, '-1:2': not [partition]:[replica]"),
    ],
)
def test_malformed_entry_is_named_and_the_rest_holds(text: str, problem: str) -> None:
    found, problems = parse_replicas(text)
    assert problems == [problem]
    assert found.holds(0, 1)


def test_problems_are_bounded() -> None:
    _, problems = parse_replicas("x," * 100)
    assert len(problems) == PROBLEMS_MAX


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    found, problems = parse_replicas(text)
    assert found.every or len(found.pairs) + len(problems) <= len(text.split(","))


def test_directions_have_separate_lists() -> None:
    lists = ThrottledReplicas(
        leaders={"t": parse_replicas("0:1")[0]}, followers={"t": parse_replicas("0:3")[0]}
    )
    assert lists.sending("t", 0, leader=1, follower=3)
    assert not lists.sending("t", 0, leader=2, follower=3)
    assert not lists.sending("t", 1, leader=1, follower=3)
    assert lists.receiving("t", 0, follower=3)
    assert not lists.receiving("u", 0, follower=3)


def test_replica_that_is_added_is_throttled_at_both_ends() -> None:
    lists = ThrottledReplicas(adding={("t", 0): frozenset({3})})
    assert lists.sending("t", 0, leader=1, follower=3)
    assert lists.receiving("t", 0, follower=3)
    assert not lists.sending("t", 0, leader=1, follower=2)
