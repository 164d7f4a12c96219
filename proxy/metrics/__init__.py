"""Metrics: what the process and the quota engine have counted, in Prometheus' text format.

    families        the type of all families, and those of the process, its captures and its workers
    series          which clients get series of their own, with the rest summed; their families
    replication     the families of replication (KIP-73)
    fleet           the families of a fleet's member
    exposition      all families of one process as /metrics
    merging         the figures of several processes as one

The counters themselves are `proxy.system.stats` and the throttles'; docs/metrics.md lists every name.
"""
