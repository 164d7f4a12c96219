"""One port for all brokers: the name in the hello leads to the broker, or ends the handshake with its own cause."""

import asyncio
import contextlib
import socket
import ssl
import sys
import weakref
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.channel import ANY_BROKER
from proxy.config.options import LimitOptions, ListenerOptions, ListenerTls
from proxy.config.schema import Networks, read_value
from proxy.net.server_name import BrokerNames, NamedSocket
from proxy.net.tls import ServerTls
from proxy.net.upstream import Upstream
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.component.proxy.net.rig import HOST, SECONDS_MAX, until
from tests.component.proxy.net.tls_rig import Papers, Streams, TlsRig, receive, send
from tests.support.frames import LIST_OFFSETS, request
from tests.support.hellos import hello
from tests.support.playbook import user_of

ASKED = request(LIST_OFFSETS, 7, size=100)
BROKER_HOST = "b{id}.kafka.test"
BOOTSTRAP = "kafka.test"
V1 = b"PROXY TCP4 192.0.2.1 127.0.0.1 1234 9092\r\n"
LOOPBACK = read_value("sources", Networks, "127.0.0.0/8")
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
LONG = ".".join(("a" * 63, "b" * 63, "c" * 63, "d" * 61))  # 253 characters, as many as a host name may have


class NamesRig(TlsRig):
    """One port of all brokers, of which those in `known` are known, all at the address of the rig's own."""

    def __init__(
        self,
        papers: Papers,
        *,
        client_auth: str = "none",
        more_cert_files: tuple[Path, ...] = (),
        **options: object,
    ) -> None:
        self.papers = papers
        self.known = {1, 2}
        found = replace(self._tls(papers, client_auth), more_cert_files=more_cert_files)
        super().__init__(found, broker_host=BROKER_HOST, advertised_host=BOOTSTRAP, **options)  # type: ignore[arg-type]  # as they are

    @staticmethod
    def _tls(papers: Papers, client_auth: str) -> ListenerTls:
        made = papers.servers.issue("wildcard", names=f"subjectAltName=DNS:*.{BOOTSTRAP},DNS:{BOOTSTRAP}")
        return replace(papers.listener(client_auth), cert_file=made.cert_file, key_file=made.key_file)

    def upstream(self, broker: int, tried: Collection[Upstream] = ()) -> tuple[int, Upstream | None]:
        """Return the rig's broker for each one that is known."""
        self.asked.append(broker)
        return broker, self.target if broker in {*self.known, ANY_BROKER} else None

    async def named(
        self, name: str | None, context: ssl.SSLContext | None = None, before: bytes = b""
    ) -> Streams:
        """Connect a client that names a host; None for a hello without one."""
        context = context or self.papers.client_context()
        if name is None:
            context.check_hostname = False
        async with asyncio.timeout(SECONDS_MAX):
            reader, writer = await asyncio.open_connection(HOST, self.options.bootstrap_port)
            writer.write(before)
            await writer.start_tls(context, server_hostname=name or HOST)
        return reader, writer

    async def passes(self, streams: Streams) -> None:
        """Have a request through."""
        await send(streams, ASKED)
        assert await receive(await self.broker(), len(ASKED)) == ASKED

    async def resumed(
        self, context: ssl.SSLContext, name: str, session: ssl.SSLSession | None = None
    ) -> ssl.SSLSession:
        """Have a request through on a connection that offers a session; return the session that it ends with."""
        sock = await asyncio.to_thread(_connect, self.options.bootstrap_port, context, name, session)
        try:
            assert await receive(await self.broker(), len(ASKED)) == ASKED
            self.connection.close("drained")
            await asyncio.to_thread(_read, sock)  # the tickets of TLS 1.3 come behind the handshake
            assert sock.session is not None
            return sock.session
        finally:
            sock.close()


def _connect(port: int, context: ssl.SSLContext, name: str, session: ssl.SSLSession | None) -> ssl.SSLSocket:
    plain = socket.create_connection((HOST, port), timeout=SECONDS_MAX)
    sock = context.wrap_socket(plain, server_hostname=name, session=session)
    sock.sendall(ASKED)
    return sock


