"""The composition root: builds everything from a configuration, starts it, drains it, stops it.

    SIGTERM, SIGINT   drain: no new connections, /readyz fails, mutes end, held requests are forwarded in their time,
                      responses in flight are sent, idle connections are closed, all within limits.drain_seconds; a
                      second signal ends it at once
    SIGHUP            read the configuration again
    SIGUSR1           switch all enforcement off, or on again

Errors before the proxy serves end it (`StartError`, `ConfigError`); from then on only a signal does.
"""

import asyncio
import gc
import logging
import os
import resource
import secrets
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop
from msgspec.structs import replace

from protocol.api import ALTER_PARTITION_REASSIGNMENTS
from proxy.admin import AdminServer, Admission, Explanations, Figures, OwnFigures, Site, State, status_of
from proxy.channel import OngoingMoves, Question
from proxy.config import AUTO, WORKERS_MAX, CaptureOptions, Config, ListenerOptions
from proxy.control.cluster import (
    Advertised,
    BrokerClient,
    MapFile,
    Poller,
    QuotaMirror,
    ReplicationSource,
    TopicIds,
    login_of,
    maps_of,
)
from proxy.control.cluster.bypasses import Unguarded, own_things
from proxy.control.enforcement import Enforcement, EnforcementFile
from proxy.control.quotas import FileStore, Origins, QuotaService, QuotaStore, open_store
from proxy.control.reassign import make_reassignments
from proxy.control.reload import Certificates, Reloader
from proxy.events import Events, Tell
from proxy.events.broker_states import BrokerStates
from proxy.events.kinds import Started
from proxy.explain.documents import Missing, StatusDocument
from proxy.metrics.exposition import Metrics
from proxy.metrics.replication import ReplicationMetrics
from proxy.net import OutcomeCallback, Withdraw, end_owner, nothing_to_withdraw
from proxy.process.capacities import CapacityReports
from proxy.process.relay import Relay
from proxy.process.watching import ProcessEvents
from proxy.system import compiled
from proxy.system.clock import now_ms
from proxy.system.errors import StartError, sluice_version
from proxy.system.logs import Field, event
from proxy.system.stats import Stats
from proxy.system.supervisor import Supervisor
from quotas.definitions.definitions import Definitions

if TYPE_CHECKING:
    from proxy.control.quotas.quota_topic import QuotaTopic
    from proxy.fleet.fleet import Fleet
    from proxy.process.workers import Workers
    from proxy.topics.topic import Access

_OWN: Final = 0  # the source of the process itself; workers' are the numbers of their lives
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
_WANTED: Final = 65_536  # open descriptors: each connection needs two
# A cluster that is up is known before the first client connects; one that does not respond must not keep ports unbound.
_FIRST_RESPONSE_SECONDS_MAX: Final = 1.0

logger = logging.getLogger(__name__)


def summary(config: Config, quota_entries: int, problem: str = "") -> dict[str, Field]:
    """Return the fields of the log line at start: ports, policy, scope, mode, store.

    Args:
        config: the configuration in force.
        quota_entries: the number of entities with quotas.
        problem: why the cluster cannot be served yet; "" for no such field.
    """
    quotas = config.quotas
    file = "none" if quotas.file is None else str(quotas.file)
    store = {"cluster": "the brokers", "topic": f"topic {quotas.topic}"}.get(quotas.store, file)
    found: dict[str, Field] = {
        "ports": "; ".join(map(_ports, config.listeners)),
        "admin": str(config.admin.bind or "none"),
        "policy": quotas.policy,
        "scope": quotas.scope,
        "mode": quotas.mode,
        "store": store,
        "quota_entries": quota_entries,
    }
    return {**found, "problem": problem} if problem else found


def _ports(listener: ListenerOptions) -> str:
    ports = [] if listener.replicates else [f"bootstrap {listener.bootstrap_port}"]
    if listener.sidecar:
        ports += [f"broker {broker} {listener.broker_port(broker)}" for broker in listener.upstreams]
    elif listener.by_name:
        ports.append(f"brokers {listener.broker_host}")
    else:
        first, last = listener.broker_ids[0], listener.broker_ids[-1]
        ports.append(f"brokers {listener.broker_port(first)}-{listener.broker_port(last)}")
    return f"{listener.name} {listener.bind}: {', '.join(ports)}"


