"""Sluice processes whose quotas are in one topic, and what is written into that topic past them."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.quota_client import describe


def random_name() -> str:
    """Return the name of a quota topic that no other test has."""
    return f"quotas-{secrets.token_hex(4)}"


@dataclass
class Topic:
    """A quota topic and its processes; a context that ends the processes.

    Args:
        bootstrap: the brokers.
        directory: for the processes' files.
        cluster: more keys for `[cluster]`.
        quotas: more keys for `[quotas]`.
    """

    bootstrap: str
    directory: Path
    name: str = field(default_factory=random_name)
    cluster: Mapping[str, object] = field(default_factory=dict)
    quotas: Mapping[str, object] = field(default_factory=dict)
    _open: list[SluiceProcess] = field(default_factory=list)

    @property
    def audit(self) -> str:
        """The audit topic."""
        return f"{self.name}-audit"

    def __enter__(self) -> "Topic":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._open:
            process.__exit__(None, None, None)

    def start(
        self,
        name: str,
        bootstrap: str = "",
        *,
        ready: bool = True,
        sections: Mapping[str, Mapping[str, object]] | None = None,
    ) -> SluiceProcess:
        """Start a process; its snapshot is in a directory of this name.

        Args:
            sections: more tables of its configuration.
        """
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        settings = SluiceSettings(
            bootstrap or self.bootstrap,
            quotas={"store": "topic", "topic": self.name, "audit_topic": self.audit, **self.quotas},
            cluster=self.cluster,
            sections={"state": {"directory": str(directory)}, **(sections or {})},
        )
        process = SluiceProcess.configured(settings, directory)
        self._open.append(process)
        if ready:
            process.wait_ready()
        return process

    def kill(self, process: SluiceProcess) -> None:
        """End a process as `kill -9` does."""
        process.kill()
        self._open.remove(process)

    def produce(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Write records into the topic as another client might."""
        # Imported late: unit tests do without it.
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "message.max.bytes": 4_000_000}
        )
        for index, (key, value) in enumerate(records):
            producer.produce(self.name, key=key, value=value)
            if not index % 1000:
                producer.poll(0)
        assert producer.flush(60) == 0


def rate_of(process: SluiceProcess, client_id: str) -> float | None:
    """Return the producer_byte_rate that a process describes for a client id; None if it has none."""
    found = describe(process.bootstrap, [("client-id", 0, client_id)], strict=True)
    return next(iter(found.values()), {}).get("producer_byte_rate")
