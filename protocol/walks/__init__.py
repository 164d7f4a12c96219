"""Walks: resumable readers of messages that are relayed while they arrive, so that records are never kept.

    walk            the base class: the steps of a walk, and the sink for partitions
    produce         a Produce request: the bytes of each topic
    fetch           a Fetch response: its NodeEndpoints (KIP-951), and the bytes of each topic
    share           ShareFetch and ShareAcknowledge responses (KIP-932); the fields of ShareFetch requests
    replica         a sink: high watermarks and sizes of a follower's replicas (KIP-73)
    captured        a sink: each partition's bytes and records, for capture
    plain_fetch     the most frequent form of a Fetch response in one loop, for capture
    plain_produce   the most frequent form of a Produce request in one `unpack`, for capture

Messages that are read as a whole are in `protocol.messages`.
"""

__all__: list[str] = []
