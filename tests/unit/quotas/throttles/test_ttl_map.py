"""quotas.throttles.topic_names: a bounded map whose entries end by themselves."""

from quotas.throttles.topic_names import TtlMap


def test_entry_ends_with_its_time() -> None:
    recent = TtlMap[str, int](entries_max=10, keep_ms=1000)
    recent.put("a", 1, 500)
    assert (recent.get("a", 1499), recent.get("a", 1500), recent.get("b", 500)) == (1, None, None)


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
