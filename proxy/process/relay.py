"""The data path of one process: listeners, connections, quota engine, capture; the sweep and the drain.

Everything that does not come from its clients is given to it: configuration, quotas, routes to brokers. The application
obtains these, in the same process or in the control process.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic_ns, process_time_ns
from typing import TYPE_CHECKING, Final

from proxy.capture import start as start_capture
from proxy.channel import ChannelSettings, OngoingMoves, OwnNames, own_names
from proxy.config import Config, ListenerOptions
from proxy.config.definitions import engine_options
from proxy.control.cluster import BrokerMap
from proxy.control.reload import Certificates
from proxy.net import Ask, Connections, Listener, Shared
from proxy.process.watching import Watching
from proxy.system.clock import now_ms
from proxy.system.logs import event
from proxy.system.priority import Priority
from proxy.system.stats import Stats
from proxy.system.supervisor import Supervisor
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import BucketKey
from quotas.engine import Engine
from quotas.replication.replication_quotas import ReplicationQuotas

if TYPE_CHECKING:
    from quotas.sharing.capacities import Capacities

AGAIN_MS: Final = 600_000
KNOWN_MAX: Final = 256

logger = logging.getLogger(__name__)


def configured_names(config: Config) -> OwnNames | None:
    """Return the topics, groups and transactional ids that are Sluice's own: clients cannot use them. None for none."""
    topics, groups, transactional_ids = set[str](), set[str](), set[str]()
    if config.quotas.store == "topic":
        topics |= {config.quotas.topic, config.quotas.audit_topic} - {""}
    if config.fleet.has_group:
        groups.add(config.fleet.group)
        topics.add(config.fleet.group)  # its members subscribe to it; it need not exist
    if config.reassignment.in_topic:
        topics.add(config.reassignment.journal_topic)
        transactional_ids.add(config.reassignment.journal_topic)
    return own_names(frozenset(topics), frozenset(groups), frozenset(transactional_ids), Refusals())


class Refusals:
    """Logs clients' attempts to use Sluice's own names.

    One line for each address and API in ten minutes, at most KNOWN_MAX of them; all are counted elsewhere.

    Args:
        now_ms: the clock.
    """

    def __init__(self, now_ms: Callable[[], int] = now_ms) -> None:
        self._now_ms = now_ms
        self._said_ms: dict[tuple[str, str], int] = {}  # the oldest first

    def __call__(self, user: str, address: str, client_id: str, api: str) -> None:
        """Log a refusal, unless one of the same address and API was logged lately."""
        now_ms, said = self._now_ms(), self._said_ms
        while said and now_ms - next(iter(said.values())) >= AGAIN_MS:
            del said[next(iter(said))]
        if (address, api) in said or len(said) >= KNOWN_MAX:
            return
        said[address, api] = now_ms
        fields = {"user": user, "address": address, "client_id": client_id, "api": api}
        event(logger, logging.WARNING, "refused a request that names something of Sluice's own", **fields)


_SWEEP_SECONDS: Final = 1.0
_DRAIN_STEP_SECONDS: Final = 0.05
# Within the first part all connections begin to end: the rest is as long as the longest hold, by default.
_DRAIN_PARTS: Final = 4


