"""Lanes start on ports of their own."""

import socket
from pathlib import Path
from typing import cast

import pytest

from tests.bench.lanes import NODE, SLUICE, LanePorts, Lanes
from tests.cluster import HOST, Cluster
from tests.support.proxy_process import SluicePorts


class FakeCluster:
    """A cluster that is only named in a configuration."""

    def bootstrap(self) -> str:
        return f"{HOST}:1"


def test_lane_does_not_start_beside_a_process_of_an_earlier_run(tmp_path: Path) -> None:
    ports = LanePorts(1, SluicePorts(2), SluicePorts.free(), SluicePorts(3))
    lanes = Lanes(cast(Cluster, FakeCluster()), ports, tmp_path)
    port = ports.gateway.first_broker + NODE
    with (
        socket.create_server((HOST, port), reuse_port=True),
        pytest.raises(
            ChildProcessError, match=f"port {port} of Sluice has a listener already, left by another run"
        ),
        lanes.open(SLUICE),
    ):
        pass
    assert not (tmp_path / f"{SLUICE}.log").exists()
