"""Sluice's own view of the cluster: which broker listens where, and the connection that asks."""

from proxy.cluster.advertised import Advertised
from proxy.cluster.brokers import BrokerMap
from proxy.cluster.dialling import Tls
from proxy.cluster.login import Login, login_of
from proxy.cluster.map_file import MapFile
from proxy.cluster.poller import Poller
from proxy.cluster.quota_mirror import QuotaMirror
from proxy.cluster.replication_source import ReplicationSource
from proxy.cluster.topic_ids import TopicIds

__all__ = [
    "Advertised",
    "BrokerMap",
    "Login",
    "MapFile",
    "Poller",
    "QuotaMirror",
    "ReplicationSource",
    "Tls",
    "TopicIds",
    "login_of",
]