class Relay:
    """The listeners of one process and their connections, under one quota engine.

    Args:
        config: the configuration; only listeners that are passed to `listen` are served.
        definitions: the quotas in force.
        ask: handles clients' requests to which a channel cannot respond itself, as those of the quota API.
    """

    def __init__(
        self,
        config: Config,
        definitions: Definitions,
        loop: asyncio.AbstractEventLoop,
        stats: Stats,
        supervisor: Supervisor,
        certificates: Certificates,
        ask: Ask,
    ) -> None:
        self._config = config
        self._own = configured_names(config)
        self._supervisor = supervisor
        self._certificates = certificates
        self.stats = stats
        self.engine = Engine(engine_options(config), definitions)
        self.capacities: list[
            Capacities
        ] = []  # of each part of the keys; while classes may borrow (`shares`)
        self.shared = Shared(loop, self.engine, config.limits, stats)
        self.shared.broker_tls = certificates.brokers
        self.shared.ask = ask
        self.connections = Connections()
        self.watching = Watching(self.connections, self.engine, self.stats)
        self.replication = ReplicationQuotas(config.replication.options)
        definitions.replication = config.replication.terms()
        self._listeners: list[Listener] = []
        self._capture = start_capture(
            config.capture, stats, self.engine.topics.names, loop, now_ms, self._limit
        )
        if self._capture is not None:
            self.shared.recorder = self._capture.recorder

    def listen(
        self, options: ListenerOptions, routes: BrokerMap, moves: OngoingMoves | None, *, quota_api: bool
    ) -> None:
        """Add a listener, whose ports are not bound yet.

        Args:
            routes: the addresses of the brokers behind it.
            moves: the reassignments that Sluice executes in steps; None if it forwards reassignments unchanged.
            quota_api: whether Sluice itself responds to Describe- and AlterClientQuotas, in place of the broker.
        """
        config = self._config
        own = None if options.replicates else self._own
        address_map = None if options.sidecar else partial(routes.address_map, options)

        def settings(broker: int) -> ChannelSettings:
            return ChannelSettings(
                broker=broker,
                address_map=address_map,
                cluster_id=lambda: routes.cluster_id,
                replication=self.replication if options.replicates else None,
                frame_bytes_max=config.limits.frame_bytes_max,
                response_bytes_max=config.limits.response_bytes_max,
                oauth_claim=options.oauth_claim,
                serves_quota_api=quota_api,
                sasl=bool(config.cluster.sasl_mechanism),
                trusted=config.trusts(options),
                reassignments=moves,
                own=own,
            )

        tls = self._certificates.listeners.get(options.name)
        self._listeners.append(Listener(options, settings, routes, self.shared, self.connections, tls))

    def open(self) -> None:
        """Bind all ports.

        Raises:
            StartError: a port cannot be bound.
        """
        for listener in self._listeners:
            listener.open()

    def not_accepting(self) -> str:
        """Return why a listener accepts no connection now; "" if all do."""
        return "; ".join(filter(None, (listener.not_accepting() for listener in self._listeners)))

    def start(self) -> None:
        """Start the background tasks: closing idle and slow connections, and observing where clients' time goes."""
        self._supervisor.run_forever("watching", self.watching.run)
        self._sweep_task = self._supervisor.run_forever("sweep", self._sweep)

    def apply(self, config: Config, definitions: Definitions) -> None:
        """Apply a new configuration and quotas; they do not change waits that have begun, until `reconsider`."""
        definitions.replication = config.replication.terms()
        self.engine.update(engine_options(config), definitions, now_ms())

    def enforce(self, on: bool) -> None:
        """Switch the enforcement of all quotas on or off."""
        self.engine.switch_enforcement(on)
        self.replication.enforcing = on

    def reconsider(self) -> None:
        """Decide again on all held requests and mutes, by the quotas now in force; runs in the background."""
        self._supervisor.run_once("reconsider", self.connections.reconsider())

    async def drain(self, hurried: Callable[[], bool]) -> None:
        """Stop accepting; close each connection when idle, and the rest after `limits.drain_seconds`.

        Connections begin to end one after the other. Holds stay in force: in a fleet the clients' next connections are
        at other members, which share the quotas. Mutes end, since no further request is taken.

        Args:
            hurried: returns True as soon as the process has to end at once.
        """
        for listener in self._listeners:
            listener.close()
        event(logger, logging.INFO, "draining", connections=len(self.connections))
        now, drain_ms = now_ms(), int(self._config.limits.drain_seconds * 1000)
        times = self.connections.drain_times(now, drain_ms // _DRAIN_PARTS)
        while (self.connections or self.shared.arrivals) and now_ms() < now + drain_ms and not hurried():
            await self.connections.drain(times)
            await asyncio.sleep(_DRAIN_STEP_SECONDS)
        left = len(self.connections)
        await self.connections.close("drain_limit")
        event(logger, logging.INFO, "stopped", connections_cut=left)

    async def end_capture(self, hurried: Callable[[], bool]) -> None:
        """End the periodic sweep, and wait until all captured rows are written.

        Args:
            hurried: returns True as soon as the process has to end at once.
        """
        self._sweep_task.cancel()
        if self._capture is not None:
            self._capture.close()
            await asyncio.to_thread(self._capture.wait, hurried)

    async def _sweep(self) -> None:
        """Check all connections for idle and slow ones periodically, expire state, and write captured rows."""
        priority = Priority()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            priority.adapt(process_time_ns(), monotonic_ns())
            await self.connections.sweep()
            self._supervisor.call("expire", self._expire)
            if self._capture is not None:
                self._supervisor.call("capture", self._capture.recorder.full)

    def _limit(self, key: str, user: str, client_id: str) -> tuple[float | None, BucketKey]:
        """Return the limit and the bucket of a client, by the quotas in force; any thread may call it."""
        return self.engine.definitions.limit(key, user, client_id)

    def _expire(self) -> None:
        """Remove expired clients and fetch sessions, and relieve kept bytes."""
        now = now_ms()
        self.engine.expire(now)
        self.shared.sessions.expire(now)
        self.shared.kept.relieve()
