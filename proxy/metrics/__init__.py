"""Metrics: what the process and the quota engine have counted, in Prometheus' text format.

    exposition          all families of /metrics
    series              which clients get series of their own; the rest is summed
    quota_series        the rows of all kinds of quotas
    merging             the figures of several processes as one
    worker_families     families of worker processes
    client_families     families of clients and topics
    process_families    families of the process and of capture
    replication         what is shown of replication (KIP-73)
    leases              what is shown of leases

The counters themselves are `proxy.system.stats` and the throttles'; docs/metrics.md lists every name.
"""

__all__: list[str] = []
