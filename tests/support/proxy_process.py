"""`sluice serve` as a process of its own: started, waited for until `/readyz` says yes, ended by SIGTERM.

    with SluiceProcess.configured(SluiceSettings(bootstrap, client_quotas={"a": {...}}), directory) as sluice:
        connect_to(sluice.bootstrap)

Its log goes to a file, and with a failure to standard error. Nothing here imports the proxy.
"""

import contextlib
import http.client
import json
import re
import secrets
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from tests.cluster import HOST, Address, free_ports, processes
from tests.cluster.features import broker
from tests.support.waiting import until

ROOT: Final = Path(__file__).resolve().parents[2]
# Tansu's one node is 111.
BROKER_ID_MAX: Final = 111 if broker() == "tansu" else 9
_READY_SECONDS_MAX: Final = 60.0  # as long as workers have
_LOG_BYTES_SHOWN: Final = 8000


class SluiceError(RuntimeError):
    """Sluice did not start, or did not end as it should; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class SluicePorts:
    """One bootstrap port, then one for each broker id from 0 on, then the admin server's; all consecutive."""

    bootstrap: int

    @classmethod
    def free(cls) -> Self:
        """Choose ports that are free and were not given out in this process before."""
        return cls(free_ports(BROKER_ID_MAX + 3)[0])

    @property
    def first_broker(self) -> int:
        return self.bootstrap + 1

    @property
    def admin(self) -> int:
        return self.first_broker + BROKER_ID_MAX + 1

    def address(self, node: int) -> Address:
        """Return where a broker is reached through this Sluice."""
        return HOST, self.first_broker + node

    def broker(self, node: int) -> str:
        """Return the same as text."""
        return f"{HOST}:{self.first_broker + node}"


@dataclass(frozen=True, slots=True)
class SluiceSettings:
    """The configuration of a gateway in front of `bootstrap`, as `toml` writes it.

    Args:
        quotas: the keys of `[quotas]` by name, values as TOML would have them in Python; None leaves one out.
        client_quotas: client id -> Kafka's quota keys; written as `[[quota]]` tables of a quotas file.
        user_quotas: user -> Kafka's quota keys.
        quotas_text: more of the quotas file, such as its capacities and groups.
        cluster: more keys for `[cluster]`.
        sections: more tables, by name; keys of `admin` are added to its `bind`.
        listener: more keys for the one listener.
    """

    bootstrap: str
    ports: SluicePorts = field(default_factory=SluicePorts.free)
    quotas: Mapping[str, object] = field(default_factory=dict)
    client_quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    user_quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    quotas_text: str = ""
    cluster: Mapping[str, object] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    listener: Mapping[str, object] = field(default_factory=dict)

    def write(self, directory: Path) -> Path:
        """Write `sluice.toml` and `quotas.toml` into `directory`; return the former's path."""
        (directory / "quotas.toml").write_text(
            self.quotas_text + quotas_toml(self.client_quotas) + quotas_toml(self.user_quotas, "user")
        )
        listener = {
            "name": "clients",
            "bind": HOST,
            "bootstrap_port": self.ports.bootstrap,
            "first_broker_port": self.ports.first_broker,
            "broker_id_max": BROKER_ID_MAX,
            **self.listener,
        }
        in_topic = self.quotas.get("store") == "topic"
        file = {} if in_topic else {"file": str(directory / "quotas.toml")}
        admin = {"bind": f"{HOST}:{self.ports.admin}", **self.sections.get("admin", {})}
        sections = {**self.sections, "admin": admin}
        text = [
            _table("[cluster]", {"bootstrap": self.bootstrap, **self.cluster}),
            _table("[[listeners]]", listener),
            # As Kafka's brokers count, which tests compare with.
            _table("[quotas]", {**file, "policy": "kip13", "scope": "broker", **self.quotas}),
            *(_table(f"[{name}]", keys) for name, keys in sections.items()),
        ]
        path = directory / "sluice.toml"
        path.write_text("".join(text))
        return path


def quotas_toml(quotas: Mapping[str, Mapping[str, float]], part: str = "client_id") -> str:
    """Write a quotas file.

    >>> print(quotas_toml({"a": {"producer_byte_rate": 1000}}), end="")
    [[quota]]
    client_id = "a"
    producer_byte_rate = 1000
    """
    return "".join(_table("[[quota]]", {part: name, **keys}) for name, keys in quotas.items())


def _table(head: str, keys: Mapping[str, object]) -> str:
    # JSON's numbers, booleans and strings are TOML's.
    written = (f"{name} = {json.dumps(value)}\n" for name, value in keys.items() if value is not None)
    return f"{head}\n{''.join(written)}"


