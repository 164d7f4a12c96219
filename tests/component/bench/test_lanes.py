"""Lanes start on ports of their own."""

import socket
from pathlib import Path
from typing import cast

import pytest

from tests.bench.lanes import NODE, SLUICE, LanePorts, Lanes, require_free
from tests.cluster import HOST, Cluster, free_ports


class FakeCluster:
    """A cluster that is only named in a configuration."""

    def bootstrap(self) -> str:
        return f"{HOST}:1"


def test_port_without_a_listener_is_free() -> None:
    (port,) = free_ports(1)
    require_free("HAProxy", port)


def test_port_with_a_listener_is_refused() -> None:
    with socket.create_server((HOST, 0), reuse_port=True) as left_over:
        port = left_over.getsockname()[1]
        with pytest.raises(ChildProcessError, match=f"port {port} of HAProxy has a listener already"):
            require_free("HAProxy", port)


def test_lane_does_not_start_beside_a_process_of_an_earlier_run(tmp_path: Path) -> None:
    first = free_ports(2 + NODE)[0]
    ports = LanePorts(haproxy=1, sidecar=2, gateway=first, unprivileged=3)
    lanes = Lanes(cast(Cluster, FakeCluster()), ports, tmp_path)
    with (
        socket.create_server((HOST, first + 1 + NODE), reuse_port=True),
        pytest.raises(ChildProcessError, match="left by another run"),
        lanes.open(SLUICE),
    ):
        pass
    assert not (tmp_path / f"{SLUICE}.log").exists()
