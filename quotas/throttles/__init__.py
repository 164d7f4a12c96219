"""Throttles: each kind of quota applied to one client, topic, user or address. They own or share limiters.

    client              all throttles of one client at one broker
    bandwidth           bytes of Produce and Fetch (KIP-13, KIP-219)
    request             broker time: `request_percentage`; `request_quotas` holds all of a process
    mutation            partition mutations (KIP-599); `mutation_quotas` holds all of a process
    topic_quotas        bytes of one topic, by all clients together; `topic_names` maps ids to names (KIP-516)
    connections         connections of an IP address (KIP-612)
    user_connections    connections of a user
    mute                the longest mute of a connection (KIP-219)
    counters            how often and how long a throttle has throttled
    windowed            the rate that metrics show
    quota_view          what the engine shows of one client and one kind of quota
    prediction          the effect of a quota that is only observed
    footprint           the memory of one client, topic, user and address
    ttl_map             a bounded map whose entries expire

The engine makes them and replaces their limits when definitions change.
"""

from quotas.throttles.bandwidth import Throttle
from quotas.throttles.client import ClientQuota
from quotas.throttles.connections import ConnectionRates
from quotas.throttles.figures import QuotaView
from quotas.throttles.mutation import MutationThrottle
from quotas.throttles.request import RequestThrottle

__all__ = ["ClientQuota", "ConnectionRates", "MutationThrottle", "QuotaView", "RequestThrottle", "Throttle"]
