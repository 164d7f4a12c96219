"""The ways a client can take to the broker: directly, through HAProxy, through Sluice in three forms.

HAProxy in TCP mode is the yardstick: it knows nothing of Kafka, so it stands behind a listener that advertises it.
A lane is started when a section needs it and ended with it, so every section measures fresh processes.
It does not measure.
"""

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.bench.process import tail
from tests.cluster import HOST, Cluster, processes
from tests.cluster.sasl import SASL, password
from tests.support.certificates import Authority, Certificate
from tests.support.proxy_process import SluicePorts, SluiceSettings

HAPROXY_HINT: Final = (
    "HAProxy is missing: apt-get install haproxy (Debian's package is the yardstick of the data path)"
)
_CONNECTIONS_MAX: Final = 12_000
_PIPES: Final = 64
_OWN_DESCRIPTORS: Final = 120
_PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


def find_haproxy() -> str | None:
    """Return HAProxy's path; Debian puts it where an ordinary user's PATH does not look."""
    return shutil.which("haproxy") or shutil.which("haproxy", path=_PLACES)


def haproxy_configuration(port: int, broker_port: int, descriptors: int, store: Path | None = None) -> str:
    """Return the configuration of one frontend before one broker: TCP mode, one thread, splicing on.

    The timeouts are longer than any run, so that idle connections are its own business and not a timer's.
    With `store`, a PEM file of certificate and key, it ends the clients' TLS.
    It refuses to start with more connections than its descriptors (two each, two a pipe, some of its own) allow.
    """
    tls = f" ssl crt {store}" if store else ""
    connections = min(_CONNECTIONS_MAX, (descriptors - 2 * _PIPES - _OWN_DESCRIPTORS) // 2)
    return f"""global
    nbthread 1
    maxconn {connections}
    maxpipes {_PIPES}
defaults
    mode tcp
    option splice-auto
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen kafka
    bind {HOST}:{port}{tls}
    server broker {HOST}:{broker_port}
"""


def haproxy_command(
    binary: str, directory: Path, port: int, broker_port: int, descriptors: int, store: Path | None = None
) -> list[str]:
    """Write the configuration and return the command line that serves it in the foreground, in one process."""
    path = directory / ("haproxy-tls.cfg" if store else "haproxy.cfg")
    path.write_text(haproxy_configuration(port, broker_port, descriptors, store))
    return [binary, "-db", "-f", str(path)]


DIRECT: Final = "direct"
HAPROXY: Final = "HAProxy"
SLUICE: Final = "Sluice"
SIDECAR: Final = "Sluice, sidecar"
CAPTURING: Final = "Sluice, capturing"
UNPRIVILEGED: Final = "Sluice, ordinary user"
OTHER_PYTHON: Final = "Sluice, --python"
HAPROXY_SASL: Final = "HAProxy, SASL"
SLUICE_SASL: Final = "Sluice, SASL"
HAPROXY_TLS: Final = "HAProxy, TLS"
SLUICE_TLS: Final = "Sluice, TLS"

HAPROXY_LISTENER: Final = "HAPROXY"
HAPROXY_SASL_LISTENER: Final = "HAPROXYSASL"
SIDECAR_LISTENER: Final = "SIDECAR"
NODE: Final = 1

_NOBODY: Final = 65534
_AS_NOBODY: Final = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
_START_SECONDS: Final = 90.0  # under valgrind, on a loaded machine
RATE_NEVER_REACHED: Final = 100_000_000_000
"""100 GB/s: every byte is counted against a quota, and none is ever held back."""
NEVER_HELD: Final = {
    "<default>": {"producer_byte_rate": RATE_NEVER_REACHED, "consumer_byte_rate": RATE_NEVER_REACHED}
}
CAPACITY_NEVER_REACHED: Final = (
    f'[[capacity]]\nscope = "cluster"\nin = {10 * RATE_NEVER_REACHED}\nout = {10 * RATE_NEVER_REACHED}\n'
)

Started = tuple[list[str], int, int]
"""A lane's command line, the port that clients end up at, and the one that they begin at."""


@dataclass(frozen=True, slots=True)
class LanePorts:
    """The ports that brokers advertise for a lane, chosen before the brokers start."""

    haproxy: int
    sidecar: SluicePorts
    gateway: SluicePorts
    other: (
        SluicePorts  # an ordinary user's, one that captures, or one with another Python: one of them in a run
    )


@dataclass(frozen=True, slots=True)
class Lane:
    """One way to the broker: where clients connect, and the proxy's process (none when direct)."""

    name: str
    port: int
    bootstrap_port: int
    pid: int | None

    @property
    def bootstrap(self) -> str:
        """Return what clients take as bootstrap server."""
        return f"{HOST}:{self.bootstrap_port}"


class Lanes:
    """Makes the lanes of one cluster.

    Args:
        capture: what capture costs is to be measured: beside the gateway there is one that captures, and no other.
        python: the interpreter of one more gateway, in place of the one of an ordinary user.

    Attributes:
        subject: the lane that the bars are for.
        missing: the lanes that cannot be run here, and why.
    """

    def __init__(
        self, cluster: Cluster, ports: LanePorts, directory: Path, *, capture: bool = False, python: str = ""
    ) -> None:
        self.subject = CAPTURING if capture else SLUICE
        self.missing: dict[str, str] = {}
        self._capture = capture
        self._python = python
        self._cluster = cluster
        self._haproxy_port = ports.haproxy
        self._directory = directory
        gateway, other = ports.gateway, ports.other
        self._makers: Mapping[str, Callable[[], Started]] = {
            HAPROXY: self._haproxy,
            HAPROXY_SASL: lambda: self._haproxy(listener=HAPROXY_SASL_LISTENER),
            HAPROXY_TLS: lambda: self._haproxy(self.papers.store_file),
            SLUICE: lambda: self._sluice(gateway, self.config("gateway", gateway)),
            SIDECAR: lambda: self._sluice(ports.sidecar, self._sidecar(ports.sidecar)),
            UNPRIVILEGED: lambda: self._sluice(other, self.config("ordinary", other), words=_AS_NOBODY),
            CAPTURING: lambda: self._sluice(other, self.config("capturing", other, captures=True)),
            OTHER_PYTHON: lambda: self._sluice(other, self.config("other", other), python=self._python),
            SLUICE_SASL: lambda: self._sluice(gateway, self._sasl(gateway)),
            SLUICE_TLS: lambda: self._sluice(
                gateway, self.config("tls", gateway, tls=self.papers.store_file)
            ),
        }

    def usable(self, *names: str) -> list[str]:
        """Return those of `names` that can be run here; why not is in `missing`."""
        if self._capture:
            names = (*(name for name in names if name not in (SIDECAR, UNPRIVILEGED)), CAPTURING)
        elif self._python:
            names = (*(name for name in names if name != UNPRIVILEGED), OTHER_PYTHON)
        return [name for name in names if self._can(name)]

    @cached_property
    def papers(self) -> Certificate:
        """The certificate that both lanes with TLS show, its own authority."""
        authority = Authority.make(self._directory)
        made = authority.issue("lane", rsa_bits=2048)
        return Certificate(authority.cert_file, made.key_file, made.store_file)

    @contextmanager
    def open(self, *names: str) -> Iterator[list[Lane]]:
        """Start these lanes for the time of a `with` block."""
        with ExitStack() as stack:
            lanes = []
            for name in names:
                if name == DIRECT:
                    port = self._cluster.address(NODE)[1]
                    lanes.append(Lane(DIRECT, port, port, None))
                    continue
                command, port, bootstrap_port = self._makers[name]()
                require_free(name, bootstrap_port)
                child = stack.enter_context(listening(command, port, self._directory / f"{name}.log"))
                lanes.append(Lane(name, port, bootstrap_port, child.pid))
            yield lanes

    def config(
        self,
        name: str,
        ports: SluicePorts,
        *,
        policy: str = "kip13",
        captures: bool = False,
        tls: Path | None = None,
        admin: str = "",
        shares: bool = False,
    ) -> Path:
        """Write the configuration of a gateway, whose clients share a capacity if `shares`; return its path."""
        sections: dict[str, Mapping[str, object]] = {"admin": {"bind": admin}}
        if captures:
            directory = str(self._directory / f"{name}-capture")
            sections["capture"] = {"directory": directory, "rotate_seconds": 5}
        if tls:
            sections["listeners.tls"] = {"cert_file": str(tls)}
        more = {"quotas_text": CAPACITY_NEVER_REACHED} if shares else {}
        return self._write(name, ports, sections=sections, policy=policy, **more)

    def _can(self, name: str) -> bool:
        if name in (HAPROXY, HAPROXY_SASL, HAPROXY_TLS) and find_haproxy() is None:
            self.missing[name] = HAPROXY_HINT
        if name == UNPRIVILEGED and (why := _no_ordinary_user()):
            self.missing[name] = why
        return name not in self.missing

    def _haproxy(self, store: Path | None = None, listener: str = HAPROXY_LISTENER) -> Started:
        binary = find_haproxy()
        assert binary is not None, "the lane is opened only where it is usable"
        target = self._cluster.address(NODE, listener)[1]
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        port = self._haproxy_port
        return haproxy_command(binary, self._directory, port, target, descriptors, store), port, port

    def _sluice(
        self, ports: SluicePorts, config: Path, words: Sequence[str] = (), python: str = sys.executable
    ) -> Started:
        command = [*words, python, *sluice_command(config)[1:]]
        return command, ports.first_broker + NODE, ports.bootstrap

    def _sidecar(self, ports: SluicePorts) -> Path:
        upstream = f"{HOST}:{self._cluster.address(NODE, SIDECAR_LISTENER)[1]}"
        sections = {"listeners.upstreams": {str(NODE): upstream}}
        return self._write("sidecar", ports, bootstrap=upstream, sections=sections)

    def _sasl(self, ports: SluicePorts) -> Path:
        secret = self._directory / "sluice-password"
        secret.write_text(password("sluice"))
        host, port = self._cluster.address(NODE, SASL)
        login = {"sasl_mechanism": "PLAIN", "username": "sluice", "password_file": str(secret)}
        return self._write(
            *("sasl", ports),
            bootstrap=f"{host}:{port}",
            cluster=login,
            client_quotas={},
            user_quotas=NEVER_HELD,
        )

    def _write(
        self,
        name: str,
        ports: SluicePorts,
        *,
        bootstrap: str = "",
        policy: str = "kip13",
        sections: Mapping[str, Mapping[str, object]] | None = None,
        **more: Any,
    ) -> Path:
        directory = self._directory / f"lane-{name}"
        directory.mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "quotas": {"policy": policy, "scope": None},
            "client_quotas": NEVER_HELD,
            "listener": {"broker_id_max": NODE},
            "sections": {"limits": {"connections_max": 20_000}, "admin": {"bind": ""}, **(sections or {})},
        }
        return SluiceSettings(bootstrap or self._cluster.bootstrap(), ports, **(settings | more)).write(
            directory
        )


