"""Every command with --admin, at an admin port with TLS that asks for a token and a certificate."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin_papers import OTHER_TOKEN, TOKEN, AdminPapers
from tests.support.command_line import Sluice
from tests.support.console_process import ConsoleProcess
from tests.support.scripted_member import HOST, ScriptedMember, row
from tests.support.waiting import until

FLEET = {
    "member": True,
    "name": "gw-1",
    "problem": "",
    "holder": "gw-1:1",
    "learning": False,
    "leased": True,
    "holds": True,
    "lease_left_seconds": 10.0,
    "cut_off": False,
    "default_share": 1.0,
    "disagreements": [],
    "members": [],
    "member_shares": {},
}
REASSIGNMENTS = {"mode": "batch", "moves": 0, "steps": 0, "partitions": []}
COMMANDS = [
    "explain --client-id web-1 --user alice",
    "explain --user alice",
    "top -b",
    "enforcement status",
    "fleet",
    "reassign status",
]


class Files:
    """The options that name what a client shows."""

    def __init__(self, papers: AdminPapers) -> None:
        self._papers = papers
        self.ca = ("--admin-ca-file", str(papers.authority.cert_file))
        self.token = ("--admin-token-file", str(papers.token_file))
        own = papers.operator
        self.certificate = ("--admin-cert-file", str(own.cert_file), "--admin-key-file", str(own.key_file))
        self.all = (*self.ca, *self.token, *self.certificate)

    def another_token(self) -> tuple[str, str]:
        """Return a token that the port does not know."""
        path = self._papers.directory / "another.token"
        path.touch(0o600)
        path.write_text(OTHER_TOKEN)
        return "--admin-token-file", str(path)


@pytest.fixture
def papers(tmp_path: Path) -> AdminPapers:
    return AdminPapers(tmp_path)


@pytest.fixture
def files(papers: AdminPapers) -> Files:
    return Files(papers)


@pytest.fixture
def member(papers: AdminPapers) -> Iterator[ScriptedMember]:
    with ScriptedMember("gw-1", papers=papers, client_auth="required") as found:
        found.set_clients(row("web-1", "alice"))
        found.documents |= {"/fleet": FLEET, "/reassignments": REASSIGNMENTS}
        yield found


@pytest.mark.parametrize("command", COMMANDS)
def test_command_shows_token_and_certificate(
    sluice: Sluice, member: ScriptedMember, files: Files, command: str
) -> None:
    assert sluice(*command.split(), "--admin", member.admin, *files.all)
    assert sum(member.asked.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_command_finds_the_files_in_the_environment(
    sluice: Sluice, member: ScriptedMember, files: Files, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for option, value in zip(files.all[::2], files.all[1::2], strict=True):
        monkeypatch.setenv(f"SLUICE_{option[2:].replace('-', '_').upper()}", value)
    assert sluice(*command.split(), "--admin", member.admin)


@pytest.mark.parametrize("command", [*COMMANDS, "enforcement off"])
def test_port_that_is_not_trusted_is_a_sentence_in_every_command(
    sluice: Sluice, member: ScriptedMember, files: Files, command: str
) -> None:
    sluice(*command.split(), "--admin", member.admin, *files.token, code=1)
    where = member.admin.removeprefix("https://")
    assert f"the certificate of {where} is not trusted: " in sluice.err
    assert sluice.err.endswith("; --admin-ca-file names its authority\n")
    assert not sum(member.asked.values())


def test_what_is_missing_or_wrong_is_a_sentence(
    sluice: Sluice, papers: AdminPapers, member: ScriptedMember, files: Files
) -> None:
    def said(*words: str, admin: str = member.admin, command: str = "fleet") -> str:
        sluice(*command.split(), "--admin", admin, *words, code=1)
        assert TOKEN not in sluice.err
        return (
            sluice.err.rstrip("\n")
            .removeprefix(f"sluice: {admin}/fleet: ")
            .removeprefix(f"sluice: {admin}: ")
        )

    no_token = "this port needs a token: --admin-token-file FILE"
    wrong = f"wrong token: that of {papers.directory / 'another.token'} is not in the port's admin.token_file"
    assert said(*files.ca, *files.certificate) == no_token
    assert said(*files.ca, *files.certificate, *files.another_token()) == wrong
    assert said(*files.ca, *files.certificate, command="enforcement on") == no_token
    no_certificate = "a client certificate is needed (admin.tls.client_auth)"
    assert said(*files.ca, *files.token) == no_certificate
    plain = member.admin.replace("https", "http")
    assert said(*files.all, admin=plain) == "this port speaks TLS: use https://"
    with ScriptedMember("gw-2", papers=papers, tls=False) as unprotected:
        secure = unprotected.admin.replace("http", "https")
        assert said(*files.all, admin=secure) == "this port does not speak TLS: use http://"


def test_stranger_is_refused(
    sluice: Sluice, papers: AdminPapers, member: ScriptedMember, files: Files
) -> None:
    own = papers.stranger
    shown = ("--admin-cert-file", own.cert_file, "--admin-key-file", own.key_file)
    sluice("fleet", "--admin", member.admin, *files.ca, *files.token, *shown, code=1)
    assert "TLS: the peer refused: unknown ca" in sluice.err


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("--admin-key-file", "x"), 2, "--admin-key-file: needs --admin-cert-file"),
        (("--admin-ca-file", "/nowhere"), 1, "--admin-ca-file: cannot be used: "),
        (("--admin-token-file", "/nowhere"), 1, "--admin-token-file: cannot be read: No such file"),
    ],
)
def test_file_that_cannot_be_used_is_said_before_anything_is_asked(
    sluice: Sluice, words: tuple[str, ...], code: int, problem: str
) -> None:
    sluice("fleet", *words, code=code)
    assert problem in sluice.err


def test_token_does_not_go_through_a_proxy_of_the_environment(
    sluice: Sluice, member: ScriptedMember, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://{HOST}:1")  # where nothing listens
    monkeypatch.delenv("no_proxy", raising=False)
    assert sluice("fleet", "--admin", member.admin, *files.all)


def test_redirect_is_not_followed_with_the_token(
    sluice: Sluice, member: ScriptedMember, files: Files
) -> None:
    """A port that is not Sluice's, and sends its clients elsewhere."""
    import http.server
    import threading

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{member.admin}/fleet")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer((HOST, 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        sluice("fleet", "--admin", f"{HOST}:{server.server_port}", *files.all, code=1)
        server.shutdown()
        thread.join()
    assert "302" in sluice.err
    assert not member.asked["/fleet"]


