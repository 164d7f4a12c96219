"""The interface of the shares that a member's connection serves: of a process, or of a process and its workers.

With workers it is implemented by `quotas.sharing.member.Member`, without by `quotas.sharing.budgets.Budgets`.
"""

from typing import Protocol

from quotas.sharing.lease_values import Grants, Report


class Leasing(Protocol):
    """A lessee, and all processes below it."""

    def report(self, now_ms: int) -> Report | None:
        """Note the end of a lease; return the report to send now, if one is due."""

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply grants; returns whether they belong to the open session."""
