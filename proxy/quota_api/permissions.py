"""Permissions to describe and alter quotas (`[quotas] alter_principals`, `describe_principals`).

Kafka's authorizer decides on DescribeConfigs and AlterConfigs of the cluster; without an authorizer both are allowed.
Sluice does not know the brokers' ACLs, so it has two lists. The listed principals may alter quotas, and so may
unauthenticated clients of a listener that only this machine can reach. Any client may describe quotas by default, since
tools describe before they alter, and quotas are not secret in a cluster without ACLs.
"""

from dataclasses import dataclass
from typing import Final

from proxy.channel import Question

ANY_PRINCIPAL: Final = "*"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Two lists of principals; "*" in a list is any principal, also an unauthenticated one."""

    alter: frozenset[str] = frozenset()
    describe: frozenset[str] = frozenset((ANY_PRINCIPAL,))

    def may_alter(self, question: Question) -> bool:
        """Whether the requesting client may alter quotas."""
        return question.trusted or _named(question.user, self.alter)

    def may_describe(self, question: Question) -> bool:
        """Whether the requesting client may describe quotas; the permission to alter includes it."""
        return self.may_alter(question) or _named(question.user, self.describe)


def _named(user: str, principals: frozenset[str]) -> bool:
    return ANY_PRINCIPAL in principals or (user != "" and user in principals)
