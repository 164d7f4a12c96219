"""Standing in others' way: their places in the schedule, the ports, the admin port.

The figure is how many seconds an honest client waits.
"""

import contextlib
import http.client
import itertools
import socket
import ssl
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.cluster import HOST, Address
from tests.hostile import scene as harm
from tests.hostile import wire
from tests.hostile.broker_program import NODE
from tests.hostile.scene import Harm, Row, Scene, Stage, survivor
from tests.hostile.wire import Client
from tests.support.admin_papers import TOKEN, AdminPapers
from tests.support.certificates import Authority
from tests.support.hellos import hello
from tests.support.one_port import Site, broker_name

_ANNOUNCED_BYTES: Final = 100_000_000
_VICTIM_BYTES: Final = 50_000  # every 100 ms: a quarter of its quota
_LOGIN: Final = {"sasl_mechanism": "PLAIN", "username": "sluice", "password": "secret"}
_OTHER_ADDRESS: Final = "127.0.0.2"
_SHUT_OUT_SECONDS: Final = 8.0
_IDLE: Final = 1_000
_ADMIN_IDLE: Final = 64
_ADMIN_KEPT: Final = 500  # more than the port has connections
_FLOOD_SECONDS: Final = 5.0
# A place is kept for what has been announced until it is clear that it does not come.
STILL_SECONDS: Final = 3.0
BESIDE_SECONDS: Final = 2.0


class Victim:
    """A client well within its quota.

    Attributes:
        client_id: in whose name others announce.
        longest: the longest that it waited for a response, in seconds.
    """

    def __init__(self, scene: Scene, client_id: str, until: float) -> None:
        self.client_id = client_id
        self.longest = 0.0
        self._until = until
        self._client = Client(scene.address, until=until)
        if "username" in scene.stage.cluster:
            self._client.login("alice")
        self._request = wire.produce(client_id, bytes(_VICTIM_BYTES))
        self._client.ask(self._request)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asked = time.monotonic()
        try:
            while True:
                time.sleep(0.1)
                asked = time.monotonic()
                self._client.ask(self._request)
                self.longest = max(self.longest, time.monotonic() - asked)
        except TimeoutError:
            self.longest = max(self.longest, min(time.monotonic(), self._until) - asked)
        except OSError:
            self.longest = float("inf")

    def end(self) -> float:
        """Wait for the end, and return the longest wait."""
        self._thread.join()
        self._client.close()
        return self.longest


Announce = Callable[[Scene, str, float], None]


def announces_once(scene: Scene, victim: str, until: float) -> None:
    """One header, and nothing behind it."""
    with scene.connected(until) as client:
        client.send(wire.announced(_ANNOUNCED_BYTES, victim))
        time.sleep(max(0.0, until - time.monotonic()))


def announces_and_leaves(scene: Scene, victim: str, until: float) -> None:
    """One header, then gone."""
    with scene.connected(until) as client:
        client.send(wire.announced(_ANNOUNCED_BYTES, victim))
        time.sleep(0.2)


def announces_again(scene: Scene, victim: str, until: float) -> None:
    """A header every 100 ms, each on a new connection that stays."""
    with contextlib.ExitStack() as stack:
        while time.monotonic() < until:
            stack.enter_context(scene.connected(until)).send(wire.announced(_ANNOUNCED_BYTES, victim))
            time.sleep(0.1)


def announces_and_drips(scene: Scene, victim: str, until: float) -> None:
    """One header, and behind it two bytes a second."""
    with scene.connected(until) as client:
        client.send(wire.announced(_ANNOUNCED_BYTES, victim))
        while time.monotonic() < until:
            client.send(b"x")
            time.sleep(0.5)


_ANNOUNCES: Final[dict[str, tuple[str, Announce]]] = {
    "once": ("100 MB announced in another's name, then nothing", announces_once),
    "leaves": ("the same, then closed", announces_and_leaves),
    "again": ("the same every 100 ms on new connections", announces_again),
    "drips": ("the same, and 2 bytes a second", announces_and_drips),
}


