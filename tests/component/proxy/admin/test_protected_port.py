"""The admin port with TLS, tokens and client certificates: who gets a page, what is bounded, what applies live."""

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.admin import AdminServer, Admission, Page, Request
from proxy.admin import server as module
from proxy.admin.admission import LOG_SECONDS
from proxy.config import Address
from proxy.control.reload import Certificates
from proxy.system.logs import FIELDS
from proxy.system.stats import Stats
from tests.cluster import HOST, free_ports
from tests.support.admin_papers import OTHER_TOKEN, TOKEN, AdminPapers

LARGE = 4 * 1024 * 1024


class Port(NamedTuple):
    """A served admin port."""

    papers: AdminPapers
    address: tuple[str, int]
    certificates: Certificates
    stats: Stats
    seen: list[Request]


@asynccontextmanager
async def port(
    papers: AdminPapers,
    client_auth: str = "none",
    *,
    token: bool = False,
    tls: bool = True,
    request_seconds_max: float = 5.0,
) -> AsyncIterator[Port]:
    stats, seen = Stats(), list[Request]()
    certificates = papers.certificates(client_auth, token=token, tls=tls, stats=stats)

    async def shown(request: Request) -> Page:
        seen.append(request)
        return Page(200, "text/plain", b"shown\n")

    async def large(_: Request) -> Page:
        return Page(200, "text/plain", b"x" * LARGE)

    server = AdminServer(
        {"/": shown, "/large": large, "/healthz": shown, "/readyz": shown},
        request_seconds_max=request_seconds_max,
        actions={"/v1/enforcement": shown},
        admission=Admission(certificates.admin_tokens, client_auth, stats.admin_refused),
        tls=certificates.admin_tls,
    )
    address = HOST, free_ports(1)[0]
    await server.start(Address(*address))
    try:
        yield Port(papers, address, certificates, stats, seen)
    finally:
        await server.close()


async def connected(
    one: Port, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*one.address, ssl=context)


async def asked(
    one: Port, path: str = "/", token: str = "", context: ssl.SSLContext | None = None, method: str = "GET"
) -> tuple[int, str]:
    """Send a request; return the status and the whole response."""
    reader, writer = await connected(one, context)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{shown}Connection: close\r\n\r\n".encode())
    try:
        said = (await reader.read()).decode()
    finally:
        writer.close()
    assert said.startswith("HTTP/1.1 "), said
    return int(said.split(" ")[1]), said


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> AdminPapers:
    return AdminPapers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def own_papers(tmp_path: Path) -> AdminPapers:
    """Papers that the test may change."""
    return AdminPapers(tmp_path)


@pytest.mark.parametrize(
    ("client_auth", "has_tokens", "shown", "token", "status"),
    [
        ("none", False, "", "", 200),
        ("none", True, "", "", 401),
        ("none", True, "", OTHER_TOKEN, 401),
        ("none", True, "", TOKEN, 200),
        ("requested", False, "", "", 200),
        ("requested", True, "", "", 401),
        ("requested", True, "operator", "", 200),
        ("requested", True, "", TOKEN, 200),
        ("required", False, "", "", 403),
        ("required", False, "operator", "", 200),
        ("required", True, "", TOKEN, 403),
        ("required", True, "operator", "", 401),
        ("required", True, "operator", TOKEN, 200),
    ],
)
async def test_page_needs_what_the_port_asks_for_and_a_probe_nothing(
    papers: AdminPapers, client_auth: str, has_tokens: bool, shown: str, token: str, status: int
) -> None:
    async with port(papers, client_auth, token=has_tokens) as one:
        assert (await asked(one, "/", token, papers.context(shown)))[0] == status
        for probe in ("/healthz", "/readyz"):
            assert (await asked(one, probe, context=papers.context()))[0] == 200
        assert sum(one.stats.admin_refused.values()) == (status != 200)


async def test_token_protects_a_port_without_tls_too(papers: AdminPapers) -> None:
    async with port(papers, token=True, tls=False) as one:
        assert (await asked(one))[0] == 401
        assert (await asked(one, token=TOKEN))[0] == 200
        assert (await asked(one, "/healthz"))[0] == 200


