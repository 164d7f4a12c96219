"""A gateway with one port for every broker: names that only this test's programs know, and a certificate for all.

site = Site.make(directory)
with SluiceProcess.configured(site.settings(kafka.bootstrap()), directory) as sluice:
    run([*site.words, "client", "--bootstrap", site.bootstrap(sluice.ports.bootstrap)])
"""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.cluster import HOST
from tests.support.certificates import Authority, Certificate
from tests.support.gateways import resolving
from tests.support.proxy_process import BROKER_ID_MAX, SluiceSettings

BOOTSTRAP: Final = "kafka.test"
BROKER_HOST: Final = f"b{{id}}.{BOOTSTRAP}"
SECONDS_MAX: Final = 20.0


def broker_name(broker: int) -> str:
    """Return the name of a broker."""
    return BROKER_HOST.replace("{id}", str(broker))


NAMES: Final = (BOOTSTRAP, *map(broker_name, range(BROKER_ID_MAX + 1)))


@dataclass(frozen=True, slots=True)
class Site:
    """The names and the certificate of one test.

    Attributes:
        words: what stands before a command that has to know the names.
    """

    authority: Authority
    certificate: Certificate
    words: tuple[str, ...]

    @classmethod
    def make(cls, directory: Path) -> Self:
        """Issue the certificate, and write the names down."""
        authority = Authority.make(directory, "servers")
        names = f"subjectAltName=DNS:{BOOTSTRAP},DNS:*.{BOOTSTRAP}"
        words = resolving(directory, [(HOST, name) for name in NAMES])
        return cls(authority, authority.issue("wildcard", names=names), words)

    def settings(
        self,
        bootstrap: str,
        listener: Mapping[str, object] | None = None,
        sections: Mapping[str, Mapping[str, object]] | None = None,
        **fields: Any,
    ) -> SluiceSettings:
        """Return the settings of a gateway before these brokers.

        Args:
            listener: more keys of its listener.
            sections: more tables.
            fields: of the settings.
        """
        files = {"cert_file": str(self.certificate.cert_file), "key_file": str(self.certificate.key_file)}
        tables = {"listeners.tls": files, **(sections or {})}
        return SluiceSettings(bootstrap, listener=self.listener(listener), sections=tables, **fields)

    def listener(self, more: Mapping[str, object] | None = None) -> dict[str, object]:
        """Return the keys of the listener, without those of its TLS."""
        own = {"broker_host": BROKER_HOST, "advertised_host": BOOTSTRAP}
        return {**own, "first_broker_port": None, "broker_id_max": None, **(more or {})}

    def context(self) -> ssl.SSLContext:
        """Return a client's context, which trusts the certificate."""
        return ssl.create_default_context(cafile=self.authority.cert_file)

    def bootstrap(self, port: int) -> str:
        """Return what clients have in bootstrap.servers."""
        return f"{BOOTSTRAP}:{port}"

    def connect(self, port: int, name: str | None, host: str = HOST) -> ssl.SSLSocket:
        """Connect to the port, and name a host in the hello; None for none."""
        context = self.context()
        context.check_hostname = name is not None
        plain = socket.create_connection((host, port), timeout=SECONDS_MAX)
        return context.wrap_socket(plain, server_hostname=name)
