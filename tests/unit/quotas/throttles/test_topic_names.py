"""quotas.throttles.topic_names: what is known, what is asked for, and how often."""

import pytest

from quotas.throttles import topic_names
from quotas.throttles.topic_names import ASK_AGAIN_MS, TopicNames, TtlMap

A, B = b"a" * 16, b"b" * 16


def test_id_that_is_seen_first_is_asked_for_once() -> None:
    names = TopicNames()
    woken: list[int] = []
    names.wake = lambda: woken.append(1)
    assert [names.name(A, 0), names.name(A, 0), names.name(B, 0)] == [None, None, None]
    assert len(woken) == 2
    assert names.take_wanted(0) == [A, B]
    assert names.take_wanted(0) == []


def test_name_that_was_learned_is_known() -> None:
    names = TopicNames()
    names.learn(A, "orders")
    assert names.name(A, 0) == "orders"
    assert names.take_wanted(0) == []


def test_id_without_a_response_is_asked_for_again_later() -> None:
    names = TopicNames()
    names.name(A, 0)
    names.take_wanted(0)
    names.name(A, ASK_AGAIN_MS - 1)
    assert names.take_wanted(ASK_AGAIN_MS - 1) == []
    names.name(A, ASK_AGAIN_MS)
    assert names.take_wanted(ASK_AGAIN_MS) == [A]


def test_ids_of_limited_topics_are_asked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_names, "ASKED_AT_ONCE_MAX", 2)
    names = TopicNames()
    assert names.take_limited() == []
    names.limited = lambda: ("a", "b", "c")
    assert [names.take_limited() for _ in range(3)] == [["a", "b"], ["c"], ["a", "b"]]


def test_names_and_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_names, "NAMES_MAX", 1)
    monkeypatch.setattr(topic_names, "ASKED_AT_ONCE_MAX", 1)
    names = TopicNames()
    names.name(A, 0)
    names.name(B, 0)
    assert names.take_wanted(0) == [A]
    names.learn(A, "a")
    names.learn(B, "b")
    assert len(names) == 1
    assert names.name(B, 0) == "b"


def test_oldest_entry_makes_room() -> None:
    recent = TtlMap[str, int](entries_max=2, keep_ms=1000)
    for name in ("a", "b", "a", "c"):
        recent.put(name, len(recent), 0)
    assert [recent.get(name, 0) for name in "abc"] == [2, None, 2]
    assert len(recent) == 2


def test_removed_key_is_missing() -> None:
    recent = TtlMap[str, int](entries_max=2, keep_ms=1000)
    recent.put("a", 1, 0)
    recent.forget(("a", "b"))
    assert (len(recent), recent.get("a", 0)) == (0, None)
