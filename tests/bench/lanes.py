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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.process import tail
from tests.cluster import HOST, Cluster, processes
from tests.cluster.sasl import SASL, password
from tests.support.certificates import Authority, Certificate

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
_START_SECONDS: Final = 20.0
_RATE_NEVER_REACHED: Final = 100_000_000_000
"""100 GB/s: every byte is counted against a quota, and none is ever held back."""


@dataclass(frozen=True, slots=True)
class LanePorts:
    """The ports that brokers advertise for a lane, chosen before the brokers start."""

    haproxy: int
    sidecar: int
    gateway: int
    unprivileged: int  # or of the one that captures, or has another Python: they are not in one run


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
    """

    def __init__(
        self, cluster: Cluster, ports: LanePorts, directory: Path, *, capture: bool = False, python: str = ""
    ) -> None:
        self._capture = capture
        self._python = python
        self.subject = CAPTURING if capture else SLUICE
        self._cluster = cluster
        self._ports = ports
        self._directory = directory
        self.missing: dict[str, str] = {}
        self._makers: Mapping[str, Callable[[], tuple[list[str], int, int]]] = {
            HAPROXY: self._haproxy,
            SLUICE: self._gateway,
            SIDECAR: self._sidecar,
            UNPRIVILEGED: self._ordinary,
            CAPTURING: self._capturing,
            OTHER_PYTHON: self._other_python,
            HAPROXY_SASL: self._haproxy_sasl,
            SLUICE_SASL: self._gateway_sasl,
            HAPROXY_TLS: self._haproxy_tls,
            SLUICE_TLS: self._gateway_tls,
        }
        self._papers: Certificate | None = None

    def usable(self, *names: str) -> list[str]:
        """Return those of `names` that can be run here; why not is in `missing`."""
        if self._capture:
            names = (*(name for name in names if name not in (SIDECAR, UNPRIVILEGED)), CAPTURING)
        elif self._python:
            names = (*(name for name in names if name != UNPRIVILEGED), OTHER_PYTHON)
        return [name for name in names if self._can(name)]

    @property
    def papers(self) -> Certificate:
        """The certificate that both lanes with TLS show, its own authority; made when first asked for."""
        if self._papers is None:
            authority = Authority.make(self._directory)
            made = authority.issue("lane", rsa_bits=2048)
            self._papers = Certificate(authority.cert_file, made.key_file, made.store_file)
        return self._papers

    @contextmanager
    def open(self, *names: str) -> Iterator[list[Lane]]:
        """Start these lanes for the time of a `with` block."""
        lanes: list[Lane] = []
        started: list[subprocess.Popen[bytes]] = []
        try:
            for name in names:
                if name == DIRECT:
                    port = self._cluster.address(NODE)[1]
                    lanes.append(Lane(DIRECT, port, port, None))
                    continue
                command, port, bootstrap_port = self._makers[name]()
                require_free(name, port, bootstrap_port)
                log = self._directory / f"{name}.log"
                child = processes.start(command, log=log)
                started.append(child)
                wait_for(port, child, log)
                lanes.append(Lane(name, port, bootstrap_port, child.pid))
            yield lanes
        finally:
            for child in started:
                processes.end(child)

    def _can(self, name: str) -> bool:
        if name in (HAPROXY, HAPROXY_SASL, HAPROXY_TLS) and find_haproxy() is None:
            self.missing[name] = HAPROXY_HINT
        if name == UNPRIVILEGED and (why := _no_ordinary_user()):
            self.missing[name] = why
        return name not in self.missing

    def _haproxy(
        self, store: Path | None = None, listener: str = HAPROXY_LISTENER
    ) -> tuple[list[str], int, int]:
        binary = find_haproxy()
        assert binary is not None, "the lane is opened only where it is usable"
        port = self._ports.haproxy
        target = self._cluster.address(NODE, listener)[1]
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return haproxy_command(binary, self._directory, port, target, descriptors, store), port, port

    def _haproxy_tls(self) -> tuple[list[str], int, int]:
        return self._haproxy(self.papers.store_file)

    def _haproxy_sasl(self) -> tuple[list[str], int, int]:
        return self._haproxy(listener=HAPROXY_SASL_LISTENER)

    def _gateway_sasl(self) -> tuple[list[str], int, int]:
        first = self._ports.gateway
        secret = self._directory / "sluice-password"
        secret.write_text(password("sluice"))
        host, port = self._cluster.address(NODE, SASL)
        login = f'sasl_mechanism = "PLAIN"\nusername = "sluice"\npassword_file = "{secret}"\n'
        cluster = f'[cluster]\nbootstrap = "{host}:{port}"\n{login}'
        listener = f"bootstrap_port = {first}\nfirst_broker_port = {first + 1}\nbroker_id_max = {NODE}"
        return self._write("gateway-sasl", cluster, listener, "user"), first + 1 + NODE, first

    def _gateway_tls(self) -> tuple[list[str], int, int]:
        first = self._ports.gateway
        store = self.papers.store_file
        tls = f'\n[listeners.tls]\ncert_file = "{store}"\n'
        return self._sluice("gateway-tls", first, tls), first + 1 + NODE, first

    def _gateway(self) -> tuple[list[str], int, int]:
        first = self._ports.gateway
        return self._sluice("gateway", first), first + 1 + NODE, first

    def _ordinary(self) -> tuple[list[str], int, int]:
        first = self._ports.unprivileged
        return [*_as_nobody(), *self._sluice("ordinary", first)], first + 1 + NODE, first

    def _other_python(self) -> tuple[list[str], int, int]:
        first = self._ports.unprivileged
        return [self._python, *self._sluice("other-python", first)[1:]], first + 1 + NODE, first

    def _capturing(self) -> tuple[list[str], int, int]:
        first = self._ports.unprivileged
        more = self._capture_config("capturing")
        return self._sluice("capturing", first, more=more), first + 1 + NODE, first

    def _sidecar(self) -> tuple[list[str], int, int]:
        port = self._ports.sidecar
        upstream = f"{HOST}:{self._cluster.address(NODE, SIDECAR_LISTENER)[1]}"
        listener = f"bootstrap_port = {port - 1}\nfirst_broker_port = {port - NODE}\n"
        listener += f'upstreams = {{ {NODE} = "{upstream}" }}'
        return self._write("sidecar", f'[cluster]\nbootstrap = "{upstream}"\n', listener), port, port - 1

    def _sluice(
        self, name: str, first: int, tls: str = "", more: str = "", policy: str = "kip13", admin: str = ""
    ) -> list[str]:
        listener = f"bootstrap_port = {first}\nfirst_broker_port = {first + 1}\nbroker_id_max = {NODE}{tls}"
        cluster = f'[cluster]\nbootstrap = "{self._cluster.bootstrap()}"\n'
        return self._write(name, cluster, listener, more=more, policy=policy, admin=admin)

    def gateway_config(
        self, name: str, first: int, policy: str, *, captures: bool = False, admin: str = ""
    ) -> Path:
        """Write the configuration of one more gateway, its ports from `first` on; return its path."""
        more = self._capture_config(name) if captures else ""
        self._sluice(name, first, more=more, policy=policy, admin=admin)
        return self._directory / f"{name}.toml"

    def _capture_config(self, name: str) -> str:
        return f'\n[capture]\ndirectory = "{self._directory / f"{name}-capture"}"\nrotate_seconds = 5\n'

    def _write(
        self,
        name: str,
        cluster: str,
        listener: str,
        limited: str = "client_id",
        more: str = "",
        policy: str = "kip13",
        admin: str = "",
    ) -> list[str]:
        quotas = self._directory / f"{name}-quotas.toml"
        quotas.write_text(
            f'[[quota]]\n{limited} = "<default>"\nproducer_byte_rate = {_RATE_NEVER_REACHED}\n'
            f"consumer_byte_rate = {_RATE_NEVER_REACHED}\n"
        )
        path = self._directory / f"{name}.toml"
        path.write_text(
            f'{cluster}\n[[listeners]]\nname = "clients"\nbind = "{HOST}"\n{listener}\n'
            f'\n[quotas]\nfile = "{quotas}"\npolicy = "{policy}"\n'
            f'\n[limits]\nconnections_max = 20000\n\n[admin]\nbind = "{admin}"\n{more}'
        )
        return sluice_command(path)


def sluice_command(config: Path) -> list[str]:
    """Return the command line of a proxy with this configuration."""
    return [sys.executable, "-m", "proxy", "serve", "--config", str(config)]


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]


def _no_ordinary_user() -> str:
    """Return why a proxy cannot be run as an ordinary user here ("" when it can)."""
    if os.geteuid() != 0:
        return "this run is an ordinary user's already"
    if shutil.which("setpriv") is None:
        return "setpriv (util-linux) is missing"
    tried = subprocess.run(
        [*_as_nobody(), sys.executable, "-c", "import proxy"], capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else "another user may not read this checkout"


def require_free(name: str, *ports: int) -> None:
    """Make sure that nothing listens on a lane's ports.

    A proxy that an aborted run has left there would share them (SO_REUSEPORT): the lane's own process would serve half
    of the connections, and its figures would be half of what is true.

    Raises:
        ChildProcessError: something does.
    """
    for port in ports:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if not probe.connect_ex((HOST, port)):
                raise ChildProcessError(f"port {port} of {name} has a listener already, left by another run?")


def wait_for(port: int, child: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until something listens on the port; ChildProcessError when the child ends or takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            break
        try:
            socket.create_connection((HOST, port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise ChildProcessError(f"nothing listens on port {port}; the log ends: {tail(log)}")
