"""proxy.fleet.view."""

import pytest

from proxy.fleet.codec import MessageError
from proxy.fleet.view import LASTS_SECONDS, MemberView, View, disagreements, read_view, twice, write_view
from quotas.sharing.lease_values import LesseeId


def member(name: str, run: int, seconds: int = 5, **facts: str) -> MemberView:
    return MemberView(LesseeId(name, run), 100, seconds, facts)


def test_view_comes_back() -> None:
    view = View(True, (member("a", 1, version="1.0"), member("b", 2)), (("user:ann", (0.25, 0.5)),))
    assert read_view(write_view(view)) == view


def test_view_with_a_share_missing_is_malformed() -> None:
    view = View(False, (member("a", 1),), (("k", (0.5,)),))
    with pytest.raises(MessageError, match="8 bytes expected, 7 left"):
        read_view(write_view(view)[:-1])


def test_members_that_differ_are_named_with_their_values() -> None:
    members = (
        member("a", 1, members_max="8", version="1.0"),
        member("b", 2, members_max="4", version="1.0"),
        member("c", 3, members_max="8"),
    )
    assert list(disagreements(View(False, members, ()))) == ["members_max differs: 4 at b; 8 at a, c"]


def test_members_of_one_name_are_a_rolling_upgrade_at_first() -> None:
    young = (member("a", 1, LASTS_SECONDS), member("a", 2, LASTS_SECONDS - 1))
    assert twice(View(False, young, ())) == []
    old = View(False, (member("a", 1, LASTS_SECONDS), member("a", 2, LASTS_SECONDS)), ())
    assert list(disagreements(old)) == ["two processes are called 'a': each needs a name of its own"]
