"""proxy.fleet.facts."""

import pytest

from proxy.fleet.facts import MemberView, View, read_view, write_view
from proxy.fleet.messages import MessageError
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
