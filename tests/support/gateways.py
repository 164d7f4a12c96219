"""Two gateways on two addresses of loopback, and the HAProxy of docker/haproxy before them.

The gateways bind the same ports on 127.0.0.2 and 127.0.0.3, as two machines do, so that HAProxy forwards each port to
the same port, and the configuration that is run is the one that is shipped, with these addresses in it.
"""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pytest

from tests.bench.lanes import find_haproxy
from tests.cluster import HOST, MissingPrerequisiteError, free_ports, processes
from tests.support.proxy_process import BROKER_ID_MAX, ROOT, SluicePorts, SluiceProcess, SluiceSettings
from tests.support.waiting import until

HAPROXY: Final = ROOT / "docker" / "haproxy" / "haproxy.cfg"
ADDRESSES: Final = ("127.0.0.2", "127.0.0.3")
_SHIPPED: Final = (
    "    bind :19090,:19100-19107\n",
    "    server gateway-1 gateway-1\n    server gateway-2 gateway-2\n",
)
_READY_SECONDS_MAX: Final = 20.0


@dataclass(frozen=True, slots=True)
class Way:
    """How clients get to the gateways.

    Args:
        hosts: those of bootstrap.servers; the ports are the same at all.
        advertised: the host that both gateways name in Metadata; empty: each its own address.
        balanced: HAProxy stands before them.
    """

    name: str
    hosts: tuple[str, ...]
    advertised: str = ""
    balanced: bool = False


LISTED: Final = Way("both in bootstrap.servers", ADDRESSES)
NAMED: Final = Way("one name for both", ("gateways.test",), "gateways.test")
BALANCED: Final = Way("HAProxy", (HOST,), HOST, balanced=True)


def haproxy() -> str:
    """Return HAProxy's path."""
    found = find_haproxy()
    if found is None:
        raise MissingPrerequisiteError("haproxy is missing: apt-get install haproxy")
    return found


def available_haproxy() -> str:
    """Return HAProxy's path; without it the test is skipped, or fails where CI=true."""
    try:
        return haproxy()
    except MissingPrerequisiteError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def configuration(first_port: int, ports: int, admins: Mapping[str, int]) -> str:
    """Return the shipped configuration with other addresses: `admins` are the ports of /readyz by gateway's address."""
    text = HAPROXY.read_text()
    servers = [
        f"    server gateway-{number} {address} check addr {HOST} port {port}\n"
        for number, (address, port) in enumerate(admins.items(), 1)
    ]
    own = (f"    bind {HOST}:{first_port}-{first_port + ports - 1}\n", "".join(servers))
    for shipped, instead in zip(_SHIPPED, own, strict=True):
        assert text.count(shipped) == 1, f"{HAPROXY} has another {shipped!r}"
        text = text.replace(shipped, instead)
    return text


def resolving(directory: Path, names: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the words before a command that let it, and nothing else, know these addresses and names."""
    path = directory / "hosts"
    path.write_text(f"{HOST} localhost\n" + "".join(f"{address} {name}\n" for address, name in names))
    mount = f'mount --bind {path} /etc/hosts && exec "$@"'
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh")


class Gateways:
    """Two gateways in front of `bootstrap`, with HAProxy before them where the way leads through it."""

    def __init__(self, bootstrap: str, way: Way, directory: Path) -> None:
        self.way = way
        self._upstream = bootstrap
        self._directory = directory
        ports = free_ports(BROKER_ID_MAX + 2)
        self._first = ports[0]
        self._count = len(ports)
        self.bootstrap = ",".join(f"{host}:{self._first}" for host in way.hosts)
        self._settings = {address: self._settings_of(address) for address in ADDRESSES}
        self.running: dict[str, SluiceProcess] = {}
        named = [(address, name) for name in way.hosts for address in ADDRESSES]
        self.resolving = resolving(directory, named) if way is NAMED else ()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            for address in ADDRESSES:
                self.start(address, wait=False)
            for process in self.running.values():
                process.wait_ready()
            if self.way.balanced:
                self._start_haproxy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, address: str, *, wait: bool = True) -> None:
        """Start the gateway of an address, again if it was killed."""
        directory = self._directory / address
        directory.mkdir(exist_ok=True)
        self.running[address] = SluiceProcess.configured(self._settings[address], directory)
        if wait:
            self.running[address].wait_ready()

    def kill(self, address: str) -> float:
        """End a gateway as `kill -9` does; return the Unix time."""
        at = time.time()
        self.running.pop(address).kill()
        return at

    def suspend(self, address: str) -> float:
        """Let a gateway hang, its connections open; return the Unix time."""
        at = time.time()
        self.running[address].signal(signal.SIGSTOP)
        return at

    def resume(self, address: str) -> None:
        """Let a gateway that hangs go on."""
        self.running[address].signal(signal.SIGCONT)

    def client_bytes(self, client_id: str) -> dict[str, float]:
        """Return how many bytes of a client each gateway has counted, by address."""
        return {
            address: process.metric("sluice_client_bytes_total", client_id=client_id)
            for address, process in self.running.items()
        }

    def stop(self) -> None:
        """End all of it."""
        self._stack.close()
        for address, process in self.running.items():
            self.resume(address)
            process.kill()
        self.running.clear()

    def _settings_of(self, address: str) -> SluiceSettings:
        listener: dict[str, object] = {
            "bind": address,
            "bootstrap_port": self._first,
            "first_broker_port": self._first + 1,
            "advertised_host": self.way.advertised or address,
        }
        if self.way.balanced:
            listener |= {"proxy_protocol": True, "proxy_protocol_sources": f"{HOST}/32"}
        # Its own ports are used for the admin server alone.
        return SluiceSettings(
            self._upstream,
            SluicePorts.free(),
            quotas={"policy": "schedule", "scope": "cluster"},
            listener=listener,
        )

    def _start_haproxy(self) -> None:
        admins = {address: self._settings[address].ports.admin for address in ADDRESSES}
        text = configuration(self._first, self._count, admins)
        self._stack.enter_context(running_haproxy(text, self._directory, lambda: accepts(self._first)))


@contextlib.contextmanager
def running_haproxy(
    text: str, directory: Path, serves: Callable[[], bool], *, seconds: float = _READY_SECONDS_MAX
) -> Iterator[None]:
    """Run HAProxy.

    Args:
        text: its configuration.
        directory: for that and for its log.
        serves: whether it does.
        seconds: within which it has to.
    """
    path, log = directory / "haproxy.cfg", directory / "haproxy.log"
    path.write_text(text)
    child = processes.start([haproxy(), "-db", "-f", str(path)], log=log)
    try:
        until(lambda: serves() or child.poll() is not None, "HAProxy serves", seconds)
        assert child.poll() is None, f"HAProxy does not serve\n{log.read_text()}"
        yield
    finally:
        processes.kill(child)


def accepts(port: int, host: str = HOST) -> bool:
    """Return whether something accepts connections at a port."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
