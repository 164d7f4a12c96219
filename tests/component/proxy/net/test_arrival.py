"""New connections: accepted under a name and an address, or refused with a cause and a message."""

import asyncio
import ssl
from collections.abc import Callable

import pytest

from proxy.config.options import LimitOptions
from proxy.config.schema import Networks, read_value
from proxy.net import upstream
from proxy.net.sockets import Stream
from proxy.net.tls import ServerTls
from proxy.system.clock import now_ms
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.component.proxy.net.rig import SECONDS_MAX, until
from tests.component.proxy.net.tls_rig import Papers, Streams, TlsRig, receive, send
from tests.support.certificates import Certificate
from tests.support.frames import LIST_OFFSETS, request
from tests.support.playbook import user_of

ASKED = request(LIST_OFFSETS, 7, size=100)
V1 = b"PROXY TCP4 192.0.2.1 127.0.0.1 1234 9092\r\n"
V2 = bytes.fromhex("0d0a0d0a000d0a515549540a2111000cc00002077f000001162e2384")
LOOPBACK = read_value("sources", Networks, "127.0.0.0/8")
ELSEWHERE = read_value("sources", Networks, "192.0.2.0/24,2001:db8::/32")


async def closed(client: Streams) -> bytes:
    """What a client still gets until the other side closes, however it does that."""
    async with asyncio.timeout(SECONDS_MAX):
        try:
            return await client[0].read()
        except ConnectionError:
            return b""


async def let_in(rig: TlsRig, context: ssl.SSLContext | None, before: bytes = b"") -> str:
    """Have a request through; the principal's name."""
    client = await rig.client(context)
    await send(client, before + ASKED)
    assert await receive(await rig.broker(), len(ASKED)) == ASKED
    return user_of(rig.connection.channel)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("auth", "rules", "shows", "user"),
    [
        ("none", "DEFAULT", True, "ANONYMOUS"),
        ("requested", "DEFAULT", False, "ANONYMOUS"),
        ("requested", "DEFAULT", True, "CN=Alice,OU=ops,O=Example\\, Inc"),
        ("required", "RULE:^CN=([^,]*),.*$/$1/L,DEFAULT", True, "alice"),
    ],
)
async def test_principal_is_the_certificates_subject(
    papers: Papers, version: ssl.TLSVersion, auth: str, rules: str, shows: bool, user: str
) -> None:
    async with TlsRig(papers.listener(auth, rules)).running() as rig:
        context = papers.client_context(papers.alice if shows else None, version)
        assert await let_in(rig, context) == user
        assert rig.stats.handshakes == {"client": 1}


async def test_resumed_session_is_the_same_principal(papers: Papers) -> None:
    async with TlsRig(papers.listener("required")).running() as rig:
        context = papers.client_context(papers.alice, ssl.TLSVersion.TLSv1_2)
        names = set()
        for _ in range(3):
            names.add(await let_in(rig, context))
            rig.connection.close("drained")
        assert names == {"CN=Alice,OU=ops,O=Example\\, Inc"}


async def refused_client(papers: Papers, rig: TlsRig, context: ssl.SSLContext) -> Exception:
    """With TLS 1.2 the client learns it in the handshake, with 1.3 when it reads."""
    try:
        client = await rig.client(context)
        client[1].write(ASKED)  # bytes that are never read must not cost it the alert
        async with asyncio.timeout(SECONDS_MAX):
            await client[0].read()
    except OSError as error:
        return error
    raise AssertionError("it was not refused")