def sluice_command(config: Path) -> list[str]:
    """Return the command line of a proxy with this configuration."""
    return [sys.executable, "-m", "proxy", "serve", "--config", str(config)]


def _no_ordinary_user() -> str:
    """Return why a proxy cannot be run as an ordinary user here ("" when it can)."""
    if os.geteuid() != 0:
        return "this run is an ordinary user's already"
    if shutil.which("setpriv") is None:
        return "setpriv (util-linux) is missing"
    tried = subprocess.run(
        [*_AS_NOBODY, sys.executable, "-c", "import proxy"], capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else "another user may not read this checkout"


def require_free(name: str, port: int) -> None:
    """Make sure that nothing listens on a port of a lane.

    A proxy that an aborted run has left there would share it (SO_REUSEPORT): the lane's own process would serve half
    of the connections, and its figures would be half of what is true.

    Raises:
        ChildProcessError: something does.
    """
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if not probe.connect_ex((HOST, port)):
            raise ChildProcessError(f"port {port} of {name} has a listener already, left by another run?")


@contextmanager
def listening(
    command: Sequence[str], port: int, log: Path, **more: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that is the only one to listen on a port, for the time of a `with` block.

    Raises:
        ChildProcessError: the port is in use, or the process ends or takes too long.
    """
    require_free(log.stem, port)
    child = processes.start(command, log=log, **more)
    try:
        wait_for(port, child, log)
        yield child
    finally:
        processes.end(child)


def wait_for(port: int, child: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until something listens on the port; ChildProcessError when the child ends or takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        try:
            socket.create_connection((HOST, port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise ChildProcessError(f"nothing listens on port {port}; the log ends: {tail(log)}")
