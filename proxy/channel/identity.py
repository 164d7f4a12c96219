"""An identity on a channel: a client id's quotas, and the channel's own flows at them.

Kafka takes the client id from each request's header, not from the connection (reference §1.3), so a channel
may have several; `ChannelState` keeps them in a bounded map.
"""

from proxy.channel.in_flight import Owed
from quotas.engine import ClientQuota
from quotas.limiters.flow import Flow

__all__ = ["Identity"]


class Identity:
    """One client id on one channel.

    Attributes:
        quota: the identity's throttles, shared with every other channel of the same quota entity.
        produce, fetch: this channel's flows at them.
        fetched: what is owed for a Fetch that is not limited; None before the first one.
    """

    __slots__ = ("fetch", "fetched", "produce", "quota")

    def __init__(self, quota: ClientQuota) -> None:
        self.quota = quota
        self.produce: Flow = quota.produce.flow()
        self.fetch: Flow = quota.fetch.flow()
        self.fetched: Owed | None = None

    def leave(self, now_ms: int) -> None:
        """Give both flows back: this channel asks for nothing more in this name."""
        self.quota.produce.leave(self.produce, now_ms)
        self.quota.fetch.leave(self.fetch, now_ms)
        self.fetched = None  # which refers to this
