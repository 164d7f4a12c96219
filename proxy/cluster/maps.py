"""The broker maps that a configuration asks for: of the brokers behind clients' listeners, and of leaders."""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.cluster.brokers import BrokerMap
from proxy.config import Address, Config
from proxy.system.stats import Stats


class Maps(NamedTuple):
    """The broker maps.

    Args:
        brokers: for clients.
        leaders: for followers: what stands behind the brokers' own listener is another listener of theirs.
        follow: whether the first follows the cluster's metadata; a sidecar's upstreams are fixed.
        replicates: whether there are leaders.
    """

    brokers: BrokerMap
    leaders: BrokerMap
    follow: bool
    replicates: bool


def maps_of(config: Config, stats: Stats) -> Maps:
    """Create the maps, with what is configured."""
    upstreams = config.upstreams(replicates=False)
    leaders = config.upstreams(replicates=True)
    if not upstreams and config.cluster.bootstrap == tuple(leaders.values()):
        upstreams = leaders  # no other address of the brokers is configured
    brokers = BrokerMap(config.cluster.bootstrap or tuple(upstreams.values()), stats)
    _learn(brokers, upstreams)
    brokers.set_live(upstreams)
    behind = BrokerMap(tuple(leaders.values()), stats)
    _learn(behind, leaders)
    return Maps(brokers, behind, not upstreams, bool(leaders))


def _learn(brokers: BrokerMap, addresses: Mapping[int, Address]) -> None:
    for broker, address in addresses.items():
        brokers.learn(broker, *address)
