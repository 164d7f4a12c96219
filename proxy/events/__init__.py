"""What has happened to this process, its quotas, its brokers and its clients: kept in memory, and a log line each.

    kinds          the events that there are, a struct each: pure
    ring           counts, logs and keeps events, bounded by kind; any thread may tell one
    broker_states  which brokers are lost, by metadata or by connections, and back: pure

Components take a `Tell`, and know neither the ring nor the page that shows it (`/v1/events`, docs/api.md).
"""

from proxy.events.kinds import Event, Tell, untold
from proxy.events.ring import Events

__all__ = ["Event", "Events", "Tell", "untold"]
