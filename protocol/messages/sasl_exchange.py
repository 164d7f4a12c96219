"""One SASL exchange in transit: takes tokens and results in order, and finds the principal's name if it is readable.

Only the broker decides. The name is read from the client's token, and is valid when the broker's response says that the
exchange has succeeded:

    PLAIN          one token, any response without an error
    OAUTHBEARER    an empty response without an error; with bytes, it says why the token was refused (RFC 7628), and the
                   next token may be accepted
    SCRAM-*        the first token has the name, the second response has the broker's signature (v=...)
    all others     unreadable in transit (GSSAPI, AWS_MSK_IAM): any response without an error, and no name

Only the name is kept between frames; no token, password, nonce, proof or signature (`protocol.messages.sasl`).
"""

from typing import Final

from protocol.messages import sasl
from protocol.primitives import Buffer

_PLAIN: Final = "PLAIN"
_BEARER: Final = "OAUTHBEARER"
_SCRAM: Final = frozenset(("SCRAM-SHA-256", "SCRAM-SHA-512"))
# Mechanisms with a counter each; a client may send any text.
_COUNTED: Final = _SCRAM | {_PLAIN, _BEARER, "GSSAPI", "AWS_MSK_IAM"}
_OTHER: Final = "other"
_TOKEN: Final = "delegation token"


class SaslExchange:
    """One SASL exchange that passes through, from SaslHandshake to the broker's last response.

    Attributes:
        label: the mechanism's label in the counters.
        name: the principal's name, as far as known; not valid before `succeeded`.
        readable: whether its tokens can be read; an unreadable mechanism may end without a response.
        tokens: the number of tokens from the client.
    """

    __slots__ = ("_mechanism", "label", "name", "readable", "tokens")

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self.label = mechanism if mechanism in _COUNTED else _OTHER
        self.readable = mechanism in _SCRAM or mechanism in (_PLAIN, _BEARER)
        self.name: str | None = None
        self.tokens = 0

    def read_token(self, buf: bytes | bytearray, start: int, stop: int, claim: str) -> None:
        """Read the client's next token; takes the principal's name from it if it has one."""
        self.tokens += 1
        if self._mechanism == _PLAIN:
            self.name = sasl.plain_name(buf, start, stop)
        elif self._mechanism == _BEARER:
            self.name = sasl.bearer_name(buf, start, stop, claim)
        elif self._mechanism in _SCRAM:
            if self.tokens == 1:
                self.name = sasl.scram_name(buf, start, stop)
            if self.name == sasl.DELEGATION_TOKEN:
                self.name, self.label = None, _TOKEN

    def succeeded(self, buf: Buffer, start: int, stop: int) -> bool:
        """Whether the broker's token buf[start:stop], in a response without an error, completes the authentication."""
        if self._mechanism == _BEARER:
            return start == stop
        if self._mechanism in _SCRAM:
            return self.tokens > 1 and bytes(buf[start : min(stop, start + 2)]) == b"v="
        return True
