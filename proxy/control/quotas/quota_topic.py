"""Quotas in a topic, put together: the thread, the topic, the audit topic, the store (`[quotas] store = "topic"`).

    log's thread ─ arrived ─► event loop ─► quotas' thread: TopicStore.drain ─► event loop: the engine takes them over

aiokafka is loaded when this is opened, and not before: without such a configuration it need not be installed.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from commandline.arguments import not_installed
from proxy.config import ClusterOptions, Config, QuotaSettings
from proxy.control.cluster.client import login_of
from proxy.control.quotas.service import QuotaService
from proxy.control.quotas.topic_store import Snapshot, TopicStore
from proxy.metrics.families import Family, by_label, single
from proxy.system.errors import StartError, reason
from proxy.system.files import read_secret
from proxy.topics.records import CAUSES, ReadLog, Seal
from proxy.topics.topic import Access, LoopThread, TopicSpec

if TYPE_CHECKING:
    from proxy.topics.writers import EventLog

_SAVE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.05
_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
_SEGMENT_BYTES: Final = 16 * 1024 * 1024
_SEGMENT_MS: Final = 3_600_000
_FRAME_BYTES: Final = 64 * 1024  # what a batch may have beside its records
_RESULTS: Final = ("applied", "removed", "key", "value", "version", "size", "limit", "unsigned", "replayed")


class QuotaTopic:
    """Creates and joins the parts of a process that keeps its quotas in a topic: thread, topics and store.

    Args:
        config: the configuration.
        access: brokers, login and TLS of the cluster that has the topics.

    Attributes:
        store: the quotas, which are read from the topic.
        log: the quota topic.
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
        self.log = TopicLog(
            self._thread, access, compacted_spec(quotas.topic), paced=lambda: self.store.ready
        )
        self.events = EventLog(self._thread, access, audit_spec(quotas)) if quotas.audit_topic else None
        self.store = TopicStore(
            quotas,
            self.log,
            config.source.quota_text,
            self.events,
            None if config.state.directory is None else Snapshot(config.state.directory),
            seal_of(config, "quota", quotas.topic),
        )
        self._service: QuotaService | None = None
        self._due = False

    def follow(
        self,
        loop: asyncio.AbstractEventLoop,
        service: QuotaService,
        once: Callable[[str, Coroutine[Any, Any, object]], object],
    ) -> None:
        """Make the service's thread apply records as soon as they are read from the topic.

        Args:
            loop: the event loop, on which `once` is called.
            once: starts a coroutine in the background, under a name.
        """
        self._service = service

        def drain_soon() -> None:
            if not self._due:
                self._due = True
                once("quota_topic", self._drain())

        def arrived() -> None:
            """Records have arrived: called in the log's thread."""
            if not loop.is_closed():
                loop.call_soon_threadsafe(drain_soon)

        self.log.inbox.arrived = arrived

    async def read(self, stopping: asyncio.Event) -> None:
        """Begin to read the topic, and wait until quotas are in force or `stopping` is set.

        If the topic cannot be read, the quotas of the snapshot are used.
        """
        self.log.start()
        while not self.store.ready and not stopping.is_set():
            if self.log.tried and self.log.problem is not None:
                await self._change(self.store.use_snapshot)
            await asyncio.sleep(_LOOK_SECONDS)

    async def save_snapshots(self) -> None:
        """Repair the topic's records (`TopicStore.keep`) and write the snapshot at intervals, until cancelled."""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            await self._change(self.store.keep)
            await self._change(self.store.save)

    @property
    def not_ready(self) -> str:
        """Why no quotas are in force yet, as text for the readiness check; "" if they are."""
        if self.store.ready:
            return ""
        problem = self.log.problem
        return f"quotas: {f'topic {self.log.topic} is being read' if problem is None else problem.text}"

    def families(self) -> list[Family]:
        """Return the metrics of the topic, its snapshot and the audit topic."""
        return families(self.store, self.log, self.events)

    def close(self) -> None:
        """End the thread that reads and appends to the topics; blocks for a bounded time."""
        self._thread.close()

    async def _drain(self) -> None:
        self._due = False
        await self._change(self.store.drain)

    async def _change(self, work: Callable[[], bool]) -> None:
        assert self._service is not None, "the topic is followed first"
        await self._service.change(work)


