"""What a member's connection to the holder serves: the shares of a process, or of a process and its workers.

A process with workers leases through `quotas.sharing.member.Member`; one without through `quotas.sharing.budgets`.
"""

from typing import Protocol

from quotas.sharing.lease_values import Grants, Report

__all__ = ["Leasing"]


class Leasing(Protocol):
    """A lessee, and all processes below it."""

    def report(self, now_ms: int) -> Report | None:
        """Note the end of a lease; return the report to send now, if one is due."""

    def take(self, grants: Grants, now_ms: int) -> bool:
        """Apply grants; returns whether they belong here."""
