"""What all sides of TLS have in common: contexts that are asked for at each connection, and why a handshake failed."""

import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

Context = Callable[[], ssl.SSLContext]
"""Returns the context in force."""


class FleetContexts(NamedTuple):
    """TLS between members of a fleet (`[fleet.tls]`).

    Args:
        port: of this member's port; None for plaintext.
        client: towards the holder; None for plaintext.
    """

    port: Context | None = None
    client: Context | None = None


PLAINTEXT: Final = FleetContexts()


def handshake_problem(error: OSError) -> str:
    """Return the reason why a handshake failed.

    >>> handshake_problem(ConnectionResetError(104, "Connection reset by peer"))
    'the peer closed the connection during the handshake'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the peer closed the connection during the handshake"
    reason = str(getattr(error, "reason", None) or error)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "a client certificate is required, and none was sent"
    if "ALERT" in reason:
        return f"the peer refused: {reason.rpartition('ALERT_')[2].replace('_', ' ').lower()}"
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "the peer does not speak TLS"
    return reason.replace("_", " ").lower()