def families(store: TopicStore, log: ReadLog, audit: "EventLog | None") -> list[Family]:
    """Return the metrics of the topic, its snapshot, and the audit topic."""
    problems = [(log.topic, log.problem or log.write_problem)]
    if audit is not None:
        problems.append((audit.topic, audit.problem))
    failing = Family(
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
    ready = "1 when quotas were read from the topic or the snapshot"
    offset = "The offset after the last record that was applied"
    read, records = "Records read from the quota topic", {one: store.records[one] for one in _RESULTS}
    restored = "Records that were written again over ignored ones"
    unreadable = "Limits whose last record cannot be read, so that processes may differ about them"
    written = "Writes of the snapshot of the quota topic"
    writes = {result: store.snapshots[result] for result in ("ok", "failed")}
    saved = "When this process last wrote the snapshot; 0: not yet"
    found = [
        failing,
        single("sluice_quota_topic_ready", "gauge", ready, store.ready),
        single("sluice_quota_topic_offset", "gauge", offset, store.next_offset),
        by_label("sluice_quota_topic_records", "counter", read, "result", records),
        single("sluice_quota_topic_restored", "counter", restored, store.restored),
        single("sluice_quota_topic_unreadable", "gauge", unreadable, store.unreadable),
        by_label("sluice_quota_snapshot_writes", "counter", written, "result", writes),
        single("sluice_quota_snapshot_timestamp_seconds", "gauge", saved, store.snapshot_at),
    ]
    if audit is not None:
        events = {"appended": audit.appended, "dropped": audit.dropped}
        waiting = "Events that wait for the audit topic"
        found += (
            by_label("sluice_audit_events", "counter", "Events of the audit topic", "result", events),
            single("sluice_audit_waiting", "gauge", waiting, audit.waiting),
        )
    return found


def require_aiokafka(what: str = '[quotas] store = "topic"') -> None:
    """Raise an error if aiokafka, of the extra `fleet`, is not installed.

    Args:
        what: the setting that needs it, for the message.

    Raises:
        StartError: aiokafka is not installed.
    """
    try:
        import aiokafka  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise StartError(f"{what}: {not_installed('aiokafka', 'fleet')}") from error


def seal_of(config: Config, use: str, topic: str) -> Seal | None:
    """Return the seal that signs the records of a topic; None without `[fleet] secret_file`.

    Args:
        use: the kind of records, see `Seal`.

    Raises:
        StartError: the file with the secret cannot be read.
    """
    path = config.fleet.secret_file
    if path is None:
        return None
    try:
        return Seal(read_secret(path, "fleet.secret_file"), use, topic)
    except OSError as error:
        raise StartError(f"fleet.secret_file: {reason(error)}") from error


def access_of(cluster: ClusterOptions, tls: Callable[[], ssl.SSLContext] | None) -> Access:
    """Return what Sluice's own clients need to connect to a cluster: brokers, login and TLS.

    Args:
        cluster: `Config.fleet_cluster`, the cluster with the fleet's group and Sluice's own topics.
        tls: returns the TLS context towards its brokers; None for plaintext.
    """
    return Access(cluster.bootstrap, login_of(cluster), tls)


def compacted_spec(topic: str) -> TopicSpec:
    """Return the properties that the quota topic and the topic of a reassignment journal must have.

    Batches are stored uncompressed, so that max.message.bytes also bounds what a reader has to unpack. Segments are
    small and closed soon, so that brokers, which only compact closed segments, soon remove old records of a key.
    """
    configs = {
        "max.message.bytes": str(_BATCH_BYTES_MAX + _FRAME_BYTES),
        "compression.type": "uncompressed",
        "segment.bytes": str(_SEGMENT_BYTES),
        "segment.ms": str(_SEGMENT_MS),
    }
    return TopicSpec(topic, configs=configs)


def audit_spec(quotas: QuotaSettings) -> TopicSpec:
    """Return the properties that the audit topic must have."""
    seconds = quotas.audit_retention_seconds
    configs = {} if seconds is None else {"retention.ms": str(1000 * seconds)}
    return TopicSpec(quotas.audit_topic, "delete", one_partition=False, configs=configs)
