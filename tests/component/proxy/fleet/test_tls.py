"""TLS between members: certificates that are trusted and those that are not, plaintext on either side, new files."""

import asyncio
import shutil
import socket
from pathlib import Path

import pytest

from proxy.control.reload import Certificates
from proxy.fleet.ends import refuses
from proxy.fleet.port import HANDSHAKES_MAX
from proxy.system.clock import now_ms
from proxy.system.hosts import PLAINTEXT, FleetContexts
from proxy.system.stats import Stats
from tests.component.proxy.fleet.rig import Fleet, Member, fleet, secret, until
from tests.support.certificates import Authority
from tests.support.configurations import parsed

CONFIG = '[cluster]\nbootstrap = "b:9092"\n[[listeners]]\n[fleet]\nbind = "127.0.0.1:7000"\n[fleet.tls]\n'


class Papers:
    """An authority, and a member's certificate by it."""

    def __init__(self, directory: Path, name: str = "fleet") -> None:
        self.directory = directory
        self.authority = Authority.make(directory, name)
        self.own = self.authority.issue(f"{name}-member")

    def certificates(self, more: str = "") -> Certificates:
        keys = (
            f'cert_file = "{self.own.cert_file}"\nkey_file = "{self.own.key_file}"\n'
            f'ca_file = "{self.authority.cert_file}"\n'
        )
        return Certificates(parsed(CONFIG + keys + more), Stats())

    def mutual(self) -> Certificates:
        return self.certificates(f'client_ca_file = "{self.authority.cert_file}"\n')


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


def join(one: Fleet, tls: FleetContexts, secret_file: Path | None = None) -> Member:
    one.members.append(Member("a", one.address, secret_file, tls=tls.client))
    return one.members[-1]


@pytest.mark.parametrize("mutual", [False, True])
async def test_shares_are_leased_over_tls(papers: Papers, tmp_path: Path, mutual: bool) -> None:
    certificates = papers.mutual() if mutual else papers.certificates()
    async with fleet(secret(tmp_path, "word"), tls=certificates.between_members) as one:
        a = one.join("a", tmp_path / "word")
        await until(lambda: a.lessee.leased(now_ms()))
        assert not one.figures.received["tls"]


async def test_member_that_leaves_says_so_within_tls(papers: Papers) -> None:
    async with fleet(tls=papers.mutual().between_members) as one:
        a = one.join("a")
        # Under load a lease may have been lost again: without a connection there is nothing to say.
        await until(lambda: a.lessee.leased(now_ms()) and not a.client.problem)
        a.client.leave()
        await until(lambda: one.figures.received["left"] == 1)


async def test_secret_counts_inside_of_tls_too(papers: Papers, tmp_path: Path) -> None:
    async with fleet(secret(tmp_path, "right"), tls=papers.mutual().between_members) as one:
        a = one.join("a", secret(tmp_path, "wrong"))
        await until(lambda: one.figures.received["secret"])
        await until(lambda: "wrong signature" in a.client.problem)