def still(policy: str, seconds: float, *, login: bool) -> Mapping[str, float]:
    """How long each victim waits, all beside each other; with `login` those who announce have not logged in."""
    stage = Stage(policy, cluster=_LOGIN if login else {})
    with survivor(stage) as scene:
        until = time.monotonic() + seconds
        found: dict[str, float] = {}

        def attacked(name: str, announce: Announce) -> None:
            victim = Victim(scene, f"victim-{name}", until)
            time.sleep(0.5)
            with contextlib.suppress(OSError):
                announce(scene, victim.client_id, until)
            found[_name(name, policy, login)] = victim.end()

        threads = [
            threading.Thread(target=attacked, args=(name, announce), daemon=True)
            for name, (_, announce) in _ANNOUNCES.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def _name(name: str, policy: str, login: bool) -> str:
    return f"announced-{name}-{policy}{'-before-login' if login else ''}"


@contextlib.contextmanager
def _tls_stage() -> Iterator[tuple[Stage, ssl.SSLContext]]:
    with tempfile.TemporaryDirectory(prefix="hostile-tls-") as directory:
        authority = Authority.make(Path(directory))
        paper = authority.issue("sluice")
        keys = {"cert_file": str(paper.cert_file), "key_file": str(paper.key_file)}
        context = ssl.create_default_context(cafile=str(authority.cert_file))
        yield Stage(sections={"listeners.tls": keys}), context


def shut_out_by_tls(silent: bytes) -> Callable[[], float]:
    """1,000 sockets of one address that never finish a handshake, and a TLS client from another address."""

    def run() -> float:
        with _tls_stage() as (stage, context), survivor(stage) as scene, contextlib.ExitStack() as stack:
            _fill(scene, stack, _IDLE, silent)
            return _served_after(scene, context)

    return run


def shut_out_by_number(silent: bytes) -> Callable[[], float]:
    """As many idle connections as limits.connections_max, from one address, and a client from another."""

    def run() -> float:
        stage = Stage(sections={"limits": {"connections_max": _IDLE}})
        with survivor(stage) as scene, contextlib.ExitStack() as stack:
            _fill(scene, stack, _IDLE, silent)
            return _served_after(scene, None)

    return run


def _fill(scene: Scene, stack: contextlib.ExitStack, count: int, silent: bytes) -> None:
    for _ in range(count):
        with contextlib.suppress(OSError):
            client = stack.enter_context(scene.connected(time.monotonic() + 30))
            if silent:
                client.send(silent)
    time.sleep(0.5)


def _served_after(scene: Scene, context: ssl.SSLContext | None) -> float:
    """How long until a client from another address has a response."""
    began = time.monotonic()
    until = began + _SHUT_OUT_SECONDS
    while time.monotonic() < until:
        try:
            with scene.connected(until, _OTHER_ADDRESS) as client:
                if context is not None:
                    client.socket = context.wrap_socket(client.socket, server_hostname=HOST)
                client.ask(wire.api_versions("honest"))
                return time.monotonic() - began
        except OSError:
            time.sleep(0.05)
    return _SHUT_OUT_SECONDS


def admin_shut_out() -> float:
    """64 idle sockets on the admin port, and /healthz."""
    with survivor(Stage()) as scene, contextlib.ExitStack() as stack:
        for _ in range(_ADMIN_IDLE):
            stack.enter_context(socket.create_connection((HOST, scene.sluice.ports.admin), timeout=5))
        time.sleep(0.3)
        began = time.monotonic()
        while time.monotonic() < began + _SHUT_OUT_SECONDS:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if scene.sluice.get("/healthz")[0] == 200:
                    return time.monotonic() - began
            time.sleep(0.05)
        return _SHUT_OUT_SECONDS


Attack = Callable[[Address, ssl.SSLContext], socket.socket | None]
"""Opens one connection to the admin port; returns it, to be kept open, or None if it has ended."""


def _hello(context: ssl.SSLContext) -> bytes:
    """Return a client's first message of TLS."""
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def begins_handshake(address: Address, context: ssl.SSLContext) -> socket.socket:
    """Half of a hello."""
    client = socket.create_connection(address, timeout=5)
    client.sendall(_hello(context)[:100])
    return client


def leaves_handshake(address: Address, context: ssl.SSLContext) -> socket.socket:
    """A whole hello, for which the port has to sign, and nothing behind it."""
    client = socket.create_connection(address, timeout=5)
    client.sendall(_hello(context))
    return client


def tries_token(address: Address, context: ssl.SSLContext) -> None:
    """A request with a wrong token."""
    with context.wrap_socket(socket.create_connection(address, timeout=5), server_hostname=HOST) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer " + b"x" * 64 + b"\r\n\r\n")
        while client.recv(4096):
            pass


def admin_flooded(attack: Attack) -> Callable[[], float]:
    """Two threads that attack the admin port as fast as they can; how long a client of another address waits.

    The longest of: a probe, a page with the right token, and a Kafka client's request.
    """

    def run() -> float:
        with tempfile.TemporaryDirectory(prefix="hostile-admin-") as directory:
            papers = AdminPapers(Path(directory))
            keys = {"cert_file": str(papers.own.cert_file), "key_file": str(papers.own.key_file)}
            sections = {"admin": {"token_file": str(papers.token_file)}, "admin.tls": keys}
            stage = Stage(sections=sections, context=papers.context(), token=TOKEN)
            with survivor(stage) as scene:
                return _waited(scene, attack, papers.context())

    return run


def _waited(scene: Scene, attack: Attack, context: ssl.SSLContext) -> float:
    address = HOST, scene.sluice.ports.admin
    until = time.monotonic() + _FLOOD_SECONDS
    kept: deque[socket.socket] = deque()

    def once(_: int) -> None:
        if (client := attack(address, context)) is not None:
            kept.append(client)
        with contextlib.suppress(IndexError):  # two threads
            while len(kept) > _ADMIN_KEPT:
                kept.popleft().close()

    flood = threading.Thread(target=harm.swarm, args=(2, until, once), daemon=True)
    flood.start()
    time.sleep(_FLOOD_SECONDS / 5)
    longest = 0.0
    while time.monotonic() < until:
        for path, token in (("/healthz", ""), ("/v1/status", TOKEN)):
            longest = max(longest, _page_after(address, context, path, token))
        longest = max(longest, _served_after(scene, None))
        time.sleep(0.05)
    flood.join()
    for client in kept:
        client.close()
    return longest


def unknown_name(address: Address, number: int, _context: ssl.SSLContext) -> None:
    """A hello with a name that leads nowhere, another one each time."""
    with socket.create_connection(address, timeout=5) as client:
        client.sendall(hello(b"x%d.other.test" % number))
        while client.recv(4096):
            pass


def unknown_broker(address: Address, number: int, context: ssl.SSLContext) -> None:
    """A whole handshake with the name of a broker that does not exist, another one each time."""
    name = broker_name(1_000_000 + number)
    with context.wrap_socket(socket.create_connection(address, timeout=5), server_hostname=name) as client:
        while client.recv(4096):
            pass


def names_flooded(attack: Callable[[Address, int, ssl.SSLContext], None]) -> Callable[[], float]:
    """Two threads that attack a port where names choose the broker; how long a client of another address waits."""

    def run() -> float:
        with tempfile.TemporaryDirectory(prefix="hostile-names-") as directory:
            site = Site.make(Path(directory))
            keys = {"cert_file": str(site.certificate.cert_file), "key_file": str(site.certificate.key_file)}
            context, numbers = site.context(), itertools.count()
            with survivor(Stage(listener=site.listener(), sections={"listeners.tls": keys})) as scene:
                address = HOST, scene.sluice.ports.bootstrap
                until = time.monotonic() + _FLOOD_SECONDS
                once = (lambda _: attack(address, next(numbers), context),)
                flood = threading.Thread(target=harm.swarm, args=(2, until, *once), daemon=True)
                flood.start()
                time.sleep(_FLOOD_SECONDS / 5)
                longest = 0.0
                while time.monotonic() < until:
                    longest = max(longest, _named_after(address, context))
                    time.sleep(0.05)
                flood.join()
                return longest

    return run


def _named_after(address: Address, context: ssl.SSLContext) -> float:
    """How long until a client from another address has the response of the broker that it has named."""
    began = time.monotonic()
    until = began + _SHUT_OUT_SECONDS
    while time.monotonic() < until:
        with (
            contextlib.suppress(OSError),
            contextlib.closing(Client(address, until=until, source=_OTHER_ADDRESS)) as client,
        ):
            client.socket = context.wrap_socket(client.socket, server_hostname=broker_name(NODE))
            client.ask(wire.api_versions("honest"))
            return time.monotonic() - began
        time.sleep(0.05)
    return _SHUT_OUT_SECONDS


def _page_after(address: Address, context: ssl.SSLContext, path: str, token: str) -> float:
    """How long until a client from another address has a page."""
    began = time.monotonic()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    while time.monotonic() < began + _SHUT_OUT_SECONDS:
        connection = http.client.HTTPSConnection(
            *address, timeout=_SHUT_OUT_SECONDS, source_address=(_OTHER_ADDRESS, 0), context=context
        )
        try:
            connection.request("GET", path, headers=headers)
            if connection.getresponse().status == 200:
                return time.monotonic() - began
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    return _SHUT_OUT_SECONDS


def any_host() -> float:
    """Whether /clients is shown to a browser that reached it under a foreign host name (DNS rebinding)."""
    with survivor(Stage()) as scene:
        connection = http.client.HTTPConnection(HOST, scene.sluice.ports.admin, timeout=5)
        connection.request("GET", "/clients", headers={"Host": "attacker.example"})
        status = connection.getresponse().status
        connection.close()
        return float(status == 200)


_HELLO: Final = b"\x16\x03\x01\x02\x00\x01"
_CASES: Final = tuple((policy, login) for policy in ("schedule", "kip13") for login in (False, True))


def _harm(name: str, what: str, run: Callable[[], float]) -> Harm:
    return Row(name, 9, what, "s", BESIDE_SECONDS), run


_HARMS: Final = (
    _harm("tls-idle", "1,000 idle sockets of one address, TLS listener", shut_out_by_tls(b"")),
    _harm("tls-hello", "1,000 halves of a TLS hello", shut_out_by_tls(_HELLO)),
    _harm("connections-idle", "connections_max idle sockets of one address", shut_out_by_number(b"")),
    _harm("connections-half", "the same, half a header each", shut_out_by_number(b"\0\0\0\x20\0")),
    _harm("admin-idle", "64 idle sockets on the admin port", admin_shut_out),
    (
        Row("admin-hello", 29, "half hellos, admin port with TLS", "s", BESIDE_SECONDS),
        admin_flooded(begins_handshake),
    ),
    (
        Row("admin-signature", 29, "whole hellos and nothing more, admin port with TLS", "s", BESIDE_SECONDS),
        admin_flooded(leaves_handshake),
    ),
    (
        Row("admin-token", 29, "wrong tokens, admin port with TLS", "s", BESIDE_SECONDS),
        admin_flooded(tries_token),
    ),
    (
        Row(
            "hello-names",
            31,
            "a new unknown name in each hello, one port for every broker",
            "s",
            BESIDE_SECONDS,
        ),
        names_flooded(unknown_name),
    ),
    (
        Row("hello-brokers", 31, "a new made-up broker in each handshake, the same", "s", BESIDE_SECONDS),
        names_flooded(unknown_broker),
    ),
    (Row("admin-host", 9, "/clients under a foreign Host header", "answered", 0.0), any_host),
)
ROWS: Final = (
    *(
        Row(
            _name(name, policy, login),
            14,
            f"{what} (`{policy}`{', before SASL login' if login else ''})",
            "s",
            BESIDE_SECONDS if login else STILL_SECONDS,
        )
        for policy, login in _CASES
        for name, (what, _) in _ANNOUNCES.items()
    ),
    *(row for row, _ in _HARMS),
)


def measure(seconds: float = 25.0) -> Mapping[str, float]:
    """Run all; the figures by name. With fewer `seconds` a victim cannot be seen to wait longer than that."""
    found: dict[str, float] = {}
    for policy, login in _CASES:
        found.update(still(policy, seconds, login=login))
    return {**found, **harm.measure(_HARMS)}
