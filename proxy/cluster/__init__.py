"""Sluice's own view of the cluster: which broker listens where, and what is asked of the brokers regularly."""

from proxy.cluster.advertised import Advertised
from proxy.cluster.brokers import BrokerMap
from proxy.cluster.connect import Tls
from proxy.cluster.login import login_of
from proxy.cluster.map_file import MapFile
from proxy.cluster.poller import Poller
from proxy.cluster.quota_mirror import QuotaMirror
from proxy.cluster.replication_source import ReplicationSource
from proxy.cluster.topic_ids import TopicIds

__all__ = [
    "Advertised",
    "BrokerMap",
    "MapFile",
    "Poller",
    "QuotaMirror",
    "ReplicationSource",
    "Tls",
    "TopicIds",
    "login_of",
]
