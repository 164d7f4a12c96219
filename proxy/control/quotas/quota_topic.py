"""Quotas in a topic, put together: the thread, the topic, the audit topic, the store (`[quotas] store = "topic"`).

aiokafka is loaded when this is opened, and not before: without such a configuration it need not be installed.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from commandline.arguments import not_installed
from proxy.config import ClusterOptions, Config, QuotaSettings
from proxy.control.cluster.client import login_of, secret_of
from proxy.control.quotas.service import QuotaService
from proxy.control.quotas.store import with_pauses
from proxy.control.quotas.topic_store import Snapshot, TopicStore
from proxy.metrics.replication import Family
from proxy.system.errors import StartError, reason
from proxy.system.files import read_secret
from proxy.topics.records import CAUSES, Problem, Seal
from proxy.topics.topic import Access, LoopThread, Sasl, TopicSpec

# The event loop's side of quotas in a topic: applies what arrives, says when quotas are there, saves snapshots.
#
# log's thread ─ arrived ─► event loop ─► quotas' thread: TopicStore.drain ─► event loop: the engine takes them over


_SAVE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.05


class FollowedLog(Protocol):
    """The topic, as far as its problems go."""

    @property
    def topic(self) -> str:
        """Its name."""

    @property
    def tried(self) -> bool:
        """Whether reading has begun, or failed once."""

    @property
    def problem(self) -> Problem | None:
        """The reason why it cannot be read; None if it can."""


class TopicFollower:
    """Follows one topic.

    Args:
        loop: the event loop.
        service: has the quotas' thread.
        store: the quotas.
        log: the topic.
        once: runs a coroutine in the background.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: QuotaService,
        store: TopicStore,
        log: FollowedLog,
        once: Callable[[str, Coroutine[Any, Any, object]], object],
    ) -> None:
        self._loop = loop
        self._service = service
        self._store = store
        self._log = log
        self._once = once
        self._due = False

    @property
    def not_ready(self) -> str:
        """The reason why there are no quotas yet; "" if there are."""
        if self._store.ready:
            return ""
        problem = self._log.problem
        if problem is not None:
            return f"quotas: {problem.text}"
        return f"quotas: topic {self._log.topic} is being read"

    def arrived(self) -> None:
        """Records have arrived: called in the log's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._soon)

    async def wait(self, stopping: asyncio.Event) -> None:
        """Wait until quotas were read, from the topic or, if it cannot be read, from the snapshot; or for the end."""
        while not self._store.ready and not stopping.is_set():
            if self._log.tried and self._log.problem is not None:
                await self._service.change(self._store.use_snapshot)
            await asyncio.sleep(_LOOK_SECONDS)

    async def run(self) -> None:
        """Save snapshots, until cancelled."""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            await self._service.change(self._store.keep)
            await self._service.change(self._store.save)

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            self._once("quota_topic", self._drain())

    async def _drain(self) -> None:
        self._due = False
        await self._service.change(self._store.drain)


# What /metrics shows of quotas in a topic.


_RESULTS = ("applied", "removed", "key", "value", "version", "size", "limit", "unsigned", "replayed")


class _Topic(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def problem(self) -> Problem | None: ...


class _Quotas(_Topic, Protocol):
    @property
    def write_problem(self) -> Problem | None: ...


class _Audit(_Topic, Protocol):
    @property
    def waiting(self) -> int: ...

    @property
    def appended(self) -> int: ...

    @property
    def dropped(self) -> int: ...


def families(store: TopicStore, log: _Quotas, audit: _Audit | None) -> Iterator[Family]:
    """Yield the metrics of the topic, its snapshot, and the audit topic."""
    yield _problems(log, audit)
    yield Family(
        "sluice_quota_topic_ready",
        "gauge",
        "1 when quotas were read from the topic or the snapshot",
        (),
        [((), float(store.ready))],
    )
    yield Family(
        "sluice_quota_topic_offset",
        "gauge",
        "The offset after the last record that was applied",
        (),
        [((), float(store.next_offset))],
    )
    yield Family(
        "sluice_quota_topic_records",
        "counter",
        "Records read from the quota topic",
        ("result",),
        [((result,), float(store.records[result])) for result in _RESULTS],
    )
    yield Family(
        "sluice_quota_topic_restored",
        "counter",
        "Records that were written again over ignored ones",
        (),
        [((), float(store.restored))],
    )
    yield Family(
        "sluice_quota_topic_unreadable",
        "gauge",
        "Limits whose last record cannot be read, so that processes may differ about them",
        (),
        [((), float(store.unreadable))],
    )
    yield Family(
        "sluice_quota_snapshot_writes",
        "counter",
        "Writes of the snapshot of the quota topic",
        ("result",),
        [((result,), float(store.snapshots[result])) for result in ("ok", "failed")],
    )
    yield Family(
        "sluice_quota_snapshot_timestamp_seconds",
        "gauge",
        "When this process last wrote the snapshot; 0: not yet",
        (),
        [((), store.snapshot_at)],
    )
    if audit is not None:
        events = (("appended", audit.appended), ("dropped", audit.dropped))
        yield Family(
            "sluice_audit_events",
            "counter",
            "Events of the audit topic",
            ("result",),
            [((result,), float(count)) for result, count in events],
        )
        yield Family(
            "sluice_audit_waiting",
            "gauge",
            "Events that wait for the audit topic",
            (),
            [((), float(audit.waiting))],
        )


def _problems(log: _Quotas, audit: _Audit | None) -> Family:
    problems = [(log.topic, log.problem or log.write_problem)]
    if audit is not None:
        problems.append((audit.topic, audit.problem))
    return Family(
        "sluice_internal_topic_problem",
        "gauge",
        "1 while a topic of Sluice cannot be read or appended to, by cause",
        ("topic", "cause"),
        [
            ((topic, cause), float(problem is not None and problem.cause == cause))
            for topic, problem in problems
            for cause in CAUSES
        ],
    )


_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
_SEGMENT_BYTES: Final = 16 * 1024 * 1024
_SEGMENT_MS: Final = 3_600_000
_FRAME_BYTES: Final = 64 * 1024  # what a batch may have beside its records


class QuotaTopic:
    """The quotas of one process, in a topic.

    Args:
        config: the configuration.
        access: the way to the topics' cluster.

    Attributes:
        store: the quotas.
        log: the topic.
        events: the audit topic; None for none.

    Raises:
        ConfigError: a quota of the command line is invalid.
        StartError: aiokafka is not installed.
    """

    def __init__(self, config: Config, access: Access) -> None:
        require_aiokafka()
        from proxy.topics.log import TopicLog
        from proxy.topics.writers import EventLog

        quotas = config.quotas
        self._thread = LoopThread("topics")
        self.log: TopicLog = TopicLog(self._thread, access, quota_spec(quotas))
        self.events: EventLog | None = (
            EventLog(self._thread, access, audit_spec(quotas)) if quotas.audit_topic else None
        )
        self.store = TopicStore(
            quotas,
            self.log,
            config.source.quota_text,
            self.events,
            _snapshot(config.state.directory),
            seal_of(config, "quota", quotas.topic),
        )
        self._follower: TopicFollower | None = None

    def follow(
        self,
        loop: asyncio.AbstractEventLoop,
        service: QuotaService,
        once: Callable[[str, Coroutine[Any, Any, object]], object],
    ) -> None:
        """Have the service's thread apply the records that are read."""
        self._follower = TopicFollower(loop, service, self.store, self.log, once)
        self.log.inbox.arrived = self._follower.arrived

    async def read(self, stopping: asyncio.Event) -> None:
        """Begin to read the topic, and wait until there are quotas, or for the end of the process."""
        assert self._follower is not None, "the topic is followed first"
        self.log.start()
        await self._follower.wait(stopping)

    async def save_snapshots(self) -> None:
        """Save snapshots, until cancelled."""
        assert self._follower is not None, "the topic is followed first"
        await self._follower.run()

    @property
    def not_ready(self) -> str:
        """The reason why there are no quotas yet; "" if there are."""
        return "" if self._follower is None else self._follower.not_ready

    def families(self) -> list[Family]:
        """Return the metrics."""
        return list(families(self.store, self.log, self.events))

    def close(self) -> None:
        """End the thread; blocks for a bounded time."""
        self._thread.close()


