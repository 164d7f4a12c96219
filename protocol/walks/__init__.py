"""Walks: resumable readers of messages that are relayed while they arrive, so that records are never kept.

    walk            the walk itself: steps over a message, and sinks for what it finds
    produce         a Produce request, for the bytes of each topic
    fetch           a Fetch response, to its NodeEndpoints (KIP-951), and for the bytes of each topic
    share           ShareFetch and ShareAcknowledge responses (KIP-932); the fields of ShareFetch requests
    replica         a sink: high watermarks and sizes of a follower's replicas (KIP-73)
    captured        a sink: each partition's bytes and records, for capture
    plain_produce   the most frequent form of a Produce request in one `unpack`, for capture

Messages that are read as a whole are in `protocol.messages`.
"""

__all__: list[str] = []
