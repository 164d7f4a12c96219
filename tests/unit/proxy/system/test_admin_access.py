"""How admin ports are reached: where the token goes, and what errors say."""

import ssl
import urllib.error
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.system.admin_access import AdminAccess, AdminFiles, tls_problem
from proxy.system.errors import ConfigError
from proxy.system.tokens import TOKEN_CHARACTERS_MIN

FIRST, SECOND = "a" * TOKEN_CHARACTERS_MIN, "b" * TOKEN_CHARACTERS_MIN
PLAIN, SECURE = "http://gw-1:19080/v1/status", "https://gw-1:19080/v1/status"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "token"
    found.touch(0o600)
    found.write_text(f"{FIRST}\n{SECOND}\n")
    return found


def test_first_token_is_sent(path: Path) -> None:
    expected = {"Authorization": f"Bearer {FIRST}"}
    access = AdminAccess(AdminFiles(token_file=path))
    assert access.headers(SECURE) == access.headers(PLAIN) == expected
    assert AdminAccess().headers(SECURE) == {}
    assert FIRST not in repr(access)


def test_port_that_only_a_member_has_named_gets_no_token(path: Path) -> None:
    access = AdminAccess(AdminFiles(token_file=path))
    assert access.headers(PLAIN, given=False) == {}
    assert access.headers(SECURE, given=False) == {}, "any host has a certificate of the system's authorities"
    assert "only a fleet names it" in access.refusal(SECURE, given=False)
    assert access.headers(PLAIN)


def test_refusal_says_whether_a_token_is_missing_or_wrong(path: Path) -> None:
    assert AdminAccess().refusal() == "this port needs a token: --admin-token-file FILE"
    said = AdminAccess(AdminFiles(token_file=path)).refusal()
    assert said == f"wrong token: that of {path} is not in the port's admin.token_file"


def test_changed_token_is_read_again(path: Path) -> None:
    access = AdminAccess(AdminFiles(token_file=path))
    path.write_text("short")
    access.renew()
    assert access.headers(SECURE) == {"Authorization": f"Bearer {FIRST}"}, "a file that cannot be used"
    path.write_text(SECOND)
    access.renew()
    assert access.headers(SECURE) == {"Authorization": f"Bearer {SECOND}"}


@pytest.mark.parametrize(
    ("made", "option"),
    [
        (lambda path: AdminFiles(ca_file=path), "--admin-ca-file"),
        (lambda path: AdminFiles(cert_file=path), "--admin-cert-file"),
    ],
)
def test_file_that_holds_no_certificate_is_an_error_of_the_option(
    tmp_path: Path, made: Callable[[Path], AdminFiles], option: str
) -> None:
    for name, text in (("none", None), ("wrong", "no PEM")):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=f"^{option}: cannot be used: "):
            AdminAccess(made(tmp_path / name))


def verification(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            verification(18, "self-signed"),
            "the certificate of gw-1:19080 is not trusted: self-signed; --admin-ca-file names its authority",
        ),
        (
            verification(62, "Hostname mismatch"),
            "the certificate of gw-1:19080 is not trusted: Hostname mismatch",
        ),
        (ConnectionRefusedError(), ""),
    ],
)
def test_tls_error_is_found_behind_the_clients_own(error: Exception, said: str) -> None:
    assert tls_problem(error, "gw-1:19080") == said
    assert tls_problem(urllib.error.URLError(error), "gw-1:19080") == said
    wrapped = ValueError("of an HTTP client")
    wrapped.__cause__ = error
    assert tls_problem(wrapped, "gw-1:19080") == said
