"""The protocol errors of a peer that end its connection. Each cause is one label of one counter."""

from typing import Final

_TLS_HANDSHAKE: Final = 0x16
_HTTP_STARTS: Final = frozenset(
    (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PATC", b"PRI ")
)


class PeerError(Exception):
    """A peer sent bytes that no Kafka client or broker sends.

    Args:
        cause: a short, fixed word: the label under which it is counted.
        detail: the exact error, for the one log line.
    """

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail


def unreadable_length(first_bytes: bytes, length: int, length_max: int) -> PeerError:
    """Return the error for an impossible length prefix; it names what the bytes probably are (TLS, HTTP, ...)."""
    if first_bytes[:4] in _HTTP_STARTS:
        return PeerError("http_request", "an HTTP request on a Kafka port")
    if first_bytes[:1] == bytes((_TLS_HANDSHAKE,)) and first_bytes[1:2] == b"\x03":
        return PeerError("tls_hello", "a TLS handshake on a plaintext port")
    if length < 0:
        return PeerError("frame_length", f"negative frame length {length}")
    if length > length_max:
        return PeerError("frame_length", f"frame of {length} bytes, limits.frame_bytes_max is {length_max}")
    return PeerError("frame_length", f"frame of {length} bytes is shorter than its header")