def wire_events(
    tell: Tell,
    config: Config,
    relay: Relay,
    brokers: BrokerStates,
    workers: "Workers | None",
    fleet: "Fleet | None",
) -> None:
    """Let all parts of this process that report events call `tell` with them."""
    rate = config.quotas.partition_mutations_rate
    process_events = ProcessEvents(tell, relay.engine.definitions, rate, brokers)
    relay.watching.judged = partial(process_events.judged, _OWN)
    relay.shared.dials.report = partial(process_events.dialled, _OWN)
    if workers is not None:
        workers.tell, workers.process_events = tell, process_events
    if fleet is not None:
        fleet.tell = tell


def workers_of(config: Config) -> int:
    """Return the number of processes that relay traffic; for "auto", the number of cores that this process may use.

    Without a listener for clients it is 1.
    """
    if not any(not listener.replicates for listener in config.listeners):
        return 1
    if config.process.workers != AUTO:
        return config.process.workers
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError):
        cores = min(cores, cores_of_quota(_QUOTA.read_text(encoding="ascii")))
    return min(max(1, cores), WORKERS_MAX)


def cores_of_quota(text: str) -> int:
    """Return how many whole cores a container's processor quota allows, at least one; 65,536 without a quota.

    Args:
        text: the contents of cgroup's `cpu.max`: quota and period in microseconds.

    >>> cores_of_quota("200000 100000"), cores_of_quota("50000 100000"), cores_of_quota("max 100000") > 1000
    (2, 1, True)
    """
    quota, _, period = text.strip().partition(" ")
    if not quota.isdigit() or not period.isdigit() or not int(period):
        return 1 << 16
    return max(1, int(quota) // int(period))


def raise_limit() -> None:
    """Raise the soft limit of open descriptors, often 1024, as far as the hard limit allows; workers inherit it.

    Raises:
        StartError: the system refuses it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, _WANTED)
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            raise StartError(f"descriptor limit: {soft} cannot be raised to {wanted}: {error}") from error


class App:
    """One running proxy: its parts, from their creation until the process ends.

    Args:
        config: the configuration.
        store: the quotas at start, and where changes of them are kept; None if quotas are kept in a topic.
        loop: the event loop on which it runs.
        workers: how many processes relay; with more than one this is their control process.
    """

    def __init__(
        self, config: Config, store: QuotaStore | None, loop: asyncio.AbstractEventLoop, workers: int = 1
    ) -> None:
        self._config = config
        self._loop = loop
        self.stats = Stats()
        self._events = events = Events(self.stats.events)
        self._certificates = Certificates(config, self.stats)
        self._supervisor = Supervisor(loop, self.stats)
        self._topic = topic = self._open_topic() if store is None else None
        quotas = store if topic is None else topic.store
        assert quotas is not None, "a store is given, or a topic is opened"
        origins = Origins(config)
        quotas.noted = origins.note
        quotas.tell = events.tell
        # With workers the clients are theirs, and their capture; brokers replicate through this process.
        own = config if workers == 1 else replace(config, capture=CaptureOptions())
        self.relay = relay = Relay(
            own, quotas.definitions, loop, self.stats, self._supervisor, self._certificates, self._ask
        )
        self._map_file = MapFile(config.state.directory, self.stats) if config.state.directory else None
        maps = maps_of(config, self.stats)
        self.brokers = maps.brokers
        self._fleet = self._join_fleet() if workers == 1 and config.fleet.configured else None
        client = BrokerClient(self.brokers, login_of(config.cluster), self._certificates.broker_tls)
        others, listeners = (maps.leaders,), config.listeners
        self.poller = Poller(
            client, self._map_file, follow=maps.follow, others=others, listeners=listeners, tell=events.tell
        )
        # Each map's own listeners: what a broker advertises depends on the listener that is asked.
        self.advertised = [
            Advertised(
                [listener for listener in config.listeners if listener.replicates is replicates],
                client.of(routes),
            )
            for replicates, routes in ((False, maps.brokers), (True, maps.leaders))
        ]
        self._replication_source = (
            ReplicationSource(client, relay.replication, config.replication, relay.reconsider, now_ms)
            if maps.replicates
            else None
        )
        start = partial(self._supervisor.run_once, "reassignment_request")
        call = relay.shared.worker.call
        self._reassignments = moves = make_reassignments(
            config, client, start, call, self.stats, self._access, lambda: self._fleet, events.tell
        )
        shown = None if moves is None else moves.shown
        things = own_things(config)
        self._unguarded = Unguarded(self._access(), things) if things else None
        self._workers = None if workers == 1 else self._make_workers(workers, quotas.definitions, shown)
        wire_events(events.tell, config, relay, self.poller.states, self._workers, self._fleet)
        file = EnforcementFile(config.state.directory) if config.state.directory else None
        self._enforcement = Enforcement(file, self._enforce, self.stats, events.tell)
        names = relay.engine.topics.names if self._workers is None else self._workers.names
        self._topic_ids = TopicIds(client, names, now_ms)
        series_max = config.limits.metric_series_max
        view = ReplicationMetrics(relay.replication, self.stats, series_max // 4) if maps.replicates else None
        self._capacities = capacities = CapacityReports(
            relay, self._fleet, config.fleet.own_name, series_max, self._missing, events.tell
        )
        kept = (moves, self._fleet, self._workers, topic, self._unguarded, capacities)
        families = [one.families for one in kept if one is not None]
        waits = relay.watching.waits
        metrics = Metrics(
            self.stats, relay.engine, series_max, sluice_version(), view, families, workers, waits
        )
        page = None if moves is None else moves.page
        state = None if self._fleet is None else self._fleet.state
        figures: Figures = OwnFigures(metrics, relay.engine, now_ms, relay.watching.respond)
        if self._workers is not None:
            figures = self._workers.figures(metrics, relay.engine, series_max, relay.watching.respond, waits)
        member = config.fleet.configured
        explanations = Explanations(figures.seen, relay.engine, origins, member=member, capacities=capacities)
        site = Site(figures, self.not_ready, page, state, explanations, self._enforcement.notice)
        status = State(self._status, events, self._enforcement, config.admin.actions_from)
        client_auth = "none" if config.admin.tls is None else config.admin.tls.client_auth
        self._admin = AdminServer(
            {**site.handlers(), **status.handlers()},
            config.admin.hosts,
            actions=status.actions(),
            admission=Admission(self._certificates.admin_tokens, client_auth, self.stats.admin_refused),
            tls=self._certificates.admin_tls,
        )
        self._quota_service = QuotaService(loop, quotas, config.quotas, self.stats, self.quotas_altered)
        self._mirror = None
        if isinstance(quotas, FileStore) and config.quotas.store == "cluster":
            self._mirror = QuotaMirror(client, partial(self._quota_service.change, quotas.mirror))
        if topic is not None:
            topic.follow(loop, self._quota_service, self._supervisor.run_once)
        for options in config.listeners:
            if self._workers is not None and not options.replicates:
                continue
            routes = maps.leaders if options.replicates else maps.brokers
            relay.listen(options, routes, shown, quota_api=self._mirror is None)
        self._reloader = Reloader(config, self._quota_service, self.stats, self.apply, events.tell)
        self._stopping = asyncio.Event()
        self._signals = 0
        self._open = False  # the clients' ports

    async def serve(self) -> None:
        """Serve until a signal asks to stop, then drain.

        Raises:
            StartError: a port cannot be bound, or a broker behind a sidecar does not advertise it.
        """
        self._handle_signals()  # first: until then every one of them would kill the process
        supervisor = self._supervisor
        supervisor.watch_callbacks(end_owner)
        if self._map_file is not None:
            for broker, address in (await asyncio.to_thread(self._map_file.read)).items():
                self.brokers.learn(broker, *address)
        await self._enforcement.load()
        await supervisor.attempt("poller", self.poller.poll(), _FIRST_RESPONSE_SECONDS_MAX)
        for advertised in self.advertised:
            await supervisor.attempt("advertised", advertised.ask(), _FIRST_RESPONSE_SECONDS_MAX)
            if advertised.problem:
                raise StartError(advertised.problem)
        if self._replication_source is not None:
            self._replication_source.configure(self._config.replication)
            # Or a follower's first fetches would pass unthrottled.
            await supervisor.attempt(
                "replication_source", self._replication_source.poll(), _FIRST_RESPONSE_SECONDS_MAX
            )
        if self._fleet is not None:
            await self._fleet.start()
        reuse_port = any(options.reuse_port for options in self._config.listeners)
        if self._config.admin.bind is not None:
            await self._admin.start(self._config.admin.bind, reuse_port=reuse_port)
        await self._open_ports()
        gc.freeze()  # what is here now stays: no collection needs to look at it again
        fields = summary(self._config, len(self.relay.engine.definitions), self.poller.problem)
        event(logger, logging.INFO, "serving", **fields)
        if unused := compiled.warning():
            event(logger, logging.WARNING, unused)
        self._events.tell(Started(sluice_version(), self.relay.engine.enforcing))
        self._start_background_tasks()
        await self._stopping.wait()
        others = [] if self._workers is None else [self._workers.drain(self._hurried)]
        await asyncio.gather(self.relay.drain(self._hurried), *others)
        await self._shut_down()

    async def _open_ports(self) -> None:
        """Bind the clients' ports, as soon as all quotas are known."""
        if self._topic is not None:
            # No client may pass before its quota is known, so until then its connections are refused.
            await self._topic.read(self._stopping)
        if not self._stopping.is_set():
            self.relay.open()
            if self._workers is not None:
                await self._workers.start()
            self._open = True

    def _start_background_tasks(self) -> None:
        """Start the background tasks."""
        run_forever = self._supervisor.run_forever
        run_forever("poller", self.poller.run)
        for advertised in self.advertised:
            run_forever("advertised", advertised.run)
        run_forever("topic_ids", self._topic_ids.run)
        run_forever("reloader", self._reloader.run)
        run_forever("certificates", self._certificates.run)
        run_forever("quota_times", self._quota_service.keep_times)
        if self._fleet is not None:
            run_forever("fleet", self._fleet.run)
        if self._unguarded is not None:
            run_forever("unguarded", self._unguarded.run)
        self.relay.start()
        self._lend()
        if self._mirror is not None:
            run_forever("quota_mirror", self._mirror.run)
        if self._topic is not None:
            run_forever("quota_snapshot", self._topic.save_snapshots)
        if self._replication_source is not None:
            run_forever("replication_source", self._replication_source.run)
        if self._reassignments is not None:
            self._reassignments.start()
            run_forever("reassignments", self._reassignments.run)
            run_forever("reassignment_status", self._reassignments.watch)

    async def _shut_down(self) -> None:
        """Stop the background tasks, after the last connection has closed."""
        await self.relay.end_capture(self._hurried)
        if self._fleet is not None:
            await self._fleet.close()  # while its tasks run: the holder is told
        await self._supervisor.end()
        await self._admin.close()
        for topics in (self._topic, self._reassignments):
            if topics is not None:
                await asyncio.to_thread(topics.close)
        self._quota_service.close()
        self.relay.shared.close()

    def not_ready(self) -> str:
        """Return why clients cannot be served; "" if they can."""
        if self._stopping.is_set():
            return "draining"
        if self._topic is not None and self._topic.not_ready:
            return self._topic.not_ready
        problem = self.poller.problem or next(filter(None, (one.problem for one in self.advertised)), "")
        problem = problem or ("" if self._workers is None else self._workers.not_ready())
        problem = problem or self.relay.not_accepting()
        problem = problem or ("" if self._open else "the clients' ports are not open yet")
        return problem or ("" if self._fleet is None else self._fleet.not_ready)

    def apply(self, config: Config, definitions: Definitions) -> None:
        """Apply a reloaded configuration and quotas, and decide again on all waiting requests."""
        self.relay.apply(config, definitions)
        self._lend()
        if self._replication_source is not None:
            self._replication_source.configure(config.replication)
        if self._fleet is not None:
            self._fleet.configure(config.fleet)
        if self._reassignments is not None:
            self._reassignments.configure(config.reassignment)
        if self._workers is not None:
            self._workers.configure(config)
        self.relay.reconsider()

    def quotas_altered(self) -> None:
        """Apply quotas that the quota API has altered."""
        self.apply(self._reloader.config, self.relay.engine.definitions)

    def stop(self) -> None:
        """Start to drain (SIGTERM, SIGINT); a second call closes all connections without waiting."""
        self._signals += 1
        self._stopping.set()
        if self._workers is not None:
            self._workers.interrupt()

    def reload(self) -> None:
        """Read the configuration, the quotas file and the certificates again (SIGHUP)."""
        self._reloader.request()
        self._certificates.request()
        if self._workers is not None:
            self._workers.read_certificates()

    def toggle_enforcement(self) -> None:
        """Switch all enforcement off, or on again (SIGUSR1)."""
        self._enforcement.toggle()
        self._supervisor.run_once("enforcement", self._enforcement.keep())

    def _enforce(self, on: bool) -> None:
        """Make all processes enforce quotas, or stop."""
        self.relay.enforce(on)
        if self._workers is not None:
            self._workers.enforce(on)
        self.relay.reconsider()

    def _status(self) -> StatusDocument:
        """Return the document of `/v1/status` as of now."""
        workers = 1 if self._workers is None else self._workers.count
        missing = self._missing()
        config, enforcing = self._reloader.config, self.relay.engine.enforcing
        return status_of(config, workers, enforcing=enforcing, ready=self.not_ready(), missing=missing)

    def _missing(self) -> tuple[Missing, ...]:
        """Return the worker processes that cannot be asked now."""
        return () if self._workers is None else self._workers.missing()

    def _hurried(self) -> bool:
        """Whether a second signal has asked to end without waiting."""
        return self._signals > 1

    # What is configured rarely is imported where it is made.

    def _open_topic(self) -> "QuotaTopic":
        """Create the quota topic's store, which is not read yet."""
        from proxy.control.quotas.quota_topic import QuotaTopic

        return QuotaTopic(self._config, self._access())

    def _access(self) -> "Access":
        """Return the access to the cluster of Sluice's topics and the fleet's group."""
        from proxy.control.quotas.quota_topic import access_of

        return access_of(self._config.fleet_cluster, self._certificates.fleet_tls)

    def _join_fleet(self) -> "Fleet":
        """Join the fleet, so that this process uses the shares that are leased to it."""
        from proxy.process.shares import join

        return join(self._config, self.relay, self._access, self._certificates.between_members)

    def _lend(self) -> None:
        """Begin to lend what capacities leave, as soon as one is stated; others do it for a worker or a member."""
        if not self.relay.engine.definitions.capacities:
            return
        if self._workers is None and self._fleet is None and not self.relay.capacities:
            from proxy.process.shares import OwnShares

            self._supervisor.run_forever(
                "loans", OwnShares(self.relay, self._config.replicates, now_ms()).run
            )
        self._capacities.start(self._supervisor)

    def _make_workers(self, workers: int, definitions: Definitions, moves: OngoingMoves | None) -> "Workers":
        """Create the workers, which are not started yet."""
        from proxy.process.shares import join_with_workers
        from proxy.process.workers import Workers

        run, tls = secrets.randbits(62), self._certificates.between_members
        shares, self._fleet = join_with_workers(self._config, workers, run, self.relay, self._access, tls)
        return Workers(
            workers, self._config, definitions, self.brokers, moves, self._ask, self._supervisor, shares
        )

    def _ask(self, question: Question, respond: OutcomeCallback) -> Withdraw:
        """Pass a question to the API that it is for; returns a function that withdraws it."""
        if question.api_key == ALTER_PARTITION_REASSIGNMENTS:
            assert self._reassignments is not None, "else they pass as they are"
            self._reassignments.ask(question, respond)
            return nothing_to_withdraw  # it is validated and journaled even if its client disconnects
        return self._quota_service.ask(question, respond)

    def _handle_signals(self) -> None:
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: self.reload,
            signal.SIGUSR1: self.toggle_enforcement,
        }
        for number, handler in handlers.items():
            self._loop.add_signal_handler(number, handler)


def run(config: Config) -> int:
    """Serve until a signal stops the process; return the exit code.

    Raises:
        SluiceError: the proxy cannot start.
    """
    raise_limit()
    store = open_store(config)

    async def main() -> int:
        app = App(config, store, asyncio.get_running_loop(), workers_of(config))
        await app.serve()
        return 0

    return uvloop.run(main())