async def test_holder_of_another_authority_is_not_trusted(
    papers: Papers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Papers(tmp_path, "other")
    async with fleet(tls=papers.certificates().between_members) as one:
        a = join(one, other.certificates().between_members)
        await until(lambda: a.client.problem.startswith("TLS: certificate refused"))
        await until(lambda: one.figures.received["tls"])
        await until(lambda: a.figures.reports["failed"] > 1)  # of its attempts
    assert caplog.messages.count("fleet member refused") == 1
    said = [record.__dict__ for record in caplog.records if record.message == "fleet member refused"]
    assert "'tls'" in str(said)


@pytest.mark.parametrize("shows", [False, True])
async def test_member_without_a_trusted_certificate_is_refused(
    papers: Papers, tmp_path: Path, shows: bool
) -> None:
    keys = f'holder = "h:1"\n[fleet.tls]\nca_file = "{papers.authority.cert_file}"\n'
    if shows:
        own = Papers(tmp_path, "other").own
        keys += f'cert_file = "{own.cert_file}"\nkey_file = "{own.key_file}"\n'
    text = CONFIG.partition("bind")[0] + keys
    stranger = Certificates(parsed(text), Stats()).between_members
    assert stranger.port is None
    async with fleet(tls=papers.mutual().between_members) as one:
        a = join(one, stranger)
        await until(lambda: one.figures.received["tls"])
        await until(lambda: a.figures.reports["failed"])
        assert not a.lessee.leased(now_ms())


async def test_name_that_is_not_the_holders_is_refused_unless_names_are_not_verified(
    papers: Papers, tmp_path: Path
) -> None:
    papers.own = papers.authority.issue("elsewhere", names="subjectAltName=DNS:elsewhere")
    async with fleet(tls=papers.certificates().between_members) as one:
        a = join(one, papers.certificates().between_members)
        await until(lambda: "certificate refused" in a.client.problem)
        b = join(one, papers.certificates("verify_hostname = false\n").between_members)
        await until(lambda: b.lessee.leased(now_ms()))


@pytest.mark.parametrize(
    ("at_port", "problem"), [(True, "[fleet.tls]"), (False, "TLS: ")], ids=["TLS port", "TLS member"]
)
async def test_plaintext_on_one_side_is_told_and_counted(
    papers: Papers, caplog: pytest.LogCaptureFixture, at_port: bool, problem: str
) -> None:
    tls = papers.certificates().between_members
    async with fleet(tls=tls if at_port else PLAINTEXT) as one:
        a = join(one, PLAINTEXT if at_port else tls)
        await until(lambda: one.figures.received["tls"])
        await until(lambda: problem in a.client.problem)
        assert at_port or "does not speak TLS" in a.client.problem
    assert caplog.messages.count("fleet member refused") == 1


async def test_new_certificates_apply_to_new_connections(papers: Papers, tmp_path: Path) -> None:
    certificates = papers.certificates()
    later = Papers(tmp_path, "later")
    async with fleet(tls=certificates.between_members) as one:
        a = join(one, certificates.between_members)
        await until(lambda: a.lessee.session)
        for made, path in (
            (later.own.cert_file, papers.own.cert_file),
            (later.own.key_file, papers.own.key_file),
        ):
            shutil.copy(made, path)
        certificates.request()
        await certificates.step()
        assert a.lessee.session, "what is connected stays"
        a.holder = None
        await until(lambda: not a.lessee.session)
        a.holder = one.address
        await until(lambda: "certificate refused" in a.client.problem)  # it trusts the first authority
        shutil.copy(later.authority.cert_file, papers.authority.cert_file)
        certificates.request()
        await certificates.step()
        await until(lambda: a.lessee.session)


async def test_handshakes_that_do_nothing_keep_no_member_out(papers: Papers) -> None:
    certificates = papers.certificates().between_members
    async with fleet(tls=certificates) as one:
        idle = [socket.create_connection(one.address) for _ in range(HANDSHAKES_MAX + 16)]
        a = join(one, certificates)
        await until(lambda: a.lessee.leased(now_ms()))
        assert one.figures.received["connections_max"] >= 16
        for each in idle:
            each.close()


async def test_handshake_that_takes_too_long_is_ended(
    papers: Papers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.fleet.port.HANDSHAKE_SECONDS_MAX", 0.2)
    async with fleet(tls=papers.certificates().between_members) as one:
        reader, writer = await asyncio.open_connection(*one.address)
        await until(lambda: one.figures.received["tls"])
        assert await reader.read() == b""
        writer.close()
    assert "no TLS handshake within" in str([record.__dict__ for record in caplog.records])


async def test_look_at_the_port_is_no_failed_handshake(papers: Papers) -> None:
    async with fleet(tls=papers.certificates().between_members) as one:
        assert await refuses(one.address) is False
        reader, writer = await asyncio.open_connection(*one.address)
        writer.write(b"no TLS\r\n")  # accepted later than the look
        await until(lambda: one.figures.received["tls"])
        assert await reader.read() == b""
        writer.close()
        assert one.figures.received["tls"] == 1


async def test_port_closes_while_a_handshake_is_under_way(papers: Papers) -> None:
    async with fleet(tls=papers.certificates().between_members) as one:
        reader, writer = await asyncio.open_connection(*one.address)
        await asyncio.sleep(0.1)
    assert await reader.read() == b""
    writer.close()


def test_certificates_expiry_is_shown(papers: Papers) -> None:
    stats = Stats()
    text = f'{CONFIG}cert_file = "{papers.own.cert_file}"\nkey_file = "{papers.own.key_file}"\n'
    Certificates(parsed(text), stats)
    assert list(stats.certificate_ends) == ["fleet.tls"]
