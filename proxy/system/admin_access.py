"""How commands and the console reach admin ports: whose certificates they trust, and which token they send.

A token is sent to ports that the operator has named, and to others only over TLS with a certificate of the authority
that the operator has named: members of a fleet name the admin ports of other members, and a broken one might name a
host outside, for which the system's authorities have a certificate.
"""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from proxy.system.errors import ConfigError
from proxy.system.files import read
from proxy.system.hosts import handshake_problem
from proxy.system.tokens import read_tokens

CA_FILE: Final = "--admin-ca-file"
CERT_FILE: Final = "--admin-cert-file"
KEY_FILE: Final = "--admin-key-file"
TOKEN_FILE: Final = "--admin-token-file"
_PEM_BYTES_MAX: Final = 4 * 1024 * 1024
# X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT and the three behind it: the issuer is not trusted.
_UNKNOWN_ISSUERS: Final = (18, 19, 20, 21)


class AdminFiles(NamedTuple):
    """The files with which a client reaches admin ports.

    Args:
        ca_file: the authorities whose certificates are trusted, PEM; None for those of the system.
        cert_file: the client's certificate, PEM; None for none.
        key_file: its private key; None if it is in the same file.
        token_file: the tokens, of which the first one is sent; None for none.
        own_port: whether `ca_file` is the port's own certificate, so that its names do not matter.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    own_port: bool = False


class AdminAccess:
    """What a client of admin ports trusts and sends.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(self, files: AdminFiles = AdminFiles()) -> None:  # noqa: B008  # it is immutable
        self._files = files
        self._token = self._read_token()
        self._tls: ssl.SSLContext | None = None
        if files.ca_file is not None or files.cert_file is not None:
            self._tls = self._context()  # now, so that a wrong file is an error before anything is asked

    @property
    def tls(self) -> ssl.SSLContext:
        """The TLS context for https; made when it is needed, since the system's authorities take long to read."""
        if self._tls is None:
            self._tls = self._context()
        return self._tls

    def _context(self) -> ssl.SSLContext:
        files = self._files
        try:
            if files.ca_file is not None:
                read(files.ca_file, _PEM_BYTES_MAX)  # OpenSSL would wait for ever for a FIFO
            context = ssl.create_default_context(cafile=files.ca_file)
        except (OSError, ValueError) as error:
            raise ConfigError(CA_FILE, f"cannot be used: {_reason(error)}", str(files.ca_file)) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python 3.13 and newer refuse authorities without a key usage; towards brokers and members they are trusted.
        context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
        if files.own_port:
            context.check_hostname = False
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        if files.cert_file is not None:
            _load_certificate(context, files.cert_file, files.key_file)
        return context

    def headers(self, url: str, *, given: bool = True) -> Mapping[str, str]:
        """Return the headers of a request to an admin port.

        Args:
            given: whether the operator has named this port; if not, a member of a fleet has.
        """
        return {"Authorization": f"Bearer {self._token}"} if self._sends_token(url, given=given) else {}

    def renew(self) -> None:
        """Read the token again; a file that cannot be used changes nothing."""
        with suppress(ConfigError):
            self._token = self._read_token()

    def refusal(self, url: str = "", *, given: bool = True) -> str:
        """Return a sentence on a response with status 401: the token is missing or wrong."""
        if not self._token:
            return f"this port needs a token: {TOKEN_FILE} FILE"
        if not self._sends_token(url, given=given):
            return f"this port needs a token, and only a fleet names it: that needs https:// and {CA_FILE}"
        return f"wrong token: that of {self._files.token_file} is not in the port's admin.token_file"

    def _sends_token(self, url: str, *, given: bool) -> bool:
        known = url.startswith("https://") and self._files.ca_file is not None
        return bool(self._token) and (given or known)

    def _read_token(self) -> str:
        if self._files.token_file is None:
            return ""
        return read_tokens(self._files.token_file, TOKEN_FILE)[0].decode("ascii")


def tls_problem(error: BaseException, host: str) -> str:
    """Return a sentence on the TLS error behind an error of an HTTP client; "" if none is behind it.

    Args:
        host: the port, for people.
    """
    found: BaseException | None = error
    seen: list[BaseException] = []
    while found is not None and found not in seen and not isinstance(found, ssl.SSLError):
        seen.append(found)
        inner = getattr(found, "reason", None)
        found = inner if isinstance(inner, BaseException) else found.__cause__ or found.__context__
    if not isinstance(found, ssl.SSLError):
        return ""
    if isinstance(found, ssl.SSLCertVerificationError):
        hint = f"; {CA_FILE} names its authority" if found.verify_code in _UNKNOWN_ISSUERS else ""
        return f"the certificate of {host} is not trusted: {found.verify_message}{hint}"
    problem = handshake_problem(found)
    if problem == "the peer does not speak TLS":
        return "this port does not speak TLS: use http://"
    return f"TLS: {problem}"


def _load_certificate(context: ssl.SSLContext, cert_file: Path, key_file: Path | None) -> None:
    try:
        for path in (cert_file, key_file or cert_file):
            read(path, _PEM_BYTES_MAX)
        context.load_cert_chain(cert_file, key_file, password="")  # else OpenSSL asks at the terminal
    except (OSError, ValueError) as error:
        raise ConfigError(CERT_FILE, f"cannot be used: {_reason(error)}", str(cert_file)) from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
