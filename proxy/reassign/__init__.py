"""Reassignments in small batches: taken over, journaled, carried out step by step (KIP-435).

    entries, journal     what is under way, on disk before it is done
    leader_lock          which of several proxies executes
    cluster              what the cluster says, and what it is told
    validation, api      a caller's request: judged as Kafka does, its first step on the caller's own connection
    reconcile, executor  what to do next, and the loop that does it
    status               what it shows

The steps themselves are `quotas.reassignment.step` and `quotas.reassignment.batch`: pure.
"""

from proxy.reassign.service import Reassignments

__all__ = ["Reassignments"]
