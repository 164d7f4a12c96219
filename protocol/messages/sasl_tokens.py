"""The name in a SASL token: PLAIN (RFC 4616), SCRAM's first message (RFC 5802), OAUTHBEARER (RFC 7628).

Patterns are those of Kafka's own servers, so that nobody is one user to the broker and another one here. What
does not match, or names nobody, is None, never an error: the broker refuses it, or knows a name that can not be
read in passing. Nothing is verified, that is the broker's work.

No secret is copied: patterns run over the buffer the token lies in and take out the name alone. Of a JWT the
payload is decoded, its signature never; all of it is forgotten when the function ends.

Ignored: PLAIN's and OAUTHBEARER's authorization id (Kafka refuses one that differs from the name), nonces,
proofs, and every claim but one.
"""

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Final

from protocol.primitives import Buffer

__all__ = ["DELEGATION_TOKEN", "bearer_name", "plain_name", "scram_name"]

# What `scram_name` gives for a delegation token (KIP-48): its id stands where a name would, its owner is not told.
DELEGATION_TOKEN: Final = "\0delegation token"

# Kafka sets no bound to names; a token of a megabyte shall not become a key of ours.
NAME_BYTES_MAX: Final = 1024
_PAYLOAD_BYTES_MAX: Final = 64 * 1024
# What Java's String.trim takes off.
_BLANKS: Final = "".join(map(chr, range(0x21)))

_PLAIN: Final = re.compile(rb"[^\0]*+\0([^\0]{1,%d})\0" % NAME_BYTES_MAX)

_SASLNAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = rb"[\x01-\x2b\x2d-\x7f]+"
_SCRAM_FIRST: Final = re.compile(
    rb"n,(?:a=" + _SASLNAME + rb")?,(?:m=" + _VALUE + rb",)?n=(" + _SASLNAME + rb"),r=[\x21-\x2b\x2d-\x7e]+"
    rb"((?:,[A-Za-z]+=" + _VALUE + rb")*)"
)

_PAIR: Final = rb"[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01"
# Of several pairs named auth the last one counts.
_BEARER: Final = re.compile(
    rb"n,(?:a=" + _SASLNAME + rb")?,\x01(?:" + _PAIR + rb")*"
    rb"auth=[Bb][Ee][Aa][Rr][Ee][Rr] +[-_a-zA-Z0-9]*\.([-_a-zA-Z0-9]+)\.[-_a-zA-Z0-9]*\x01"
    rb"(?:(?!auth=)" + _PAIR + rb")*\x01"
)


def plain_name(buf: Buffer, start: int, stop: int) -> str | None:
    r"""The authentication id of a PLAIN token: what stands between the first two zeros.

    >>> plain_name(b"\0alice\0alice-secret", 0, 19)
    'alice'
    """
    found = _PLAIN.match(buf, start, stop)
    return None if found is None else _text(found[1])


def scram_name(buf: Buffer, start: int, stop: int) -> str | None:
    """The user of a SCRAM client-first message; DELEGATION_TOKEN where its id stands there instead.

    >>> scram_name(b"n,,n=a=2Cb=3D,r=fyko", 0, 20)
    'a,b='
    """
    found = _SCRAM_FIRST.fullmatch(buf, start, stop)
    if found is None or len(found[1]) > NAME_BYTES_MAX:
        return None
    extensions = dict(part.split(b"=", 1) for part in found[2].split(b",") if part)  # the last one counts
    if extensions.get(b"tokenauth", b"").lower() == b"true":
        return DELEGATION_TOKEN
    return _text(found[1].replace(b"=2C", b",").replace(b"=3D", b"="))


def bearer_name(buf: Buffer, start: int, stop: int, claim: str) -> str | None:
    """The value of one claim of the JWT in an OAUTHBEARER token, signed or not; None for an opaque token."""
    found = _BEARER.fullmatch(buf, start, stop)
    if found is None or len(found[1]) > _PAYLOAD_BYTES_MAX:
        return None
    payload = found[1]
    try:
        claims = json.loads(b64decode(payload + b"=" * (-len(payload) % 4), b"-_", validate=True))
    except (Base64Error, ValueError, RecursionError):
        return None
    name = claims.get(claim) if isinstance(claims, dict) else None
    if not isinstance(name, str) or len(name) > NAME_BYTES_MAX:
        return None
    return _encodable(name.strip(_BLANKS)) or None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _encodable(name: str) -> str:
    """JSON can spell half of a surrogate pair, which is no character and can not be written anywhere."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return ""
    return name
