"""Real Kafka for tests, demo and benchmarks: brokers (`Cluster`), Kafka's tools (`tools`), ports, child processes."""

from tests.cluster.cluster import Cluster, ClusterError
from tests.cluster.jars import MissingPrerequisiteError, ensure_jars
from tests.cluster.options import CLIENTS, ClusterOptions, Host, Listener
from tests.cluster.ports import HOST, free_port, free_ports
from tests.cluster.readiness import Address, brokers

__all__ = [
    "CLIENTS",
    "HOST",
    "Address",
    "Cluster",
    "ClusterError",
    "ClusterOptions",
    "Host",
    "Listener",
    "MissingPrerequisiteError",
    "brokers",
    "ensure_jars",
    "free_port",
    "free_ports",
]
