"""A few hundred hostile connections of five kinds at once, beside honest clients that notice little of it.

Ten thousand of them are `python -m tests.soak.crowd`.
"""

from pathlib import Path

from tests.cluster import Cluster
from tests.soak.crowd import Options, play

CONNECTIONS = 400
MIB_MAX = 64
"""Over the memory that the process has alone: 400 connections of 25 kB are 10 MiB, and what they sent may be kept."""
P99_MS_MAX = 5000.0
"""On two cores with three brokers, the crowd itself and another test beside it; alone it is below 10 ms."""


def test_honest_clients_are_served_beside_a_hostile_crowd(kafka: Cluster, tmp_path: Path) -> None:
    options = Options(CONNECTIONS, seconds=4.0, before_seconds=2.0)
    result = play(kafka, options, tmp_path, print)
    assert result.alive
    phases = {phase.name: phase for phase in result.phases}
    assert [phase.honest["broken"] for phase in result.phases] == [0] * len(result.phases)
    assert result.sockets_left <= 0
    assert result.crowd["opened"]["storm"] > result.crowd["open"].get("storm", 0)
    beside = phases["beside the crowd"]
    assert beside.resident_kib - phases["alone"].resident_kib < MIB_MAX * 1024
    assert beside.honest["ping"]["p99"] < P99_MS_MAX
    assert beside.honest["produce"]["p99"] < P99_MS_MAX
