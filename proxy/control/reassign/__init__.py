"""Reassignments in small batches: accepted, journaled, and executed step by step (KIP-435).

    entries, journal     the moves under way; durable before each step
    file_journal         the journal in a file
    topic_records        the journal's records in a compacted topic
    topic_journal        the journal in a topic, and who executes
    leader_lock          which of several proxies executes
    cluster              reads the cluster's state and submits changes
    decisions            on requests: validated as Kafka does, journaled, and their results
    forwarding           a member's requests to the holder of its fleet
    validation, api      validates a caller's request as Kafka does, and sends its first step on the caller's connection
    reconcile, executor  decides on the next steps, and the loop that executes them
    places, topic_place  where a process keeps its journal, put together
    status               the progress for operators

The arithmetic of the steps is in `quotas.reassignment.step` and `quotas.reassignment.batch`, which are pure.
"""

from proxy.control.reassign.service import Reassignments, make_reassignments

__all__ = ["Reassignments", "make_reassignments"]
