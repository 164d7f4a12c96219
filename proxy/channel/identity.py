"""The identity of a channel: the quotas of a client id, and the channel's own flows for them.

Kafka uses the client id in each request's header, not one per connection (kafka-quotas.md §1.3), so a channel may have
several identities; `ChannelState` keeps them in a bounded map.
"""

from proxy.channel.in_flight import Owed
from quotas.limiters.flow import Flow
from quotas.throttles.client import ClientQuota


class Identity:
    """One client id on one channel.

    Attributes:
        key: the client id as sent.
        quota: the throttles, shared with every other channel of the same quota entity.
        produce, fetch: this channel's flows for the throttles.
        fetched: the owed response of an unlimited Fetch; None before the first one.
    """

    __slots__ = ("fetch", "fetched", "key", "produce", "quota")

    def __init__(self, key: bytes, quota: ClientQuota) -> None:
        self.key = key
        self.quota = quota
        self.produce: Flow = quota.produce.flow()
        self.fetch: Flow = quota.fetch.flow()
        self.fetched: Owed | None = None

    def leave(self, now_ms: int) -> None:
        """Remove both flows: the channel sends no more requests with this client id."""
        self.quota.produce.leave(self.produce, now_ms)
        self.quota.fetch.leave(self.fetch, now_ms)
        self.fetched = None  # it refers to this object