def test_other_members_that_a_fleet_names_are_found_with_https(
    sluice: Sluice, papers: AdminPapers, member: ScriptedMember, files: Files
) -> None:
    with ScriptedMember("gw-2", papers=papers, client_auth="required") as other:
        named = [{"name": one.name, "admin": one.admin} for one in (member, other)]
        member.documents["/v1/fleet"] = {"member": True, "name": "gw-1", "members": named}
        where = ("--admin", member.admin, *files.all)
        sluice("explain", "--client-id", "no-such", *where, code=3)
        assert sluice.err.endswith(f"may have seen it: --admin {member.admin} --admin {other.admin}\n")


def test_console_reads_members_that_ask_for_a_token_and_adds_those_that_they_name(
    papers: AdminPapers, member: ScriptedMember, files: Files
) -> None:
    """One of them speaks plain HTTP: it is not sent the token, which only a member has asked to be sent there."""
    with (
        ScriptedMember("gw-2", papers=papers, client_auth="required") as other,
        ScriptedMember("gw-3", papers=papers, tls=False) as plain,
    ):
        named = [{"name": one.name, "admin": one.admin} for one in (member, other, plain)]
        member.documents["/v1/fleet"] = {"member": True, "name": "gw-1", "members": named}
        with ConsoleProcess([member.admin], more=files.all, refresh=0.5) as console:
            until(lambda: member.asked["/v1/clients"] and other.asked["/v1/clients"])
            until(lambda: "needs a token, and only a fleet names it" in console.log())
            papers.write_tokens(OTHER_TOKEN)  # of the ports and of the console, which reads it again
            for one in (member, other):
                assert one.certificates is not None
                assert one.certificates.admin_tokens is not None
                one.certificates.admin_tokens.reload()
            before = member.asked["/v1/status"]
            until(lambda: member.asked["/v1/status"] > before + 1)
            assert TOKEN not in console.log()
            assert OTHER_TOKEN not in console.log()
        assert not sum(plain.asked.values())


def test_console_says_that_a_port_is_not_trusted(member: ScriptedMember, files: Files) -> None:
    with ConsoleProcess([member.admin], more=files.token, refresh=0.5) as console:
        until(lambda: "is not trusted: " in console.log())
    assert not sum(member.asked.values())