class SluiceProcess:
    """One running `sluice serve`.

    Args:
        arguments: what stands after `serve` on the command line.
        ports: where it listens, so that this object can say so.
        directory: for its log and its configuration.
        run_as: words before the command that run it as another user.

    Attributes:
        context: the TLS context towards its admin port; None for plain HTTP.
        token: the token for its admin port; "" for none.
    """

    def __init__(
        self, arguments: Sequence[str], ports: SluicePorts, directory: Path, run_as: Sequence[str] = ()
    ) -> None:
        self.ports = ports
        self.context: ssl.SSLContext | None = None
        self.token = ""
        self.bootstrap = f"{HOST}:{ports.bootstrap}"
        self.directory = directory
        self.log_path = self.directory / f"sluice-{ports.bootstrap}.log"
        self._child = processes.start(
            [*run_as, sys.executable, "-m", "proxy", "serve", *arguments], log=self.log_path, cwd=ROOT
        )

    @classmethod
    def configured(cls, settings: SluiceSettings, directory: Path, run_as: Sequence[str] = ()) -> Self:
        """Start it with a configuration file that is written into `directory`."""
        return cls(["--config", str(settings.write(directory))], settings.ports, directory, run_as)

    def __enter__(self) -> Self:
        try:
            return self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            print(f"--- sluice {self.bootstrap}\n{self.log()}", file=sys.stderr)
        code = self.stop()
        if kind is None and code != 0:
            raise SluiceError(f"sluice ended with {code}\n{self.log()}")

    @property
    def process_id(self) -> int:
        return self._child.pid

    def wait_ready(self, seconds: float = _READY_SECONDS_MAX) -> Self:
        """Wait until `/readyz` responds with 200."""
        deadline = time.monotonic() + seconds
        response = "nothing"
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                raise SluiceError(f"sluice ended by itself with {self._child.returncode}\n{self.log()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, response = self.get("/readyz")
                if status == 200:
                    return self
            time.sleep(0.05)
        raise SluiceError(f"sluice is not ready, /readyz says {response!r}\n{self.log()}")

    def get(self, path: str) -> tuple[int, str]:
        """Ask the admin server for one page: status and text."""
        scheme = "http" if self.context is None else "https"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(f"{scheme}://{HOST}:{self.ports.admin}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.context) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def document(self, path: str) -> dict[str, Any]:
        """Ask the admin server for one document of JSON."""
        status, text = self.get(path)
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def asked(self, path: str, **query: object) -> dict[str, Any] | None:
        """Ask for a document; None while it has none."""
        status, text = self.get(f"{path}?{urlencode(query)}")
        found: dict[str, Any] | None = json.loads(text) if status == 200 else None
        return found

    def readiness(self) -> str:
        """Return what `/readyz` says; "" before the admin port is open."""
        with contextlib.suppress(OSError):
            return self.get("/readyz")[1]
        return ""

    def metric(self, name: str, **labels: str) -> float:
        """Add up one metric's series that have these labels; 0 when there are none."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith((name + "{", name + " ")):
                series, _, value = line.rpartition(" ")
                if all(f'{label}="{text}"' in series for label, text in labels.items()):
                    total += float(value)
        return total

    def connection_errors(self) -> dict[str, float]:
        """Return the number of connections that ended in an error, by cause."""
        found = re.findall(
            r'^sluice_connection_errors_total{cause="(.*?)"} (.*)$', self.get("/metrics")[1], re.MULTILINE
        )
        return {cause: float(value) for cause, value in found}

    def descriptors(self) -> int:
        """Return the number of the process's open descriptors."""
        return len(list(Path(f"/proc/{self.process_id}/fd").iterdir()))

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self._child.send_signal(number)

    def reload(self, seconds: float = 20.0) -> None:
        """Have it read its files again, and wait until they are in force."""
        before = self.metric("sluice_reloads_total", result="ok")
        self.signal(signal.SIGHUP)
        until(
            lambda: self.metric("sluice_reloads_total", result="ok") > before,
            "it has read its files",
            seconds,
        )

    def alive(self) -> bool:
        return self._child.poll() is None

    def kill(self) -> None:
        """Kill it and wait for its end; harmless if it has ended."""
        processes.kill(self._child)

    def stop(self, seconds: float = 40.0) -> int:
        """End it as an operator does, and return its exit code."""
        return processes.end(self._child, seconds=seconds)

    def log(self, bytes_max: int = _LOG_BYTES_SHOWN) -> str:
        """Return the end of its log."""
        return (
            self.log_path.read_bytes()[-bytes_max:].decode(errors="replace") if self.log_path.exists() else ""
        )


def sluice(*words: object, code: int = 0) -> str:
    """Run a command of `sluice`, which is to end with this code; return its output, with errors if it is not 0."""
    line = [sys.executable, "-m", "proxy", *map(str, words)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr if code else done.stdout


def fleet_secret(directory: Path) -> str:
    """Write the secret of a fleet, which its owner alone may read; return the file's path. One that is there stays."""
    path = directory / "fleet.secret"
    if not path.exists():
        path.touch(0o600)
        path.write_text(secrets.token_hex(32))
    return str(path)
