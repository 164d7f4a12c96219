"""Quotas in a topic, put together: the thread, the topic, the audit topic, the store (`[quotas] store = "topic"`).

aiokafka is loaded when this is opened, and not before: without such a configuration it need not be installed.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from commandline.arguments import not_installed
from proxy.cluster.login import login_of, secret_of
from proxy.config import ClusterOptions, Config, QuotaSettings
from proxy.metrics.replication import Family
from proxy.quota_api.cooperative import with_pauses
from proxy.quota_api.follower import TopicFollower
from proxy.quota_api.service import QuotaService
from proxy.quota_api.snapshot import Snapshot
from proxy.quota_api.topic_metrics import families
from proxy.quota_api.topic_store import TopicStore
from proxy.system.errors import StartError, reason
from proxy.system.files import read_secret
from proxy.topics.records import Seal
from proxy.topics.topic import Access, LoopThread, Sasl, TopicSpec

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
