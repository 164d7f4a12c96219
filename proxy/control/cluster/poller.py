"""Sluice's own Metadata connection: reads the brokers every few seconds, and reports why that fails.

A broker that belongs to another cluster than before is passed over: addresses are reused, and clients would be
connected to that one. Only if a configured address leads there, and for several rounds none to the cluster known
before, it is the cluster from now on, as after a cluster was made anew.

One short connection per round. While no broker responds, rounds are repeated with a growing pause, and the listeners
stay bound.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kafka_client import metadata
from proxy.config.options import BROKERS_NAMED_MAX, ListenerOptions
from proxy.control.cluster.brokers import BrokerMap, MapFile
from proxy.control.cluster.client import BrokerClient, Target, first_response
from proxy.events import Tell, untold
from proxy.events.broker_states import BrokerStates
from proxy.events.kinds import BrokersWithoutPort, ClusterBack, ClusterLost
from proxy.system.clock import now_ms
from proxy.system.errors import shorten
from proxy.system.logs import event

_POLL_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
# A cluster that does not respond in so many rounds, in 9 s or more, may be replaced by another one.
_ROUNDS_WITHOUT_MIN: Final = len(_RETRY_SECONDS)
RESPONSE_SECONDS_MAX: Final = 5.0
# Names that are looked up at a time; one may take as long as the system's resolver likes.
_LOOKUPS_MAX: Final = 16
_PORTION: Final = 200  # brokers taken in one turn of the loop

logger = logging.getLogger(__name__)


class Poller:
    """Keeps a broker map up to date: asks the cluster for its brokers and resolves their host names.

    Args:
        follow: whether addresses are learned from the cluster's metadata; a sidecar's upstreams are fixed.
        others: other maps whose host names are resolved too.
        listeners: the listeners whose clients are connected to these brokers.
        tell: called with each event.

    Attributes:
        problem: why clients cannot be connected to the cluster now; "" if they can.
        states: stores which brokers do not respond, and makes an event when one is lost or back.
    """

    def __init__(
        self,
        client: BrokerClient,
        map_file: MapFile | None,
        *,
        follow: bool,
        others: Sequence[BrokerMap] = (),
        listeners: Sequence[ListenerOptions] = (),
        tell: Tell = untold,
    ) -> None:
        self._tell = tell
        self.states = BrokerStates(tell)
        self._client = client
        self._brokers = client.brokers
        self._others = others
        self._listeners = listeners
        self._without_port: set[tuple[str, int]] = set()  # brokers by listener, of the last round
        self._map_file = map_file
        self._follow = follow
        self._failures = 0
        self._other: metadata.ClusterBrokers | None = None  # another cluster, at a configured address
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._unknown: set[str] = set()  # names that could not be resolved: others come first
        self.problem = "the cluster has not been asked yet"

    async def run(self) -> None:
        """Call `poll` again and again, with the pauses that it returns, until cancelled by the application."""
        try:
            while True:
                pause_seconds = await self.poll()
                await asyncio.sleep(pause_seconds)
        finally:
            for lookup in self._lookups.values():
                lookup.cancel()

    async def poll(self) -> float:
        """Ask the cluster for its brokers and update the map; returns the pause until the next call, in seconds."""
        self.states.settle(now_ms())
        await self.resolve()
        targets = self._brokers.targets()
        try:
            if not targets:
                raise OSError("no address of [cluster] bootstrap can be resolved")
            self._other = None
            found = await first_response(targets, self._ask, RESPONSE_SECONDS_MAX)
        except OSError as error:
            if self._other is None or self._failures < _ROUNDS_WITHOUT_MIN:
                self._failed(str(error))
                self._failures += 1
                return _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS)) - 1]
            found = self._other
            known = self._brokers.cluster_id
            event(logger, logging.WARNING, "another cluster", before=known, now=shorten(found.cluster_id))
            self._brokers.forget()
        if found.cluster_id:
            self._brokers.set_cluster(found.cluster_id)
        await self._found(found.brokers)
        return _POLL_SECONDS

    async def _ask(self, target: Target) -> metadata.ClusterBrokers:
        async with asyncio.timeout(RESPONSE_SECONDS_MAX):
            found = await self._client.ask(target, metadata.cluster_brokers(), anyone=True)
        known = self._brokers.cluster_id
        if known and found.cluster_id not in ("", known) and self._follow:
            if self._brokers.is_configured(target):
                self._other = self._other or found
            raise OSError(f"belongs to cluster {shorten(found.cluster_id)}, not to {known}")
        return found

    async def _found(self, found: Sequence[metadata.Broker]) -> None:
        if self.problem:
            event(logger, logging.INFO, "cluster found", brokers=len(found))
            if self._failures:
                self._tell(ClusterBack(len(found)))
        self.problem = ""
        self._failures = 0
        if self._follow:
            self._brokers.set_live(broker for broker, _, _ in found)
            self.states.listed(self._brokers.live(), now_ms())
            self._look_for_ports()
            for index, (broker, host, port) in enumerate(found):
                self._brokers.learn(broker, host, port)
                if index % _PORTION == _PORTION - 1:
                    await asyncio.sleep(0)
            self._brokers.retire()
            await self.resolve()
        if self._brokers.changed and self._map_file is not None:
            self._brokers.changed = False
            if not await asyncio.to_thread(self._map_file.write, dict(self._brokers.addresses())):
                self._brokers.changed = True  # the disk may have room the next time

    def _look_for_ports(self) -> None:
        """Report brokers that no port leads to, once when they appear."""
        found: set[tuple[str, int]] = set()
        for listener in self._listeners:
            missing = listener.without_port(self._brokers.live())
            found.update((listener.name, broker) for broker in missing)
            new = [broker for broker in missing if (listener.name, broker) not in self._without_port]
            if new:
                names = ",".join(map(str, new[:BROKERS_NAMED_MAX]))
                self._tell(BrokersWithoutPort(listener.name, names, listener.port_problem(new)))
        self._without_port = found

    def _failed(self, problem: str) -> None:
        if not self._failures:
            event(logger, logging.WARNING, "cluster unreachable", detail=problem)
            self._tell(ClusterLost(problem))
        self.problem = f"cluster unreachable: {problem}"

    async def resolve(self) -> None:
        """Resolve all host names of the maps again; slow look-ups continue in the background."""
        hosts = {host for brokers in (self._brokers, *self._others) for host in brokers.hosts()}
        self._unknown &= hosts
        waiting = sorted(hosts.difference(self._lookups), key=lambda host: host not in self._unknown)
        with suppress(TimeoutError):
            async with asyncio.timeout(RESPONSE_SECONDS_MAX):
                while waiting or self._lookups:
                    while waiting and len(self._lookups) < _LOOKUPS_MAX:
                        host = waiting.pop()
                        self._lookups[host] = asyncio.create_task(self._look_up(host))
                    await asyncio.wait(self._lookups.values(), return_when=asyncio.FIRST_COMPLETED)

    async def _look_up(self, host: str) -> None:
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):  # an impossible name is a ValueError
            self._unknown.add(host)
        else:
            self._unknown.discard(host)
            for brokers in (self._brokers, *self._others):
                brokers.resolved(host, str(found[0][4][0]))
        finally:
            del self._lookups[host]