async def test_refused_token_ends_the_connection_and_is_asked_for(papers: AdminPapers) -> None:
    async with port(papers, token=True) as one:
        reader, writer = await connected(one, papers.context())
        writer.write(f"GET / HTTP/1.1\r\nAuthorization: Bearer {OTHER_TOKEN}\r\n\r\n".encode() * 3)
        said = await reader.read()
        writer.close()
    assert said.count(b"HTTP/1.1 401 Unauthorized\r\n") == 1
    assert b'\r\nWWW-Authenticate: Bearer realm="sluice"\r\n' in said
    assert b"Connection: close" in said


async def test_refusals_are_counted_and_one_of_each_reason_is_logged_without_the_token(
    papers: AdminPapers, caplog: pytest.LogCaptureFixture
) -> None:
    async with port(papers, token=True) as one:
        began = asyncio.get_running_loop().time()
        for _ in range(20):
            await asked(one, "/", OTHER_TOKEN, papers.context())
        await asked(one, "/", context=papers.context())
        assert asyncio.get_running_loop().time() - began < LOG_SECONDS
        assert one.stats.admin_refused == {"wrong_token": 20, "no_token": 1}
        assert (await asked(one, "/", TOKEN, papers.context()))[0] == 200
        assert one.seen[-1].authorization == "", "no page sees it"
    fields = [getattr(record, FIELDS, {}) for record in caplog.records]
    assert [(one["reason"], one["peer"], one["refused"]) for one in fields] == [
        ("wrong_token", HOST, 1),
        ("no_token", HOST, 1),
    ]
    assert TOKEN not in str(fields)
    assert OTHER_TOKEN not in str(fields)


async def test_wrong_tokens_have_a_rate(papers: AdminPapers) -> None:
    """The right one is not delayed with them."""
    async with port(papers, token=True, tls=False) as one:
        began = asyncio.get_running_loop().time()
        found = await asyncio.gather(*(asked(one, "/", OTHER_TOKEN) for _ in range(21)))
        assert {status for status, _ in found} == {401}
        assert asyncio.get_running_loop().time() - began >= 20 * 0.005


async def test_handshakes_have_a_rate(papers: AdminPapers) -> None:
    async with port(papers) as one:
        began = asyncio.get_running_loop().time()
        found = await asyncio.gather(*(asked(one, "/", context=papers.context()) for _ in range(21)))
        assert {status for status, _ in found} == {200}
        assert asyncio.get_running_loop().time() - began >= 20 * 0.005


async def test_action_with_a_token_is_not_taken_for_a_browsers(papers: AdminPapers) -> None:
    async with port(papers, token=True) as one:
        assert (await asked(one, "/v1/enforcement", TOKEN, papers.context(), "POST"))[0] == 200
        assert one.seen[-1].relayed == ""
        assert (await asked(one, "/v1/enforcement", "", papers.context(), "POST"))[0] == 401


async def test_replaced_tokens_apply_to_the_next_request(own_papers: AdminPapers) -> None:
    async with port(own_papers, token=True) as one:
        context = own_papers.context()

        async def accepted() -> list[bool]:
            for _ in range(3):
                await one.certificates.step()
            return [(await asked(one, "/", token, context))[0] == 200 for token in (TOKEN, OTHER_TOKEN)]

        assert await accepted() == [True, False]
        own_papers.write_tokens(OTHER_TOKEN, TOKEN)
        assert await accepted() == [True, True]
        own_papers.write_tokens(OTHER_TOKEN)
        assert await accepted() == [False, True]
        assert one.stats.certificate_reloads == {"ok": 2}
        own_papers.write_tokens(TOKEN, mode=0o644)
        assert await accepted() == [False, True], "a file that everyone may read is not used"
        own_papers.write_tokens("short")
        assert await accepted() == [False, True]
        assert one.stats.certificate_reloads == {"ok": 2, "refused": 2}
        own_papers.write_tokens(TOKEN)
        one.certificates.request()  # SIGHUP
        assert await accepted() == [True, False]


async def test_replaced_certificate_applies_to_new_connections(
    own_papers: AdminPapers, tmp_path: Path
) -> None:
    async with port(own_papers) as one:
        before = own_papers.context()
        reader, writer = await connected(one, before)
        (tmp_path / "later").mkdir()
        later = AdminPapers(tmp_path / "later")
        shutil.copy(later.own.cert_file, own_papers.own.cert_file)
        shutil.copy(later.own.key_file, own_papers.own.key_file)
        one.certificates.request()
        await one.certificates.step()
        assert (await asked(one, "/", context=later.context()))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await connected(one, before)
        writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
    assert list(one.stats.certificate_ends) == ["admin.tls"]


