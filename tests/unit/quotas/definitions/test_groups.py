"""quotas.definitions.groups: members by name and by prefix, and members of two groups."""

import pytest

from quotas.definitions.groups import Members, check_member, conflict
from quotas.errors import DefinitionError


def members(*pairs: tuple[str, str]) -> Members:
    found = Members()
    for spelling, group in pairs:
        found.add(spelling, group)
    return found


def test_name_goes_before_a_prefix_and_a_longer_prefix_before_a_shorter_one() -> None:
    found = members(("web-*", "a"), ("web-eu-*", "b"), ("web-eu-1", "c"))
    assert [found.group_of(name) for name in ("web-1", "web-eu-2", "web-eu-1", "web-eu-", "we")] == [
        "a",
        "b",
        "c",
        "b",
        None,
    ]


def test_prefix_is_no_name() -> None:
    found = members(("web-*", "a"))
    assert found.group_of("web-*") == "a"  # it begins so
    assert members(("x", "a")).group_of("x*") is None


@pytest.mark.parametrize("order", [("b", "a"), ("a", "b")])
def test_equal_spellings_are_of_the_first_group_by_name_in_whatever_order_they_came(
    order: tuple[str, str],
) -> None:
    found = members(*(("x", group) for group in order))
    assert found.group_of("x") == "a"
    found.remove("x", "a")
    assert found.group_of("x") == "b"
    found.remove("x", "b")
    assert found.group_of("x") is None
    assert len(found) == 0


def test_prefix_that_is_gone_matches_no_more() -> None:
    found = members(("web-*", "a"), ("app-*", "b"))
    found.remove("web-*", "a")
    assert [found.group_of(name) for name in ("web-1", "app-1")] == [None, "b"]


@pytest.mark.parametrize(
    ("pairs", "names"),
    [
        ([("x", "a"), ("x", "b")], ("'x' of group 'a'", "'x' of group 'b'")),
        ([("x*", "a"), ("x*", "b")], ("'x*' of group 'a'", "'x*' of group 'b'")),
        ([("web-1", "b"), ("web-*", "a")], ("'web-*' of group 'a'", "'web-1' of group 'b'")),
        ([("web-eu-*", "b"), ("web-*", "a")], ("'web-*' of group 'a'", "'web-eu-*' of group 'b'")),
        ([("web-", "b"), ("web-*", "a")], ("'web-*' of group 'a'", "'web-' of group 'b'")),
        # What lies between them is of the same group as the prefix, and what is behind is not.
        ([("w*", "a"), ("wa*", "a"), ("wb", "a"), ("wc", "b")], ("'w*' of group 'a'", "'wc' of group 'b'")),
    ],
)
def test_client_in_two_groups_is_told_with_both(pairs: list[tuple[str, str]], names: tuple[str, str]) -> None:
    for order in (pairs, pairs[::-1]):
        text = str(conflict(order))
        assert all(name in text for name in names), text


@pytest.mark.parametrize(
    "pairs",
    [
        [("web-*", "a"), ("web-1", "a"), ("web-eu-*", "a")],
        [("web-*", "a"), ("web", "b"), ("web_1", "b"), ("wea*", "c")],
        [],
    ],
)
def test_other_members_are_right(pairs: list[tuple[str, str]]) -> None:
    assert conflict(pairs) is None


@pytest.mark.parametrize("spelling", ["*", "a*b", "*a", "**"])
def test_star_stands_at_the_end_alone(spelling: str) -> None:
    with pytest.raises(DefinitionError, match=r"^x: "):
        check_member(spelling, "x")


def test_lookup_needs_as_many_looks_as_there_are_lengths_of_prefixes() -> None:
    found = Members()
    for number in range(1000):
        found.add(f"team-{number:04}-*", f"g{number}")
    assert found.group_of("team-0999-x") == "g999"
    assert found.lengths == (10,)