def _read(sock: ssl.SSLSocket) -> bytes:
    with contextlib.suppress(OSError):
        return sock.recv(1)
    return b""


async def answered(rig: TlsRig, sent: bytes, cut: int = 0) -> bytes:
    """Send bytes, cut into so many at a time; return what comes until the listener closes."""
    reader, writer = await rig.client()
    for start in range(0, len(sent), cut or len(sent)):
        writer.write(sent[start : start + (cut or len(sent))])
        await writer.drain()
        if cut:
            await asyncio.sleep(0)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def alert(number: int) -> bytes:
    """A fatal alert, as a record that is not encrypted."""
    return bytes((0x15, 3, 3, 0, 2, 2, number))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "broker"),
    [(BOOTSTRAP, ANY_BROKER), ("Kafka.Test", ANY_BROKER), ("b1.kafka.test", 1), ("B2.kafka.TEST", 2)],
)
async def test_name_leads_to_its_broker(
    papers: Papers, version: ssl.TLSVersion, name: str, broker: int
) -> None:
    async with NamesRig(papers).running() as rig:
        assert isinstance(rig, NamesRig)
        await rig.passes(await rig.named(name, papers.client_context(None, version)))
        assert (rig.asked, rig.stats.errors) == ([broker], {})
        assert rig.stats.connections_total == {"clients": 1}


@pytest.mark.parametrize("name", [b"kafka.test.", b"b1.kafka.test."])
async def test_dot_at_the_end_of_a_name_makes_no_difference(papers: Papers, name: bytes) -> None:
    async with NamesRig(papers).running() as rig:
        reader, writer = await rig.client()
        writer.write(hello(name))
        async with asyncio.timeout(SECONDS_MAX):
            assert (await reader.readexactly(1)) == b"\x16"  # a server's hello


