"""Quota rules as arithmetic: an event and its time are the input, a decision is the result (KIP-13, KIP-219).

Pure: no IO, no clock, no threads; Spark executors use it unchanged.

    engine          the quotas of a process: throttles by client, live changes; begin here
    options         how quotas are enforced
    errors          invalid definitions
    definitions     which entity has which limits, and the quotas file
    limiters        the arithmetic: windows, token bucket, the policies
    throttles       each kind of quota applied to one client, topic, user or address
    sharing         leases of a rate over several processes
    replication     replication quotas (KIP-73)
    reassignment    reassignments in small batches (KIP-435)
    backtest        the same rules over recorded requests, compiled
"""
