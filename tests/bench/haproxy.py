"""HAProxy in TCP mode, the yardstick: it knows nothing of Kafka, so it stands behind a listener that advertises it."""

import shutil
from pathlib import Path
from typing import Final

from tests.cluster import HOST

HINT: Final = (
    "HAProxy is missing: apt-get install haproxy (Debian's package is the yardstick of the data path)"
)
_CONNECTIONS_MAX: Final = 12_000
_PIPES: Final = 64
_OWN_DESCRIPTORS: Final = 120
_PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


def find() -> str | None:
    """Return HAProxy's path; Debian puts it where an ordinary user's PATH does not look."""
    return shutil.which("haproxy") or shutil.which("haproxy", path=_PLACES)


def configuration(port: int, broker_port: int, descriptors: int, store: Path | None = None) -> str:
    """Return the configuration of one frontend before one broker: TCP mode, one thread, splicing on.

    The timeouts are longer than any run, so that idle connections are its own business and not a timer's.
    With `store`, a PEM file of certificate and key, it ends the clients' TLS.
    It refuses to start with more connections than its descriptors (two each, two a pipe, some of its own) allow.
    """
    tls = f" ssl crt {store}" if store else ""
    connections = min(_CONNECTIONS_MAX, (descriptors - 2 * _PIPES - _OWN_DESCRIPTORS) // 2)
    return f"""global
    nbthread 1
    maxconn {connections}
    maxpipes {_PIPES}
defaults
    mode tcp
    option splice-auto
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen kafka
    bind {HOST}:{port}{tls}
    server broker {HOST}:{broker_port}
"""


def command(
    binary: str, directory: Path, port: int, broker_port: int, descriptors: int, store: Path | None = None
) -> list[str]:
    """Write the configuration and return the command line that serves it in the foreground, in one process."""
    path = directory / ("haproxy-tls.cfg" if store else "haproxy.cfg")
    path.write_text(configuration(port, broker_port, descriptors, store))
    return [binary, "-db", "-f", str(path)]
