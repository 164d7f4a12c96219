"""One SASL exchange as it passes: tokens and verdicts come in their order, in the end there is a name or none.

The broker alone decides. Sluice reads the name out of the client's token, and believes it when the broker's
answer says that the exchange has succeeded:

    PLAIN          one token, any answer without an error
    OAUTHBEARER    an empty answer without an error; one that holds bytes says why the token was refused (RFC 7628), and
                   the next token may be accepted
    SCRAM-*        the name stands in the first token, the second answer holds the broker's signature (v=...)
    all others     can not be read in passing (GSSAPI, AWS_MSK_IAM): any answer without an error, and no name

Kept between two frames is the name alone; no token, password, nonce, proof or signature (`sasl_tokens`).
"""

from typing import Final

from protocol.messages import sasl_tokens
from protocol.primitives import Buffer

__all__ = ["UNKNOWN_USER", "UNREAD_USER", "SaslExchange"]

# The user of a connection whose principal can not be read in passing: client-id quotas alone apply to it.
UNKNOWN_USER: Final = ""
# In its place where such connections together are to have the default user's quotas, or an entry's of their own.
UNREAD_USER: Final = "<unknown>"

_PLAIN: Final = "PLAIN"
_BEARER: Final = "OAUTHBEARER"
_SCRAM: Final = frozenset(("SCRAM-SHA-256", "SCRAM-SHA-512"))
# Mechanisms that are counted by their names; a client may send any text.
_COUNTED: Final = _SCRAM | {_PLAIN, _BEARER, "GSSAPI", "AWS_MSK_IAM"}
_OTHER: Final = "other"
_TOKEN: Final = "delegation token"


class SaslExchange:
    """From a SaslHandshake to the broker's last answer.

    Attributes:
        label: under which mechanism it is counted.
        name: the principal's name, as far as is known: believed only once `succeeded`.
        readable: whether its tokens can be read; who speaks one that can not may end without an answer.
        tokens: how many the client has sent.
    """

    __slots__ = ("_mechanism", "label", "name", "readable", "tokens")

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self.label = mechanism if mechanism in _COUNTED else _OTHER
        self.readable = mechanism in _SCRAM or mechanism in (_PLAIN, _BEARER)
        self.name: str | None = None
        self.tokens = 0

    def token(self, buf: bytes | bytearray, start: int, stop: int, claim: str) -> None:
        """The client's next token passes."""
        self.tokens += 1
        if self._mechanism == _PLAIN:
            self.name = sasl_tokens.plain_name(buf, start, stop)
        elif self._mechanism == _BEARER:
            self.name = sasl_tokens.bearer_name(buf, start, stop, claim)
        elif self._mechanism in _SCRAM:
            if self.tokens == 1:
                self.name = sasl_tokens.scram_name(buf, start, stop)
            if self.name == sasl_tokens.DELEGATION_TOKEN:
                self.name, self.label = None, _TOKEN

    def succeeded(self, buf: Buffer, start: int, stop: int) -> bool:
        """Whether an answer without an error that holds these bytes ends the exchange well."""
        if self._mechanism == _BEARER:
            return start == stop
        if self._mechanism in _SCRAM:
            return self.tokens > 1 and bytes(buf[start : min(stop, start + 2)]) == b"v="
        return True
