"""Replication quotas (KIP-73): the rates of leaders and followers, and which replicas count against them.

    replication_quotas  which replicas are throttled, all rates of a process, and their bytes granted to replicas
    rates               one leader's or follower's rate: Kafka's windows, or paced

Fetch sessions with replicas left out are in `protocol.messages`; the connection's machine is in `proxy.channel`.
"""
