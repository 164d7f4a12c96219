"""proxy.control.quotas.quota_topic: aiokafka is loaded where quotas are in a topic, and nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config import QuotaSettings, parse
from proxy.config.options import Source
from proxy.control.quotas.quota_topic import QuotaTopic, audit_spec, compacted_spec
from proxy.system.errors import StartError
from proxy.topics.topic import Access

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
