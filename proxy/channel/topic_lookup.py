"""The topic sizes that a waiting request has asked for (KIP-599); requests and responses are in `topic_sizes`."""


class TopicLookup:
    """Sizes of topics, filled in as responses arrive.

    Attributes:
        pending: the number of responses still owed.
        sizes: number of partitions by name or id; topics that the broker does not know are not in it.
    """

    __slots__ = ("pending", "sizes")

    def __init__(self) -> None:
        self.pending = 0
        self.sizes: dict[str | bytes, int] = {}
