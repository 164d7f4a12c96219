"""SaslHandshake 0-1 and SaslAuthenticate 0-2: the mechanism, the position of the token, the broker's response (KIP-43,
KIP-152, KIP-368).

Of requests the mechanism's name and the position of the token are read; of responses the error code, the position of
the broker's token, and the session's lifetime. Tokens are not copied: `sasl_tokens` reads the name from the buffer.
Ignored: the broker's list of mechanisms, error messages. Nothing is rewritten.

Version notes: SaslAuthenticate has session_lifetime_ms since 1 and is flexible since 2; SaslHandshake never is. After a
SaslHandshake 0, tokens follow without a Kafka header (`proxy.channel.handlers.sasl`).
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE, flexible
from protocol.errors import MalformedFieldError
from protocol.header import response_body_start
from protocol.primitives import Buffer, bytes_size, int16, skip, skip_string, string

__all__ = ["Verdict", "handshake_error", "mechanism", "token_span", "verdict"]

_INT64: Final = Struct(">q").unpack_from
_LIFETIME_SINCE: Final = 1


class Verdict(NamedTuple):
    """A broker's response to a token.

    Attributes:
        error_code: 0 for success, or for the next step of the exchange.
        start, stop: the position of the broker's token in the buffer; equal if it is empty.
        session_lifetime_ms: the time after which the client must authenticate again (KIP-368); 0 = never.
    """

    error_code: int
    start: int
    stop: int
    session_lifetime_ms: int


def mechanism(buf: Buffer, pos: int, end: int) -> str:
    """Return the mechanism in a SaslHandshake request whose fields begin at `pos`."""
    name, _ = string(buf, pos, end, False)
    if name is None:
        raise MalformedFieldError(f"mechanism at byte {pos} is null")
    return name


def handshake_error(buf: Buffer, pos: int, end: int) -> int:
    """Return the error code of the SaslHandshake response whose length prefix is at `pos`."""
    return int16(buf, response_body_start(buf, pos, end, SASL_HANDSHAKE, 0), end)


def token_span(buf: Buffer, pos: int, end: int, version: int) -> tuple[int, int]:
    """Return start and end of the token in a SaslAuthenticate request whose fields begin at `pos`."""
    size, start = bytes_size(buf, pos, end, flexible(SASL_AUTHENTICATE, version))
    if size < 0:
        raise MalformedFieldError(f"token at byte {pos} is null")
    return start, skip(start, size, end)


def verdict(buf: Buffer, pos: int, end: int, version: int) -> Verdict:
    """Parse the complete SaslAuthenticate response whose length prefix is at `pos`."""
    compact = flexible(SASL_AUTHENTICATE, version)
    pos = response_body_start(buf, pos, end, SASL_AUTHENTICATE, version)
    error_code = int16(buf, pos, end)
    size, start = bytes_size(buf, skip_string(buf, pos + 2, end, compact), end, compact)
    stop = skip(start, max(size, 0), end)
    lifetime_ms = 0
    if version >= _LIFETIME_SINCE:
        skip(stop, 8, end)
        (lifetime_ms,) = _INT64(buf, stop)
    return Verdict(error_code, start, stop, lifetime_ms)
