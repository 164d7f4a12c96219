"""Who may ask for quotas and alter them (`[quotas] alter_principals`, `describe_principals`).

Kafka asks its authorizer for DescribeConfigs and AlterConfigs on the cluster, and where none runs, everybody has
both. Sluice does not see the brokers' ACLs, so it has two lists instead. To alter is for those who are named, and for
whoever comes unauthenticated through a listener that only this machine reaches. To describe is for everybody unless
the list says otherwise, since a tool that alters describes first, and quotas are no secret in a cluster without ACLs.
"""

from dataclasses import dataclass
from typing import Final

from proxy.channel import Question

__all__ = ["EVERYBODY", "Permissions"]

EVERYBODY: Final = "*"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Two lists of principals; "*" in one is everybody."""

    alter: frozenset[str] = frozenset()
    describe: frozenset[str] = frozenset((EVERYBODY,))

    def may_alter(self, question: Question) -> bool:
        """Whether who asks may alter quotas."""
        return question.trusted or _named(question.user, self.alter)

    def may_describe(self, question: Question) -> bool:
        """Whether who asks may see quotas; who may alter them may."""
        return self.may_alter(question) or _named(question.user, self.describe)


def _named(user: str, principals: frozenset[str]) -> bool:
    return EVERYBODY in principals or (user != "" and user in principals)
