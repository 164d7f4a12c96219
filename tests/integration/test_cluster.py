"""The cluster that the other tests stand on: what it promises is checked once, with Kafka's own tools."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.cluster import Cluster, brokers, tools
from tests.conftest import CreateTopic

_ROOT = Path(__file__).resolve().parents[2]


def test_cluster_names_all_brokers_on_each(kafka: Cluster) -> None:
    kafka.wait_ready()  # another module may have ended just after a broker came back
    named = [set(brokers(kafka.address(node), seconds=20)) for node in kafka.nodes]

    assert named == [{1, 2, 3}] * 3


def test_cluster_carries_records_of_kafkas_own_tools(kafka: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3, replication=3)

    tools.run(
        tools.CONSOLE_PRODUCER, "--bootstrap-server", kafka.bootstrap(), "--topic", topic, text="a\nb\n"
    )
    read = tools.run(
        tools.CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap(), "--topic", topic),
        *("--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"),
    )

    assert {"a", "b"} <= set(read.split())


def test_broker_killed_comes_back_on_its_data(kafka: Cluster) -> None:
    kafka.kill_broker(2)
    assert not kafka.is_running(2)

    kafka.start_broker(2)

    assert set(brokers(kafka.address(1))) == {1, 2, 3}


def test_child_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from tests.cluster import processes
        child = processes.start(["sleep", "100"])
        print(child.pid, flush=True)
        time.sleep(100)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())

    parent.send_signal(signal.SIGKILL)
    parent.wait()

    deadline = time.monotonic() + 10
    while _lives(child):
        if time.monotonic() > deadline:
            pytest.fail("the child outlived its parent by 10 s")
        time.sleep(0.02)


def _lives(process_id: int) -> bool:
    status = Path(f"/proc/{process_id}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
