"""Walks: resumable readers of messages that are relayed while they arrive, so that records are never kept.

    walk        the base class: the steps of a walk, and the sink for partitions
    produce     a Produce request: the bytes of each topic
    fetch       a Fetch response: its NodeEndpoints (KIP-951), the bytes of each topic; each replica's status (KIP-73)
    share       ShareFetch and ShareAcknowledge responses (KIP-932); the fields of ShareFetch requests
    captured    each partition's bytes and records, for capture

Messages that are read as a whole are in `protocol.messages`.
"""

__all__: list[str] = []
