"""A client's and a broker's ends of real loopback connections, with the proxy's `Connection` between them.

    client, broker = await rig.joined(ASKED)
    await broker.send(RESPONDED)
    assert await client.receive(len(RESPONDED)) == RESPONDED

Every wait ends: with what was waited for, or after SECONDS_MAX with a failure. Nothing sleeps to let something
happen; `until` looks again and again.
"""

import asyncio
import contextlib
import fcntl
import gc
import os
import resource
import socket
import struct
import termios
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from proxy.channel import ChannelSettings, Question
from proxy.channel.settings import AddressMap
from proxy.config.options import LimitOptions, ListenerOptions
from proxy.net import Connection, Connections, Listener, Shared
from proxy.net.server_name import BrokerNames
from proxy.net.shared import Outcome, Withdraw
from proxy.net.tls import ServerTls
from proxy.net.upstream import NextRoute, Route, Upstream
from proxy.system.clock import now_ms
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.cluster.ports import free_ports
from tests.support.frames import LIST_OFFSETS, request, some_response
from tests.support.playbook import gateway_address

SECONDS_MAX: Final = 20.0
HOST: Final = "127.0.0.1"
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
KNOWN: Final[Upstream] = ("", 0)  # the rig's own broker
ASKED: Final = request(LIST_OFFSETS, 7, size=100)
RESPONDED: Final = some_response(50)


class End:
    """One socket that a test plays a client or a broker with."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    def send_whole(self, data: bytes) -> None:
        """Send, and wait for the other side's kernel to have all of it, without a turn of the loop."""
        deadline = time.monotonic() + SECONDS_MAX
        self.sock.settimeout(SECONDS_MAX)
        self.sock.sendall(data)
        self.sock.setblocking(False)
        while struct.unpack("i", fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4)))[0]:
            assert time.monotonic() < deadline, "the other side has received everything"

    async def receive(self, count: int) -> bytes:
        """Receive exactly so many bytes; fewer where the other side closes before."""
        data = bytearray()
        async with asyncio.timeout(SECONDS_MAX):
            while len(data) < count:
                piece = await asyncio.get_running_loop().sock_recv(self.sock, count - len(data))
                if not piece:
                    break
                data += piece
        return bytes(data)

    async def rest(self) -> bytes:
        """Receive all until the other side closes or resets."""
        data = bytearray()
        async with asyncio.timeout(SECONDS_MAX):
            with contextlib.suppress(ConnectionResetError):
                while piece := await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16):
                    data += piece
        return bytes(data)

    def close(self) -> None:
        """Close as a program does that is done."""
        self.sock.close()

    def reset(self) -> None:
        """Close as a program does that is killed with bytes unread."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class Rig:
    """Makes connections; made inside a running loop."""

    def __init__(self) -> None:
        self.stats = Stats()
        self.engine = Engine(EngineOptions(), Definitions())
        self.limits = LimitOptions(frame_bytes_max=FRAME_BYTES_MAX)
        self.connections: set[Connection] = set()
        self.ended: list[Connection] = []
        self._ends: list[End] = []
        self._front = listening()
        self.back = listening()
        self._shared: Shared | None = None

    @property
    def shared(self) -> Shared:
        """What all connections share; made when first asked for, so that a test may set limits and quotas before."""
        if self._shared is None:
            self._shared = Shared(asyncio.get_running_loop(), self.engine, self.limits, self.stats)
        return self._shared

    def limit(self, **values: float) -> None:
        """Set limits."""
        assert self._shared is None, "limits are set before the first connection"
        self.limits = structs.replace(self.limits, **values)

    def quota(
        self, *, producer: float | None = None, consumer: float | None = None, **options: object
    ) -> None:
        """Set quotas and options of the engine."""
        assert self._shared is None, "quotas are set before the first connection"
        static = StaticQuotas(producer_default=producer, consumer_default=consumer)
        self.engine = Engine(replace(EngineOptions(), **options), Definitions(static=static))  # type: ignore[arg-type]

    def connect(
        self,
        upstream: Upstream | None = KNOWN,
        *,
        gateway: bool = False,
        send_buffer: int = 0,
        receive_buffer: int = 0,
        next_route: NextRoute | None = None,
        from_address: str = "192.0.2.1",
        **settings: Any,
    ) -> End:
        """Connect one client.

        Args:
            send_buffer: narrows what the proxy can send it at once.
            receive_buffer: what it can send while the proxy does not read.
            settings: further ones of its channel.
        """
        if receive_buffer:
            self._front.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock = socket.create_connection(self._front.getsockname())
        accepted, address = self._front.accept()
        accepted.setblocking(False)
        if send_buffer:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        address_map = gateway_address if gateway else None
        made = channel_settings(1, address_map=address_map, address=from_address, **settings)
        route = Route(1, self.back.getsockname()[:2] if upstream == KNOWN else upstream)
        peer = f"{address[0]}:{address[1]}"
        self.connections.add(
            Connection(accepted, peer, route, made, self.shared, self._has_ended, next_route)
        )
        return self._end(sock)

    async def accept(self) -> End:
        """Accept the proxy's connection to the broker."""
        async with asyncio.timeout(SECONDS_MAX):
            sock, _ = await asyncio.get_running_loop().sock_accept(self.back)
        return self._end(sock)

    async def joined(self, asked: bytes, **options: Any) -> tuple[End, End]:
        """Connect a client as `connect` does; its broker receives its first request, a Fetch perhaps rewritten."""
        client = self.connect(**options)
        await client.send(asked)
        broker = await self.accept()
        assert len(await broker.receive(len(asked))) == len(asked)
        return client, broker

    @property
    def connection(self) -> Connection:
        """The only connection there is."""
        (found,) = self.connections
        return found

    def charge_produce(self, size: int) -> None:
        """Charge the client for so many bytes."""
        spent = self.engine.client("ANONYMOUS", "a", 1).produce
        spent.produce(spent.flow(), size, now_ms())

    def charge_fetch(self, size: int) -> None:
        """Charge the client for so many bytes."""
        spent = self.engine.client("ANONYMOUS", "a", 1).fetch
        spent.fetched(spent.flow(), size, now_ms())

    def close(self) -> None:
        """End everything."""
        for connection in list(self.connections):
            connection.close("drained")
        if self._shared is not None:
            self._shared.close()
        for end in self._ends:
            end.close()
        self._front.close()
        self.back.close()

    def _end(self, sock: socket.socket) -> End:
        end = End(sock)
        self._ends.append(end)
        return end

    def _has_ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.ended.append(connection)


