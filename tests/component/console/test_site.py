"""What the console refuses: hosts, methods, other sites, wrong tokens; and what every response carries."""

import http.client
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.console_process import ConsoleProcess
from tests.support.proxy_process import ROOT
from tests.support.scripted_member import ScriptedMember

TOKEN = "a-token-of-the-operators"


@pytest.fixture(scope="module")
def member() -> Iterator[ScriptedMember]:
    with ScriptedMember() as found:
        yield found


@pytest.fixture(scope="module")
def console(member: ScriptedMember) -> Iterator[ConsoleProcess]:
    with ConsoleProcess([member.admin]) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(member: ScriptedMember, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN + "\n")
    more = ("--token-file", str(path), "--behind-proxy", "sluice.example.org")
    with ConsoleProcess([member.admin], more=more) as found:
        yield found


def ask(
    console: ConsoleProcess,
    path: str = "/",
    method: str = "GET",
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, str], str]:
    connection = http.client.HTTPConnection(urlsplit(console.url).netloc, timeout=20)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, found, response.read().decode()
    finally:
        connection.close()


def test_policy_allows_the_consoles_own_files_alone(console: ConsoleProcess) -> None:
    for path in ("/", "/static/console.js", "/nothing", "/client?client_id=none", "/healthz"):
        _, headers, text = ask(console, path)
        policy = headers["content-security-policy"]
        own = ("script-src", "style-src", "connect-src")
        assert policy.startswith("; ".join(["default-src 'none'", *(f"{name} 'self'" for name in own)]))
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert " style=" not in text
        assert "<style" not in text


def test_only_a_host_of_its_own_is_served(console: ConsoleProcess) -> None:
    own, others = (
        ["localhost:9190", "127.0.0.1", "[::1]:9190", "LOCALHOST."],
        ["evil.example", "localhost.evil", ""],
    )
    assert [ask(console, "/healthz", headers={"Host": host})[0] for host in own] == [200] * 4
    assert [ask(console, headers={"Host": host})[0] for host in others] == [403] * 3


def test_other_methods_are_refused(console: ConsoleProcess) -> None:
    assert {ask(console, method=method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS")} == {405}


def test_page_of_another_site_is_refused(console: ConsoleProcess) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    assert ask(console, "/stream/overview", headers=headers)[0] == 403
    headers["Sec-Fetch-Mode"] = "navigate"  # a link to a client
    assert ask(console, "/", headers=headers)[0] == 200


def test_token_is_wanted(guarded: ConsoleProcess) -> None:
    assert ask(guarded)[0] == 401
    assert ask(guarded, headers={"Accept": "text/html"})[1]["location"] == "/login"
    assert ask(guarded, headers={"Authorization": "Bearer wrong"})[0] == 401
    assert ask(guarded, headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert ask(guarded, "/stream/overview")[0] == 401
    assert ask(guarded, "/healthz")[0] == 200


def test_token_is_taken_once(guarded: ConsoleProcess) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, _, text = ask(guarded, "/login", "POST", "token=wrong", form)
    assert status == 403
    assert "That is not the token" in text
    status, headers, _ = ask(guarded, "/login", "POST", f"token={TOKEN}", form)
    assert status == 303
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert ask(guarded, headers={"Cookie": cookie.partition(";")[0]})[0] == 200
    assert ask(guarded, headers={"Cookie": "sluice_console=guessed"})[0] == 401


def test_name_of_the_operators_proxy_is_served(guarded: ConsoleProcess) -> None:
    headers = {"Host": "sluice.example.org", "Authorization": f"Bearer {TOKEN}"}
    assert ask(guarded, headers=headers)[0] == 200


def python(code: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", code, *arguments]
    return subprocess.run(line, cwd=cwd, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bind", "0.0.0.0:0"], "--token-file FILE, or --behind-proxy NAME"),
        (["--bind", "nowhere"], "must be HOST:PORT"),
        (["--admin", "ftp://a"], "must be HOST:PORT, or a URL"),
        (["--refresh", "0"], "from 0.5 to 60 seconds"),
        (["--behind-proxy", "a b"], "must be a host name"),
        (["--token-file", "short"], "at least 16 characters"),
        (["--token-file", "missing"], "cannot be read"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "short").write_text("short\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from proxy.__main__ import main; sys.exit(main())"
    )
    done = python(code, str(ROOT), "console", *arguments, cwd=tmp_path)
    assert done.returncode in (1, 2), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_package_is_named_with_its_extra() -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None; from proxy.__main__ import main; sys.exit(main())"
    done = python(hidden, "console")
    assert done.returncode == 1
    assert "uvicorn is not installed" in done.stderr
    assert "requirements/operator.txt" in done.stderr


def test_serve_loads_no_page_and_no_library_of_the_console() -> None:
    pages = tuple(f"console.{name}" for name in ("board", "member", "rendering", "screen", "site", "views"))
    libraries = ("starlette", "uvicorn", "jinja2", "httpx", "sse_starlette", "textual")
    listed = f"import proxy.cli, sys; print([n for n in sys.modules if n.startswith({(*pages, *libraries)})])"
    done = python(listed)
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
