"""A single process needs nothing of several, of a fleet, or of quotas in a topic."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
PROGRAM = """
import asyncio, sys
from proxy.app import App
from proxy.config import Address, Config
from proxy.config.options import AdminOptions, ClusterOptions, ListenerOptions
from proxy.control.quotas import FileStore

async def main():
    config = Config(
        cluster=ClusterOptions((Address("127.0.0.1", 1),)), listeners=(ListenerOptions(),), admin=AdminOptions(None)
    )
    App(config, FileStore(config.quotas), asyncio.get_running_loop())

asyncio.run(main())
print(*sorted(name for name in sys.modules if name.startswith(("proxy.process.", "proxy.fleet", "proxy.topics"))))
"""


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


def test_single_process_imports_its_data_path_and_no_other_process() -> None:
    loaded = ("capacities", "relay", "watching")
    assert run("-c", PROGRAM).stdout.split() == [f"proxy.process.{name}" for name in loaded]


def test_worker_imports_nothing_of_the_fleet() -> None:
    program = """
import proxy.process.worker, sys
print("run", *(name for name in sys.modules if name.startswith(("proxy.fleet", "proxy.topics", "aiokafka"))))
"""
    assert run("-c", program).stdout.split() == ["run"]


def test_worker_of_another_version_does_not_start() -> None:
    ended = run("-m", "proxy.process", "0", "9.9.9")
    assert (ended.returncode, "control is 9.9.9: restart it" in ended.stderr) == (1, True)