@pytest.mark.parametrize(
    "name",
    [
        *("other.test", "kafka.test.other.test", "b1.kafka.test.other.test", "ab1.kafka.test"),
        *("b.kafka.test", "b01.kafka.test", "b-1.kafka.test", "b1.b1.kafka.test", "b{id}.kafka.test"),
        *("b2147483648.kafka.test", "b99999999999999999999.kafka.test", "10.0.0.1", "::1", "b1.kafka.test.."),
        *("b1 .kafka.test", "b1\n\x1b[2J.kafka.test", "%", LONG, "x" * 255),
    ],
)
async def test_unknown_name_ends_the_handshake_and_is_counted(
    papers: Papers, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with NamesRig(papers).running() as rig:
        assert await answered(rig, hello(name.encode("ascii"))) == alert(112)  # unrecognized_name
        await until(lambda: not rig.shared.arrivals, "the arrival is over")
        assert (rig.stats.errors, rig.asked) == ({"unknown_name": 1}, [])
        (line,) = [record for record in caplog.records if record.getMessage() == "connection ended"]
        assert "which is neither the bootstrap nor a broker" in str(line.__dict__)
        assert len(str(line.__dict__["sluice_fields"]["detail"])) < 300


async def test_hello_without_a_name_ends_the_handshake_and_is_counted(papers: Papers) -> None:
    async with NamesRig(papers).running() as rig:
        assert await answered(rig, hello(None)) == alert(109)  # missing_extension
        assert (rig.stats.errors, rig.asked) == ({"no_name": 1}, [])


async def test_name_of_256_bytes_or_with_a_zero_is_refused_by_openssl(papers: Papers) -> None:
    async with NamesRig(papers).running() as rig:
        for name in (b"x" * 256, b"b1.kafka.test\0.other"):
            assert (await answered(rig, hello(name)))[:1] == b"\x15"
        assert (rig.stats.errors, rig.asked) == ({"tls_handshake": 2}, [])


@pytest.mark.parametrize("unknown_names", ["refuse", "bootstrap"])
async def test_name_that_is_not_ascii_is_refused(
    papers: Papers, unknown_names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: seen.append(found.exc_type.__name__))
    async with NamesRig(papers, unknown_names=unknown_names).running() as rig:
        assert await answered(rig, hello("b\u00fc.kafka.test".encode())) == alert(80)  # internal_error
        assert (rig.stats.errors, rig.asked, seen) == ({"unknown_name": 1}, [], ["UnicodeDecodeError"])


@pytest.mark.parametrize("name", [None, "other.test"])
async def test_absent_or_unknown_name_is_the_bootstraps_by_a_key(papers: Papers, name: str | None) -> None:
    async with NamesRig(papers, unknown_names="bootstrap").running() as rig:
        assert isinstance(rig, NamesRig)
        context = papers.client_context()
        context.check_hostname = False
        await rig.passes(await rig.named(name, context))
        assert (rig.asked, rig.stats.errors) == ([ANY_BROKER], {})


async def test_broker_that_is_not_known_is_closed_behind_the_handshake_until_it_joins(papers: Papers) -> None:
    async with NamesRig(papers).running() as rig:
        assert isinstance(rig, NamesRig)
        reader, _ = await rig.named("b7.kafka.test")
        async with asyncio.timeout(SECONDS_MAX):
            assert await reader.read() == b""  # no alert: a client takes it for a broker that is gone
        assert (rig.stats.errors, len(rig.connections)) == ({"broker_unknown": 1}, 0)
        rig.known.add(7)
        await rig.passes(await rig.named("b7.kafka.test"))
        assert rig.asked == [7, 7]


async def test_hello_in_pieces_of_a_byte_is_one_hello(papers: Papers) -> None:
    async with NamesRig(papers).running() as rig:
        assert await answered(rig, hello(b"other.test"), cut=1) == alert(112)
        assert rig.stats.errors == {"unknown_name": 1}


async def test_hello_of_16_mib_is_refused_at_its_head(papers: Papers) -> None:
    """A message of the length that TLS can announce, in records of 16 KiB."""
    async with NamesRig(papers).running() as rig:
        head = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff"
        assert (await answered(rig, head + bytes(0x4000 - 4)))[:1] == b"\x15"
        assert (rig.stats.errors, rig.asked) == ({"tls_handshake": 1}, [])


async def test_half_a_hello_is_closed_after_its_time_limit(papers: Papers) -> None:
    async with NamesRig(papers, limits=LimitOptions(handshake_seconds=0.2)).running() as rig:
        assert await answered(rig, hello(b"b1.kafka.test")[:-1]) == b""
        assert (rig.stats.errors, rig.asked) == ({"handshake_timeout": 1}, [])


async def test_session_is_resumed_at_the_broker_that_the_hello_names(papers: Papers) -> None:
    async with NamesRig(papers).running() as rig:
        assert isinstance(rig, NamesRig)
        context = papers.client_context(None, ssl.TLSVersion.TLSv1_3)
        session = await rig.resumed(context, "b1.kafka.test")
        session = await rig.resumed(context, "b1.kafka.test", session)
        assert rig.stats.tls_sessions_resumed == 1
        await rig.resumed(context, "b2.kafka.test", session)
        assert (rig.asked, rig.stats.errors) == ([1, 1, 2], {})
        assert rig.stats.tls_sessions_resumed == 2


async def test_session_of_tls_1_2_leads_to_the_broker_it_was_made_with(papers: Papers) -> None:
    async with NamesRig(papers).running() as rig:
        assert isinstance(rig, NamesRig)
        context = papers.client_context(None, ssl.TLSVersion.TLSv1_2)
        session = await rig.resumed(context, "b1.kafka.test")
        await rig.resumed(context, "b1.kafka.test", session)
        await rig.resumed(context, "b2.kafka.test", session)
        assert (rig.asked, rig.stats.errors) == ([1, 1, 1], {})
        assert rig.stats.tls_sessions_resumed == 2


async def test_client_certificate_and_proxy_header_go_with_a_name(papers: Papers) -> None:
    async with NamesRig(papers, client_auth="required", sources=LOOPBACK).running() as rig:
        assert isinstance(rig, NamesRig)
        await rig.passes(await rig.named("b2.kafka.test", papers.client_context(papers.alice), V1))
        assert rig.asked == [2]
        assert user_of(rig.connection.channel) == "CN=Alice,OU=ops,O=Example\\, Inc"
        assert rig.connection.peer == "192.0.2.1:1234"


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_name_gets_the_first_certificate_that_has_it(
    papers: Papers, version: ssl.TLSVersion
) -> None:
    """A client with a certificate of its own, whichever is shown, and with a session, which all of them share."""
    more = [
        papers.servers.issue(name, f"/CN={name}", names=f"subjectAltName=DNS:{host}")
        for name, host in (("of-b1", "b1.kafka.test"), ("again", "b1.kafka.test"), ("of-b2", "B2.kafka.test"))
    ]
    files = tuple(one.store_file for one in more)
    async with NamesRig(papers, client_auth="required", more_cert_files=files).running() as rig:
        assert isinstance(rig, NamesRig)
        shown = []
        for name in ("b1.kafka.test", "b2.kafka.test", "b7.kafka.test", BOOTSTRAP):
            client = await rig.named(name, papers.client_context(papers.alice, version))
            shown.append(
                dict(one[0] for one in client[1].get_extra_info("peercert")["subject"])["commonName"]
            )
        assert shown == ["of-b1", "of-b2", HOST, HOST]
        await until(lambda: len(rig.connections) == 3, "all are admitted whose broker is known")
        for connection in list(rig.connections):
            connection.close("drained")
        context = papers.client_context(papers.alice, version)
        await rig.resumed(context, "b1.kafka.test", await rig.resumed(context, "b1.kafka.test"))
        assert rig.stats.tls_sessions_resumed == 1


async def test_names_are_chosen_by_the_context_of_a_reloaded_certificate(papers: Papers) -> None:
    async with NamesRig(papers).running() as rig:
        assert isinstance(rig, NamesRig)
        assert rig.tls is not None
        rig.tls.reload()
        await rig.passes(await rig.named("b2.kafka.test"))
        assert rig.asked == [2]


def test_reload_between_two_hellos_keeps_the_context_that_openssl_calls(papers: Papers) -> None:
    """After a HelloRetryRequest OpenSSL calls the first context, although the socket has another by then."""
    made = papers.servers.issue("of-b1-alone", names="subjectAltName=DNS:b1.kafka.test")
    tls = ServerTls(
        replace(papers.listener("none"), more_cert_files=(made.store_file,)),
        "tls",
        names=BrokerNames(ListenerOptions(broker_host=BROKER_HOST, advertised_host=BOOTSTRAP)),
    )
    tls.context.set_ecdh_curve("secp384r1")  # a client has no key share for it in its first hello
    first = weakref.ref(tls.context)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    server = tls.context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    context = papers.client_context()
    client = context.wrap_socket(theirs, server_hostname="b1.kafka.test", do_handshake_on_connect=False)
    with server, client:
        _step(client)
        _step(server)
        assert server.context is not first()
        tls.reload()
        assert first() is not None
        for side in (client, server, client, server):
            _step(side)
        assert client.version() == "TLSv1.3"
        assert isinstance(server, NamedSocket)
        assert server.broker == 1


def _step(sock: ssl.SSLSocket) -> None:
    with contextlib.suppress(ssl.SSLWantReadError):
        sock.do_handshake()


async def test_rate_of_an_address_is_one_over_all_names(papers: Papers) -> None:
    """With a rate at each broker, made-up names would give an address a rate each."""
    definitions = Definitions()
    definitions.put(Entity(ip=HOST), {"connection_creation_rate": 1000})
    engine = Engine(EngineOptions(scope="broker"), definitions)
    async with NamesRig(papers, engine=engine).running() as rig:
        assert isinstance(rig, NamesRig)
        for broker in (1, 2, 7, 8):
            await rig.named(f"b{broker}.kafka.test")
        assert len(rig.shared.connection_rates) == 1


async def test_names_leave_nothing_behind(papers: Papers) -> None:
    count = 1000
    async with NamesRig(papers).running() as rig:
        sent = partial(answered, rig)
        for first in range(0, count, 50):
            hellos = [hello(b"x%d.other.test" % number) for number in range(first, first + 50)]
            assert {*await asyncio.gather(*map(sent, hellos))} == {alert(112)}
        assert rig.stats.errors == {"unknown_name": count}
        await until(lambda: not rig.shared.arrivals, "all arrivals are over")
        assert (len(rig.connections), rig.asked) == (0, [])
