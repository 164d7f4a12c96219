"""The clients that may alter and describe quotas."""

import pytest

from protocol.api import ALTER_CLIENT_QUOTAS
from proxy.channel import Question
from proxy.control.quotas.responses import Permissions


def asked(user: str, *, trusted: bool = False) -> Question:
    return Question(ALTER_CLIENT_QUOTAS, 0, 1, b"", 0, user, trusted)


def test_by_default_any_client_may_describe_and_none_may_alter() -> None:
    assert not Permissions().may_alter(asked("ann"))
    assert Permissions().may_describe(asked("ann"))
    assert Permissions().may_describe(asked(""))


def test_trusted_client_may_describe_and_alter() -> None:
    nothing_configured = Permissions(frozenset(), frozenset())
    assert nothing_configured.may_alter(asked("ANONYMOUS", trusted=True))
    assert nothing_configured.may_describe(asked("ANONYMOUS", trusted=True))


@pytest.mark.parametrize(("user", "may"), [("ann", True), ("bob", False), ("ANONYMOUS", False), ("", False)])
def test_named_principals_may_alter_and_so_describe(user: str, may: bool) -> None:
    permissions = Permissions(frozenset(("ann", "")), frozenset())
    assert permissions.may_alter(asked(user)) == may
    assert permissions.may_describe(asked(user)) == may


def test_star_permits_any_principal() -> None:
    assert Permissions(frozenset("*")).may_alter(asked(""))
