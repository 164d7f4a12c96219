"""HAProxy as the TLS of a suite that cannot be told a certificate.

Each name has an address of loopback. What connects there without TLS goes on to Sluice's one port, at another address,
with TLS and with this name in the hello.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.cluster import HOST, Address
from tests.support.gateways import accepts, running_haproxy


def configuration(port: int, names: Mapping[Address, str], ca_file: Path) -> str:
    """Return HAProxy's configuration: one proxy for each address, before Sluice's `port`.

    Its timeouts are longer than any test waits.
    """
    head = "defaults\n    mode tcp\n    timeout connect 10s\n    timeout client 1h\n    timeout server 1h\n"
    tls = f"ssl verify required ca-file {ca_file}"
    return head + "".join(
        f"listen {host}:{own}\n    bind {host}:{own}\n"
        f"    server sluice {HOST}:{port} {tls} sni str({name}) verifyhost {name}\n"
        for (host, own), name in names.items()
    )


def added(
    port: int, names: Mapping[Address, str], ca_file: Path, directory: Path
) -> AbstractContextManager[None]:
    """Run HAProxy.

    Args:
        port: the one of Sluice.
        names: what the hello has, by where the suite connects.
        directory: for its configuration and its log.
    """
    host, own = next(iter(names))
    return running_haproxy(configuration(port, names, ca_file), directory, lambda: accepts(own, host))
