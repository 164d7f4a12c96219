"""What a request that waits has asked about topics (KIP-599); asking and answering is `topic_sizes`."""

__all__ = ["TopicLookup"]


class TopicLookup:
    """Sizes of topics, as they are answered.

    Attributes:
        pending: answers that are still owed.
        sizes: number of partitions by name or id; topics that the broker does not know are not in it.
    """

    __slots__ = ("pending", "sizes")

    def __init__(self) -> None:
        self.pending = 0
        self.sizes: dict[str | bytes, int] = {}
