"""Drift on real brokers that ask for a login: recorded, recommended, applied; recorded again, compared, and applied.

The brokers are the test's own, since every quota of a client that was not recorded counts as unused.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offline.cli import main
from tests.cluster import Cluster, ClusterOptions
from tests.cluster.sasl import SASL, SASL_LISTENERS, SASL_USERS, client_properties
from tests.support.proxy_process import sluice
from tests.support.synthetic import Client, write_capture

SECONDS = 40
SPARK = ("--no-progress", "--master=local[2]", "--driver-memory=1g", "--partitions=2")
GOAL = ("--candidates=10", "--overrides=2", "--throttled-share=0")
# Forty seconds are little, and enough for clients that do the same in each of them.
JUDGED = ("--confidence=low", "--unused-days=0")
BEFORE = (
    *(Client(name=f"steady-{number}", shape="steady", rate=200_000) for number in range(6)),
    Client(name="hog", shape="hog", rate=3e6, connections=2),
    Client(name="reader", shape="steady", rate=400_000, produces=False, request_bytes=60_000),
)
AFTER = (
    replace(BEFORE[0], rate=2e6),  # ten times as much
    *BEFORE[1:6],
    replace(BEFORE[7], rate=100_000),  # a quarter; and the hog is gone
)


@pytest.fixture
def guarded() -> Iterator[Cluster]:
    """A broker with a listener that asks for SASL."""
    options = ClusterOptions(nodes=1, listeners=SASL_LISTENERS[:1], format_arguments=SASL_USERS)
    with Cluster(options) as cluster:
        yield cluster


def recommended(directory: Path, clients: tuple[Client, ...]) -> Path:
    """The work directory of a recording of these clients."""
    write_capture(directory / "capture", clients, SECONDS)
    work = directory / "work"
    inputs = ("--input", str(directory / "capture"), "--output", str(work))
    assert main(["run", *inputs, *GOAL, *SPARK]) == 0
    return work


@pytest.mark.timeout(500)
def test_drift_is_found_and_applied(
    guarded: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login, changes = tmp_path / "admin.properties", tmp_path / "changes.toml"
    login.write_text(client_properties("admin"))
    server = ("--bootstrap-server", guarded.bootstrap(SASL), "--command-config", str(login))

    def compare(work: Path, *more: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["compare", "--input", str(work), *server, "--format", "json", *JUDGED, *more])
        return code, json.loads(capsys.readouterr().out)

    def until_nothing_is_left(work: Path) -> dict[str, Any]:
        """A broker learns quotas a moment after the controller."""
        until_s = time.monotonic() + 20
        while (found := compare(work))[0] and time.monotonic() < until_s:
            time.sleep(0.2)
        assert found[0] == 0, found
        return found[1]

    work = recommended(tmp_path / "before", BEFORE)
    assert {one["drift"] for one in compare(work)[1]["quotas"]} == {"new"}
    assert main(["apply", "--input", str(work), *server]) == 0
    same = until_nothing_is_left(work)
    assert {one["drift"] for one in same["quotas"]} == {"unchanged"}
    hog = next(one for one in same["quotas"] if one.get("client_id") == "hog")
    assert hog["need"] <= hog["in_force"]

    work = recommended(tmp_path / "after", AFTER)
    code, found = compare(work, "--write", str(changes))
    assert code == 3
    drifted = {
        (one["client_id"], one["key"]): one["drift"] for one in found["quotas"] if one["drift"] != "unchanged"
    }
    assert drifted == {
        ("steady-0", "producer_byte_rate"): "new",
        ("hog", "producer_byte_rate"): "unused",
        ("<default>", "consumer_byte_rate"): "too wide",
    }
    assert changes.read_text().count("[[quota]]") == 3
    sluice("quotas", "apply", changes, *server)
    assert until_nothing_is_left(work)["changes"] == 0
    sluice("quotas", "diff", changes, *server)  # exit code 0: no difference
    shown = json.loads(sluice("quotas", "show", "--format", "json", *server))
    assert {one["client_id"]: sorted(one["quotas"]) for one in shown} == {
        "<default>": ["consumer_byte_rate", "producer_byte_rate"],
        "steady-0": ["producer_byte_rate"],
    }
