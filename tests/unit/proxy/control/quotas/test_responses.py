"""The clients that may alter and describe quotas."""

import pytest

from protocol.api import ALTER_CLIENT_QUOTAS
from proxy.channel import Question
from proxy.control.quotas.responses import Permissions

NAMED = Permissions(frozenset(("ann", "")), frozenset())


@pytest.mark.parametrize(
    ("permissions", "user", "trusted", "describe", "alter"),
    [
        (Permissions(), "ann", False, True, False),
        (Permissions(), "", False, True, False),
        (Permissions(frozenset("*")), "", False, True, True),
        (Permissions(frozenset(), frozenset()), "ANONYMOUS", True, True, True),
        (NAMED, "ann", False, True, True),
        (NAMED, "bob", False, False, False),
        (NAMED, "ANONYMOUS", False, False, False),
        (NAMED, "", False, False, False),
    ],
)
def test_clients_may_describe_and_alter(
    permissions: Permissions, user: str, trusted: bool, describe: bool, alter: bool
) -> None:
    asked = Question(ALTER_CLIENT_QUOTAS, 0, 1, b"", 0, user, trusted)
    assert (permissions.may_describe(asked), permissions.may_alter(asked)) == (describe, alter)
