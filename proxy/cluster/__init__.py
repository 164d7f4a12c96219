"""The cluster as Sluice's own connections see it: the brokers' addresses, and what is read from them regularly."""

from proxy.cluster.advertised import Advertised
from proxy.cluster.brokers import BrokerMap, KnownBrokers
from proxy.cluster.client import BrokerClient
from proxy.cluster.login import login_of
from proxy.cluster.map_file import MapFile
from proxy.cluster.maps import Maps, maps_of
from proxy.cluster.poller import Poller
from proxy.cluster.quota_mirror import QuotaMirror
from proxy.cluster.replication_source import ReplicationSource
from proxy.cluster.topic_ids import TopicIds

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