def require_aiokafka(what: str = '[quotas] store = "topic"') -> None:
    """Refuse to start where the extra `fleet` is not installed.

    Args:
        what: needs it.

    Raises:
        StartError: it is not.
    """
    try:
        import aiokafka  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise StartError(f"{what}: {not_installed('aiokafka', 'fleet')}") from error


def seal_of(config: Config, use: str, topic: str) -> Seal | None:
    """Return what signs the records of a topic; None without a secret.

    Args:
        use: see `Seal`.

    Raises:
        StartError: the secret cannot be read.
    """
    path = config.fleet.secret_file
    if path is None:
        return None
    try:
        return Seal(read_secret(path, "fleet.secret_file"), use, topic)
    except OSError as error:
        raise StartError(f"fleet.secret_file: {reason(error)}") from error


def access_of(cluster: ClusterOptions, tls: Callable[[], ssl.SSLContext] | None) -> Access:
    """Return the way to a cluster, with its login, and the certificates that are in force.

    Args:
        cluster: `Config.fleet_cluster`, for the fleet's group and for Sluice's own topics.
        tls: returns the TLS context towards its brokers; None for plaintext.
    """
    sasl = None
    if cluster.sasl_mechanism:
        sasl = Sasl(cluster.sasl_mechanism, cluster.username, secret_of(cluster))
    return Access(cluster.bootstrap, login_of(cluster), sasl, tls)


def quota_spec(quotas: QuotaSettings) -> TopicSpec:
    """Return what the quota topic must be like.

    Batches are stored uncompressed, so that max.message.bytes also bounds what a reader has to unpack. Segments are
    small and closed soon, since brokers compact closed ones only: what others write under few keys is gone soon.
    """
    return _compacted(quotas.topic)


def journal_spec(topic: str) -> TopicSpec:
    """Return what the topic of a reassignment journal must be like."""
    return _compacted(topic)


def _compacted(topic: str) -> TopicSpec:
    configs = {
        "max.message.bytes": str(_BATCH_BYTES_MAX + _FRAME_BYTES),
        "compression.type": "uncompressed",
        "segment.bytes": str(_SEGMENT_BYTES),
        "segment.ms": str(_SEGMENT_MS),
    }
    return TopicSpec(topic, configs=configs)


def audit_spec(quotas: QuotaSettings) -> TopicSpec:
    """Return what the audit topic must be like."""
    seconds = quotas.audit_retention_seconds
    configs = {} if seconds is None else {"retention.ms": str(1000 * seconds)}
    return TopicSpec(quotas.audit_topic, "delete", one_partition=False, configs=configs)


def _snapshot(directory: Path | None) -> Snapshot | None:
    return None if directory is None else Snapshot(directory, with_pauses)
