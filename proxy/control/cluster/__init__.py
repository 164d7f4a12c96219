"""The cluster as Sluice's own connections see it: the brokers' addresses, and what is read from them regularly."""

from proxy.control.cluster.brokers import BrokerMap, KnownBrokers, MapFile, Maps, maps_of
from proxy.control.cluster.bypasses import Advertised
from proxy.control.cluster.client import BrokerClient, login_of
from proxy.control.cluster.poller import Poller
from proxy.control.cluster.quota_mirror import QuotaMirror
from proxy.control.cluster.replication_source import ReplicationSource
from proxy.control.cluster.topic_ids import TopicIds

__all__ = [
    "Advertised",
    "BrokerClient",
    "BrokerMap",
    "KnownBrokers",
    "MapFile",
    "Maps",
    "Poller",
    "QuotaMirror",
    "ReplicationSource",
    "TopicIds",
    "login_of",
    "maps_of",
]