def channel_settings(
    broker: int, *, address_map: AddressMap | None = None, **settings: Any
) -> ChannelSettings:
    """The settings of a channel; of a sidecar without `address_map`."""
    return ChannelSettings(
        broker=broker, address_map=address_map, frame_bytes_max=FRAME_BYTES_MAX, **settings
    )


class Port:
    """One listener with a bootstrap port and the ports of brokers from 0, and no broker behind them.

    Attributes:
        asked: the broker behind each port that was connected to.
        target: the address of all brokers; None: none is known.
        tls: the TLS of its ports; None for plaintext.
        settings: returns the settings of a new channel; a test may replace it.
    """

    def __init__(
        self,
        limits: LimitOptions | None = None,
        *,
        engine: Engine | None = None,
        broker_id_max: int = 1,
        **options: Any,
    ) -> None:
        first = free_ports(broker_id_max + 2)[0]
        ports = {"bootstrap_port": first, "first_broker_port": first + 1, "broker_id_max": broker_id_max}
        self.options = ListenerOptions(bind=HOST, **{"advertised_host": HOST, **ports, **options})
        self.stats = Stats()
        self.connections = Connections()
        self.asked: list[int] = []
        self.target: Upstream | None = None
        self.settings: Callable[[int], ChannelSettings] = channel_settings
        if engine is None:
            engine = Engine(EngineOptions(), Definitions())
        limits = limits or LimitOptions(frame_bytes_max=FRAME_BYTES_MAX)
        self.shared = Shared(asyncio.get_running_loop(), engine, limits, self.stats)
        self.tls: ServerTls | None = None
        self.listener = self.another()

    def another(self) -> Listener:
        """One more listener at the same ports."""
        if (options := self.options.tls) is not None:
            names = BrokerNames(self.options) if self.options.by_name else None
            self.tls = ServerTls(options, "listeners[0].tls", options.principal_mapping_rules, names)
        return Listener(self.options, self._settings, self, self.shared, self.connections, self.tls)

    def _settings(self, broker: int) -> ChannelSettings:
        return self.settings(broker)

    def upstream(self, broker: int, tried: Collection[Upstream] = ()) -> tuple[int, Upstream | None]:
        """Note which port was asked for; return what is behind it."""
        self.asked.append(broker)
        return broker, self.target

    def host(self, broker: int, target: Upstream) -> str:
        """Know no name."""
        raise AssertionError((broker, target))

    @property
    def connection(self) -> Connection:
        """The only connection there is."""
        (found,) = self.connections
        return found

    def close(self) -> None:
        """End everything."""
        self.listener.close()
        for connection in list(self.connections):
            connection.close("drained")
        self.shared.close()


class Clerk:
    """Takes questions of quota requests; the test responds when it likes."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.give: list[Callable[[Outcome], None]] = []
        self.withdrawn: list[Question] = []

    def ask(self, question: Question, response: Callable[[Outcome], None]) -> Withdraw:
        self.questions.append(question)
        self.give.append(response)
        return lambda: self.withdrawn.append(question)

    async def asked(self, count: int = 1) -> None:
        """Wait until it was asked so often."""
        await until(lambda: len(self.questions) == count, "it is asked")


def listening() -> socket.socket:
    """A listening port on loopback."""
    sock = socket.create_server((HOST, 0))
    sock.setblocking(False)
    return sock


async def until(condition: Callable[[], bool], what: str) -> None:
    """Let the loop run until something is so."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():  # noqa: ASYNC110 - the proxy has no event for it
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not within {SECONDS_MAX:.0f} s: {what}") from None


def connecting(address: tuple[str, int]) -> socket.socket:
    """A connection that is under way, and perhaps never arrives."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(address)
    return sock


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open no further descriptor.

    What earlier tests left is collected before, and nothing is until the end: a socket that the collector closes would
    free a descriptor below the limit, and the accept that is to fail would pass.
    """
    gc.collect()
    gc.disable()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Holes are filled: what a test closes then frees a descriptor that it can open again.
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    filled = [os.open(os.devnull, os.O_RDONLY)]
    while filled[-1] < highest:
        filled.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (filled[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in filled:
            os.close(descriptor)
        gc.enable()
