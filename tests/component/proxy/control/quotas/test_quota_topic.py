"""proxy.control.quotas.quota_topic: only with quotas in a topic aiokafka is loaded; how fast the topic is read."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.config import QuotaSettings, parse
from proxy.config.options import Source
from proxy.control.quotas import QuotaService
from proxy.control.quotas.quota_topic import QuotaTopic, audit_spec, compacted_spec
from proxy.system.errors import StartError
from proxy.system.stats import Stats
from proxy.topics.records import Record
from proxy.topics.topic import Access, Found
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author, key_of, value_of

LISTENER = {"bootstrap_port": 19090, "first_broker_port": 19100}
TABLES = {"cluster": {"bootstrap": "127.0.0.1:1"}, "listeners": [LISTENER], "quotas": {"store": "topic"}}
# Everything that `sluice serve` loads and builds with a quotas file.
SERVE = """
import asyncio, sys
from pathlib import Path
import proxy.cli, proxy.commands.serve
from proxy.app import App
from proxy.config import parse
from proxy.config.options import Source
from proxy.control.quotas import FileStore

async def build():
    listener = {"bootstrap_port": 19090, "first_broker_port": 19100}
    tables = {"cluster": {"bootstrap": "127.0.0.1:1"}, "listeners": [listener], "quotas": {"file": "q.toml"}}
    tables["reassignment"] = {"mode": "batch", "journal": "journal"}
    config = parse(tables, Source(), Path(sys.argv[1]))
    App(config, FileStore(config.quotas), asyncio.get_running_loop())

asyncio.run(build())
print(sorted(name for name in sys.modules if name.partition(".")[0] == "aiokafka"))
"""

RATE = "producer_byte_rate"


class Brokers:
    """A topic of records that come one by one: `first` of them at once, the others when `more` is set."""

    def __init__(self, first: int, then: int) -> None:
        self.first, self.total = first, first + then
        self.position = 0
        self.more = threading.Event()

    async def bounds(self) -> tuple[int, int]:
        """Return the first offset, and the end as a start finds it."""
        return 0, self.first

    async def end(self) -> int:
        """Return the end."""
        return self.total if self.more.is_set() else self.first

    async def read(self) -> tuple[Sequence[Record], int]:
        """Return the next record."""
        if self.position == self.first:
            await asyncio.to_thread(self.more.wait, 30)
        if self.position == self.total:
            await asyncio.Event().wait()
        key = key_of(Entity(client_id=f"client-{self.position}"), RATE)
        self.position += 1
        return [Record(key, value_of(5.0, Author("", "", "")), offset=self.position - 1)], self.position

    def seek(self, offset: int) -> None:
        """Read on at an offset."""
        self.position = offset


async def test_topic_is_read_without_pauses_until_it_is_ready_and_with_pauses_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, ready_at_pauses, sleep = Brokers(first=50, then=5), list[bool](), asyncio.sleep

    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[Brokers]:
        yield brokers

    async def found(*_: object) -> Found:
        return Found(bytes(16), None, ())

    async def slept(seconds: float) -> None:
        if seconds and asyncio.get_running_loop() is not loop:
            ready_at_pauses.append(topic.store.ready)
        await sleep(seconds)

    topic, loop = QuotaTopic(parse(TABLES, Source(), Path()), Access([])), asyncio.get_running_loop()
    service = QuotaService(loop, topic.store, QuotaSettings(store="topic"), Stats(), lambda: None)
    tasks: list[asyncio.Task[object]] = []
    topic.follow(loop, service, lambda _, work: tasks.append(loop.create_task(work)))
    for name, replacement in {"open_reader": opened, "open_writer": opened, "find": found}.items():
        monkeypatch.setattr(f"proxy.topics.log.{name}", replacement)
    monkeypatch.setattr(asyncio, "sleep", slept)
    async with asyncio.timeout(30):
        await topic.read(asyncio.Event())
        assert (len(topic.store.definitions), ready_at_pauses) == (brokers.first, [])
        brokers.more.set()
        while len(topic.store.definitions) < brokers.total:
            await sleep(0.01)
    topic.close()
    service.close()
    assert len(ready_at_pauses) >= brokers.total - brokers.first - 1  # the last one may not have begun
    assert all(ready_at_pauses)


def test_serve_with_a_quotas_file_loads_no_aiokafka(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(
        StartError, match=r'store = "topic": aiokafka is not installed; .*requirements/fleet\.txt'
    ):
        QuotaTopic(parse(TABLES, Source(), Path()), Access([]))


def test_topics_are_made_as_documented() -> None:
    quotas = QuotaSettings(store="topic", audit_retention_seconds=60)
    assert compacted_spec("quotas").configs == {
        "max.message.bytes": "8454144",
        "compression.type": "uncompressed",
        "segment.bytes": "16777216",
        "segment.ms": "3600000",
    }
    assert compacted_spec("quotas").cleanup_policy == "compact"
    assert audit_spec(quotas).configs == {"retention.ms": "60000"}
    assert not audit_spec(QuotaSettings()).configs