async def test_certificate_of_another_authority_is_refused_in_the_handshake(papers: AdminPapers) -> None:
    async with port(papers, "requested", token=True) as one:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asked(one, "/", TOKEN, papers.context("stranger"))
        await until(lambda: one.stats.admin_refused == {"tls": 1})
        assert not one.seen


async def test_plain_request_at_a_tls_port_is_told_so(papers: AdminPapers) -> None:
    async with port(papers) as one:
        status, said = await asked(one)
        assert (status, said.splitlines()[-1]) == (400, "this port speaks TLS: use https://")
        assert one.stats.admin_refused == {"tls": 1}


async def test_handshake_at_a_plain_port_fails_at_once(papers: AdminPapers) -> None:
    async with port(papers, tls=False) as one:
        with pytest.raises(ssl.SSLError, match=r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE"):
            await connected(one, papers.context())
        assert one.stats.admin_refused == {"tls": 1}


async def test_port_that_is_looked_at_and_closed_is_no_refusal(papers: AdminPapers) -> None:
    async with port(papers) as one:
        _, writer = await connected(one, None)
        writer.close()
        await writer.wait_closed()
        assert (await asked(one, "/", context=papers.context()))[0] == 200
        assert not one.stats.admin_refused


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
async def test_handshakes_that_do_not_end_keep_no_client_out(papers: AdminPapers, sent: bytes) -> None:
    async with port(papers) as one:
        idle = [await connected(one, None) for _ in range(module.CONNECTIONS_MAX)]
        for _, writer in idle:
            writer.write(sent)
        assert (await asked(one, "/healthz", context=papers.context()))[0] == 200
        reader, _ = idle[0]
        assert await asyncio.wait_for(reader.read(), 20) == b"", "the oldest one has given way"
        for _, writer in idle:
            writer.close()


async def test_handshake_that_takes_too_long_is_ended(papers: AdminPapers) -> None:
    async with port(papers, request_seconds_max=0.2) as one:
        reader, writer = await connected(one, None)
        writer.write(b"\x16\x03\x01")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        assert one.stats.admin_refused == {"tls": 1}
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"GET / HTTP/1.1\r\nX: ", b""), (b"GET / HTTP/1.1\r\nX: " + b"x" * 16 * 1024 * 1024, b"431")],
    ids=["half a head", "a head of 16 MiB"],
)
async def test_head_within_tls_has_the_bounds_of_one_without(
    papers: AdminPapers, sent: bytes, status: bytes
) -> None:
    async with port(papers, request_seconds_max=0.2 if not status else 5.0) as one:
        reader, writer = await connected(one, papers.context())
        writer.write(sent)
        said = b""
        try:
            said = await asyncio.wait_for(reader.read(), 20)
        except (ConnectionError, ssl.SSLError):
            assert status, (
                "the rest of a head that was refused is not read, so the close may reset the connection"
            )
        assert said[9:12] in (status, b"")
        writer.transport.abort()


async def test_several_requests_and_a_large_response_pass_through_tls(papers: AdminPapers) -> None:
    async with port(papers) as one:
        reader, writer = await connected(one, papers.context())
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 3 + b"GET /large HTTP/1.1\r\n\r\n")
        for size in (6, 6, 6, LARGE):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
            assert len(await reader.readexactly(size)) == size
        writer.close()


def descriptors() -> int:
    """Count the open descriptors of this process, both ends of each connection among them."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_response_that_is_not_taken_ends_the_connection(
    papers: AdminPapers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Sending does not end before the client has taken all of it, so the time for it counts within TLS too."""
    monkeypatch.setattr(module, "RESPONSE_SECONDS_MAX", 0.3)
    caplog.set_level(logging.INFO)
    async with port(papers) as one:
        reader, writer = await connected(one, papers.context())
        writer.write(b"GET /large HTTP/1.1\r\n\r\n" * 4)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is of both directions
        await asyncio.sleep(0.1)
        before = descriptors()
        await asyncio.sleep(0.6)
        assert descriptors() < before, "the port's end waits for no client"
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        said = b""
        with suppress(ConnectionError, ssl.SSLError):  # closed amid a response
            said = await asyncio.wait_for(reader.read(), 20)
        assert len(said) < 4 * LARGE
        writer.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