CERTIFICATES: dict[str, tuple[Callable[[Papers], Certificate | None], str]] = {
    "none": (lambda _: None, "a client certificate is required, and none was sent"),
    "expired": (lambda papers: papers.clients.issue("old", expired=True), "certificate refused: "),
    "of another authority": (lambda papers: papers.sluice, "certificate refused: "),
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("which", CERTIFICATES)
async def test_client_without_a_trusted_certificate_is_told_why(
    papers: Papers, version: ssl.TLSVersion, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, said = CERTIFICATES[which]
    caplog.set_level("INFO")
    async with TlsRig(papers.listener("required")).running() as rig:
        error = await refused_client(papers, rig, papers.client_context(certificate(papers), version))
        assert "ALERT" in str(getattr(error, "reason", "")), error
        await until(lambda: not rig.shared.arrivals, "the arrival is over")
        assert rig.stats.errors == {"client_certificate": 1}
        assert said in str(caplog.records[-1].__dict__)


async def test_subject_that_no_rule_names_is_refused(papers: Papers) -> None:
    async with TlsRig(papers.listener("required", "RULE:^CN=bob$/bob/")).running() as rig:
        await closed(await rig.client(papers.client_context(papers.alice)))
        assert rig.stats.errors == {"principal_unmapped": 1}


async def test_internal_error_ends_one_client_handshake(
    papers: Papers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def user(_tls: ServerTls, _sock: ssl.SSLSocket) -> str:
        raise ValueError

    async with TlsRig(papers.listener()).running() as rig:
        with monkeypatch.context() as patched:
            patched.setattr(ServerTls, "user", user)
            await closed(await rig.client(papers.client_context()))
            assert (rig.stats.errors, not rig.shared.arrivals) == ({"internal": 1}, True)
        assert await let_in(rig, papers.client_context()) == "ANONYMOUS"
    assert "internal error: TLS handshake aborted" in caplog.text


async def test_internal_error_ends_one_broker_handshake(
    papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def secured(_sock: ssl.SSLSocket) -> Stream:
        raise ValueError

    brokers = papers.cluster()
    async with TlsRig(None, brokers, broker_context=papers.broker_context()).running() as rig:
        with monkeypatch.context() as patched:
            patched.setattr(upstream, "TlsSocket", secured)
            client = await rig.client()
            await send(client, ASKED)
            assert await closed(client) == b""
            assert rig.stats.errors == {"internal": 1}
        await rig.broker()
        assert await let_in(rig, None) == "ANONYMOUS"


async def test_client_that_does_not_trust_the_proxy_is_counted(papers: Papers) -> None:
    async with TlsRig(papers.listener()).running() as rig:
        with pytest.raises(ssl.SSLCertVerificationError):
            await rig.client(ssl.create_default_context(cafile=papers.clients.cert_file))
        await until(lambda: rig.stats.errors["tls_handshake"] == 1, "counted")


@pytest.mark.parametrize(
    ("first", "alert", "cause"),
    [
        (ASKED, b"", "plain_on_tls"),
        (b"GET / HTTP/1.1\r\n\r\n", b"", "plain_on_tls"),
        (b"\x00", b"", "plain_on_tls"),
        (b"\x16\x03\x01\x00\x10" + bytes(16), b"\x15\x03\x03\x00\x02\x02\x0a", "tls_handshake"),
    ],
    ids=["Kafka", "HTTP", "a byte", "nonsense after the first byte"],
)
async def test_bytes_that_are_no_handshake_are_refused_under_their_cause(
    papers: Papers, first: bytes, alert: bytes, cause: str
) -> None:
    async with TlsRig(papers.listener()).running() as rig:
        client = await rig.client()
        await send(client, first)
        assert await closed(client) == alert
        assert rig.stats.errors == {cause: 1}


async def test_health_check_costs_no_error(papers: Papers) -> None:
    async with TlsRig(papers.listener()).running() as rig:
        client = await rig.client()
        await until(lambda: len(rig.shared.arrivals) == 1, "accepted")
        client[1].close()
        await until(lambda: not rig.shared.arrivals, "gone")
        assert not rig.stats.errors


@pytest.mark.parametrize(
    ("with_tls", "first"),
    [(True, b""), (True, b"\x16"), (True, b"\x16\x03\x01\x02\x00\x01"), (False, V1[:20])],
    ids=["nothing", "a byte", "a part", "a part of a PROXY header"],
)
async def test_handshake_is_closed_after_its_time_limit(papers: Papers, with_tls: bool, first: bytes) -> None:
    limits = LimitOptions(handshake_seconds=0.2)
    sources = () if with_tls else LOOPBACK
    async with TlsRig(
        papers.listener() if with_tls else None, limits=limits, sources=sources
    ).running() as rig:
        client = await rig.client()
        await send(client, first)
        assert await closed(client) == b""
        assert rig.stats.errors == {"handshake_timeout": 1}
        assert not rig.shared.arrivals


async def test_handshakes_under_way_are_bounded(papers: Papers) -> None:
    async with TlsRig(papers.listener(), limits=LimitOptions(handshakes_max=2)).running() as rig:
        waiting = [await rig.client() for _ in range(2)]
        await until(lambda: len(rig.shared.arrivals) == 2, "two are under way")
        assert await closed(await rig.client()) == b""
        assert rig.stats.refused == {"handshakes_max": 1}
        waiting[0][1].close()
        await until(lambda: len(rig.shared.arrivals) == 1, "one is gone")
        await let_in(rig, papers.client_context())


async def test_idle_arrivals_of_one_address_keep_no_other_one_out(papers: Papers) -> None:
    async with TlsRig(papers.listener(), limits=LimitOptions(handshakes_max=20)).running() as rig:
        idle = [await rig.client() for _ in range(20)]
        await until(lambda: len(rig.shared.arrivals) == 20, "one address has them all")
        for number in range(2, 7):
            await rig.client(papers.client_context(), source=f"127.0.0.{number}")
        await until(lambda: len(rig.connections) == 5, "all others are let in")
        for client in idle[:1]:
            assert await closed(client) == b""
        # Each handshake that is done makes room again, so one or a few have given way: never more than came.
        assert 1 <= rig.stats.errors["address_share"] <= 5
        assert rig.stats.refused == {}


async def test_address_behind_a_balancer_has_its_own_share(papers: Papers) -> None:
    limits = LimitOptions(connections_max=3)
    async with TlsRig(papers.listener(), sources=LOOPBACK, limits=limits).running() as rig:
        for _ in range(3):
            _, writer = await rig.client()
            writer.write(b"PROXY TCP4 192.0.2.1 192.0.2.9 1234 9092\r\n")
        await until(lambda: rig.shared.arrivals.count_of("192.0.2.1") == 3, "one address has them all")
        _, writer = await rig.client()
        writer.write(b"PROXY TCP4 192.0.2.2 192.0.2.9 1234 9092\r\n")
        await until(lambda: rig.shared.arrivals.count_of("192.0.2.2") == 1, "another address is let in")
        assert (rig.stats.errors, rig.shared.arrivals.count_of("192.0.2.1")) == ({"address_share": 1}, 2)


async def test_arrivals_count_as_connections_until_they_are_closed(papers: Papers) -> None:
    async with TlsRig(papers.listener(), limits=LimitOptions(connections_max=1)).running() as rig:
        first = await rig.client()
        await until(lambda: len(rig.shared.arrivals) == 1, "one is under way")
        assert await closed(await rig.client()) == b""
        assert rig.stats.refused == {"connections_max": 1}
        for arrival in list(rig.shared.arrivals):
            arrival.close()
        assert await closed(first) == b""


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (V1, "192.0.2.1:1234"),
        (V2, "192.0.2.7:5678"),
        (b"PROXY TCP6 2001:db8::1 ::1 1234 9092\r\n", "2001:db8::1:1234"),
    ],
)
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_proxy_header_gives_the_clients_address(
    papers: Papers, header: bytes, peer: str, with_tls: bool
) -> None:
    async with TlsRig(papers.listener() if with_tls else None, sources=LOOPBACK).running() as rig:
        client = await rig.client()
        for byte in header:
            client[1].write(bytes((byte,)))
            await asyncio.sleep(0)
        if with_tls:
            await client[1].start_tls(papers.client_context(), server_hostname="127.0.0.1")
        await send(client, ASKED)
        assert await receive(await rig.broker(), len(ASKED)) == ASKED
        assert rig.connection.peer == peer


@pytest.mark.parametrize(
    ("header", "peer"),
    [(V1, "192.0.2.1:"), (b"PROXY UNKNOWN\r\n", "127.0.0.1:"), (V2[:12] + b"\x20\x00\x00\x00", "127.0.0.1:")],
    ids=["an address", "none in version 1", "none in version 2"],
)
async def test_header_and_request_may_come_together(header: bytes, peer: str) -> None:
    async with TlsRig(None, sources=LOOPBACK).running() as rig:
        await let_in(rig, None, header)
        assert rig.connection.peer.startswith(peer)


async def test_proxy_header_is_accepted_from_listed_sources_alone() -> None:
    async with TlsRig(None, sources=ELSEWHERE).running() as rig:
        client = await rig.client()
        assert await closed(client) == b""
        assert rig.stats.refused == {"proxy_source": 1}


async def test_client_without_the_header_is_refused() -> None:
    async with TlsRig(None, sources=LOOPBACK).running() as rig:
        client = await rig.client()
        await send(client, ASKED)
        assert await closed(client) == b""
        assert rig.stats.errors == {"proxy_header": 1}


def limited(ip: str, mode: str = "enforce") -> Engine:
    definitions = Definitions({Entity(ip=ip): {"connection_creation_rate": 1}})
    return Engine(EngineOptions(mode=mode), definitions)  # type: ignore[arg-type]  # a mode by its name


def come(rig: TlsRig, ip: str, count: int = 10) -> None:
    """1/s over a window of 10 to 11 s: so many come before, and one more is over."""
    for _ in range(count):
        assert not rig.shared.connection_rates.connect(ip, -1, now_ms()).wait_ms


async def test_address_over_its_rate_waits_unread_and_is_closed() -> None:
    async with TlsRig(None, engine=limited("127.0.0.1")).running() as rig:
        come(rig, "127.0.0.1")
        client = await rig.client()
        await until(lambda: rig.stats.refused["connection_rate"] == 1, "the eleventh is refused")
        assert (len(rig.connections), rig.stats.connections_waiting) == (0, 1)
        await send(client, ASKED)
        assert await closed(client) == b""
        assert rig.stats.connections_waiting == 0
        assert sum(rig.stats.requests) == 0


async def test_rate_is_that_of_the_address_in_the_header() -> None:
    async with TlsRig(None, engine=limited("192.0.2.1"), sources=LOOPBACK).running() as rig:
        come(rig, "192.0.2.1")
        for header in (V1, V2):
            await send(await rig.client(), header)
        await until(lambda: rig.stats.refused["connection_rate"] == 1, "the eleventh from there")
        await until(lambda: len(rig.connections) == 1, "the one from elsewhere")


async def test_rate_is_looked_at_before_the_handshake(papers: Papers) -> None:
    async with TlsRig(papers.listener(), engine=limited("127.0.0.1")).running() as rig:
        come(rig, "127.0.0.1")
        with pytest.raises(ConnectionError):
            await rig.client(papers.client_context())
        assert rig.stats.handshakes == {}


async def test_observed_rate_refuses_no_connection() -> None:
    async with TlsRig(None, engine=limited("127.0.0.1", "observe")).running() as rig:
        come(rig, "127.0.0.1")
        for _ in range(2):
            await rig.client()
        await until(lambda: len(rig.connections) == 2, "all are let in")
        assert rig.stats.connections_would_refuse == 2
        assert not rig.stats.refused


# The broker's side.


async def asked(rig: TlsRig) -> Streams:
    client = await rig.client()
    await send(client, ASKED)
    return client


async def test_broker_sees_the_proxys_own_certificate(papers: Papers) -> None:
    own = papers.clients.issue("own", "/CN=sluice")
    brokers = papers.broker_context(demands_certificate=True)
    async with TlsRig(None, papers.cluster(own), broker_context=brokers).running() as rig:
        await asked(rig)
        broker = await rig.broker()
        assert await receive(broker, len(ASKED)) == ASKED
        shown = broker[1].get_extra_info("peercert")
        assert shown["subject"] == ((("commonName", "sluice"),),)
        assert rig.stats.handshakes == {"broker": 1}


@pytest.mark.parametrize(
    ("host", "speaks_tls", "demands"),
    [
        ("kafka.example.org", True, False),
        (".example.org", True, False),
        ("127.0.0.1", False, False),
        ("127.0.0.1", True, True),
    ],
    ids=["another name", "a name that cannot be", "plaintext", "wants a certificate"],
)
async def test_failed_tls_to_the_broker_ends_the_connection(
    papers: Papers, host: str, speaks_tls: bool, demands: bool
) -> None:
    context = papers.broker_context(demands_certificate=demands) if speaks_tls else None
    if context is not None:  # with TLS 1.3 the broker refuses when the proxy's handshake is over already
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    limits = LimitOptions(connect_seconds=0.5)
    rig = TlsRig(None, papers.cluster(), broker_context=context, certified_host=host, limits=limits)
    async with rig.running():
        client = await asked(rig)
        if not speaks_tls:
            await send(await rig.broker(), b"\0\0\0\x08nonsense")
        assert await closed(client) == b""
        assert rig.stats.errors == {"broker_tls": 1}


async def test_name_is_not_looked_at_where_it_is_not_to_be(papers: Papers) -> None:
    cluster = papers.cluster(verify_hostname=False)
    rig = TlsRig(None, cluster, broker_context=papers.broker_context(), certified_host="kafka.example.org")
    async with rig.running():
        await asked(rig)
        assert await receive(await rig.broker(), len(ASKED)) == ASKED


async def test_broker_that_never_ends_its_handshake_is_given_up(papers: Papers) -> None:
    limits = LimitOptions(connect_seconds=0.001)
    async with TlsRig(None, papers.cluster(), limits=limits).running() as rig:
        client = await asked(rig)
        await rig.broker()  # which says nothing
        rig.connection.sweep(1 << 60)
        assert await closed(client) == b""
        assert rig.stats.errors == {"broker_unreachable": 1}
