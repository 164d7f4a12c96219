"""Clients that speak TLS, a listener of the proxy's own, and a broker behind it that may speak TLS too.

    async with TlsRig(door, brokers).running() as rig:
        reader, writer = await rig.client(context)

Both ends are asyncio's own streams, on the loop that the proxy runs on.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from proxy.config import ClusterTls, ListenerTls, Network
from proxy.config.options import LimitOptions
from proxy.net.tls import BrokerTls
from proxy.net.upstream import Upstream
from quotas.engine import Engine
from tests.component.proxy.net.rig import HOST, SECONDS_MAX, Port
from tests.support.certificates import Authority, Certificate

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Papers:
    """Two authorities and whom they vouch for: clients trust the one, the proxy the other."""

    def __init__(self, directory: Path) -> None:
        self.servers = Authority.make(directory, "servers")
        self.clients = Authority.make(directory, "clients")
        self.sluice = self.servers.issue("sluice")
        self.alice = self.clients.issue("alice", "/O=Example, Inc/OU=ops/CN=Alice")

    def listener(self, client_auth: str = "none", rules: str = "DEFAULT") -> ListenerTls:
        """What a listener shows and whom it believes."""
        return ListenerTls(
            cert_file=self.sluice.cert_file,
            key_file=self.sluice.key_file,
            client_ca_file=self.clients.cert_file,
            client_auth=client_auth,
            principal_mapping_rules=rules,
        )

    def cluster(self, own: Certificate | None = None, *, verify_hostname: bool = True) -> ClusterTls:
        """The certificates that the proxy accepts from brokers."""
        return ClusterTls(
            ca_file=self.servers.cert_file,
            cert_file=own.cert_file if own else None,
            key_file=own.key_file if own else None,
            verify_hostname=verify_hostname,
        )

    def client_context(
        self, own: Certificate | None = None, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """What a client uses."""
        context = ssl.create_default_context(cafile=self.servers.cert_file)
        if own is not None:
            context.load_cert_chain(own.cert_file, own.key_file)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context

    def broker_context(self, *, demands_certificate: bool = False) -> ssl.SSLContext:
        """What a broker uses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.sluice.cert_file, self.sluice.key_file)
        if demands_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.clients.cert_file)
        return context


class TlsRig(Port):
    """One listener with TLS, or without, and one broker with TLS, or without."""

    def __init__(
        self,
        requirements: ListenerTls | None,
        brokers: ClusterTls | None = None,
        *,
        broker_context: ssl.SSLContext | None = None,
        limits: LimitOptions | None = None,
        engine: Engine | None = None,
        certified_host: str = HOST,
        sources: tuple[Network, ...] = (),
        **options: Any,
    ) -> None:
        proxied = {"proxy_protocol": bool(sources), "proxy_protocol_sources": sources}
        super().__init__(limits, engine=engine, broker_id_max=0, tls=requirements, **proxied, **options)
        self.accepted: asyncio.Queue[Streams] = asyncio.Queue()
        self.shared.broker_tls = BrokerTls(brokers) if brokers else None
        self._broker_context = broker_context
        self._certified_host = certified_host
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def running(self) -> "AsyncIterator[TlsRig]":
        """Open the listener and the broker; close all at the end."""
        server = await asyncio.start_server(self._accept, HOST, 0, ssl=self._broker_context)
        self.target = server.sockets[0].getsockname()[:2]
        self.listener.open()
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            self.close()

    def host(self, broker: int, target: Upstream) -> str:
        """Say under which name it is known."""
        assert (broker, target) == (-1, self.target)
        return self._certified_host

    async def client(self, context: ssl.SSLContext | None = None, *, source: str = HOST) -> Streams:
        """Connect a client to the bootstrap port."""
        async with asyncio.timeout(SECONDS_MAX):
            streams = await asyncio.open_connection(
                HOST, self.options.bootstrap_port, ssl=context, limit=1 << 22, local_addr=(source, 0)
            )
        self._writers.append(streams[1])
        return streams

    async def broker(self) -> Streams:
        """The next connection that the proxy makes to the broker."""
        async with asyncio.timeout(SECONDS_MAX):
            return await self.accepted.get()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await self.accepted.put((reader, writer))


async def receive(streams: Streams, count: int) -> bytes:
    """Receive exactly so many bytes."""
    async with asyncio.timeout(SECONDS_MAX):
        return await streams[0].readexactly(count)


async def send(streams: Streams, data: bytes) -> None:
    """Send all of it."""
    streams[1].write(data)
    async with asyncio.timeout(SECONDS_MAX):
        await streams[1].drain()
