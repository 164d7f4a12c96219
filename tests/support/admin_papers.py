"""Certificates, tokens and the configuration of an admin port that asks for them."""

import ssl
from pathlib import Path
from typing import Final

from proxy.config import Config
from proxy.control.reload import Certificates
from proxy.system.stats import Stats
from tests.support.certificates import Authority
from tests.support.configurations import parsed

TOKEN: Final = "t0ken-of-the-operators-" + "0" * 32
OTHER_TOKEN: Final = "t0ken-of-the-operators-" + "1" * 32
_GATEWAY: Final = '[cluster]\nbootstrap = "b:9092"\n[[listeners]]\n[admin]\n'


class AdminPapers:
    """The files of one port and of its clients.

    Attributes:
        own: the port's certificate.
        operator: a certificate that the port trusts, and `stranger` one that it does not.
        token_file: the port's tokens; TOKEN at first.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority.make(directory, "admin-ca")
        self.own = self.authority.issue("gw-1")
        self.operator = self.authority.issue("operator", "/CN=operator")
        self.stranger = Authority.make(directory, "other-ca").issue("stranger", "/CN=operator")
        self.token_file = directory / "admin.token"
        self.write_tokens(TOKEN)

    def write_tokens(self, *tokens: str, mode: int = 0o600) -> None:
        """Replace the tokens."""
        self.token_file.unlink(missing_ok=True)
        self.token_file.touch(mode)
        self.token_file.chmod(mode)
        self.token_file.write_text("".join(f"{one}\n" for one in tokens))

    def config(self, client_auth: str = "none", *, token: bool = False, tls: bool = True) -> Config:
        """Return a configuration with such an admin port."""
        keys = f'token_file = "{self.token_file}"\n' if token else ""
        if tls:
            keys += f'[admin.tls]\ncert_file = "{self.own.cert_file}"\nkey_file = "{self.own.key_file}"\n'
            keys += f'client_auth = "{client_auth}"\n'
            keys += "" if client_auth == "none" else f'client_ca_file = "{self.authority.cert_file}"\n'
        return parsed(_GATEWAY + keys)

    def certificates(
        self, client_auth: str = "none", *, token: bool = False, tls: bool = True, stats: Stats | None = None
    ) -> Certificates:
        """Return what is read from the files of this configuration."""
        return Certificates(self.config(client_auth, token=token, tls=tls), stats or Stats())

    def context(self, shown: str = "") -> ssl.SSLContext:
        """Return a client's TLS context, which trusts the port.

        Args:
            shown: the certificate that it shows: "operator", "stranger", or "" for none.
        """
        context = ssl.create_default_context(cafile=self.authority.cert_file)
        context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT  # the authority has no key usage
        if shown:
            own = {"operator": self.operator, "stranger": self.stranger}[shown]
            context.load_cert_chain(own.cert_file, own.key_file)
        return context
