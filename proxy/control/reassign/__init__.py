"""Reassignments in small batches: accepted, journaled, and executed step by step (KIP-435).

    api                  requests: on the caller's connection, and decided in this process
    planning             validates a caller's request as Kafka does, and plans its first steps
    journal              the records of moves under way, durable before each step, and their state in memory
    file_journal         the journal in a file, and the lock of the process that executes
    topic_journal        the journal in a topic, and who executes
    topic_place          that, put together, with requests to the holder of the fleet
    cluster              reads the cluster's state and submits changes
    reconcile, executor  decides on the next steps, and the loop that executes them
    status               the progress for operators
    service              all of it, assembled for the application

The arithmetic of the steps is in `quotas.reassignment.step` and `quotas.reassignment.batch`, which are pure.
"""

from proxy.control.reassign.service import Reassignments, make_reassignments

__all__ = ["Reassignments", "make_reassignments"]
