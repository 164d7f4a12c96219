"""The name in a SASL token: PLAIN (RFC 4616), SCRAM's first message (RFC 5802), OAUTHBEARER (RFC 7628).

For a token that Kafka's own servers accept, the name is the one that they find (`tests/oracle` compares). A token that
they refuse may have any name here: the broker verifies tokens, and the channel sees its refusal. So only the parts that
lead to the name are checked, and each function takes one pass of C code, whatever the token holds. A token without a
name, or with one that is too long, gives None, never an error.

No secret is copied: patterns run over the buffer the token lies in and take out the name alone. Of a JWT the
payload is decoded, its signature never; all of it is forgotten when the function ends.

How Kafka reads, where it is not what the RFCs say:

- Bytes that are not UTF-8 are replacement characters in PLAIN's name. No name is normalised (SASLprep).
- Of a name or pair that comes twice the last one counts.
- A JWT's payload may be in either alphabet of base64: Kafka 4.1 and newer read unsecured ones in the URL's, older ones
  in the other, jose4j signed ones in both, passing over what is in neither ("~").
- Of an unsecured one (no signature) Jackson reads the first JSON value and nothing behind it, a claim that is true,
  false or null is that word, and the name keeps its blanks. Of a signed one the name is trimmed, and only text.

Ignored: authorization ids (Kafka refuses one that differs from the name), nonces, proofs, and every claim but one.

Non-obvious:

- Tokens are read only for the name. Sluice requires nothing else of a token: a broker may accept it with less, and
  the user would then have no quota here. `tests/oracle/test_names.py` lets Kafka's own servers judge. A token that
  a broker refuses may have any name.
"""

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Final

__all__ = ["DELEGATION_TOKEN", "bearer_name", "plain_name", "scram_name"]

# The result of `scram_name` for a delegation token (KIP-48): it has its id in place of a name, and not its owner.
DELEGATION_TOKEN: Final = "\0delegation token"

# Kafka has no bound for names; a token of a megabyte must not become a key.
NAME_BYTES_MAX: Final = 1024
# Of base64. JSON of that size is read in 2 ms at worst.
_PAYLOAD_BYTES_MAX: Final = 64 * 1024
# What Java's String.trim takes off.
_BLANKS: Final = "".join(map(chr, range(0x21)))

_PLAIN: Final = re.compile(rb"[^\0]*+\0([^\0]{1,%d})\0" % NAME_BYTES_MAX)
# What would be half of a surrogate pair, whole or cut: Java replaces it by one character, Python each byte by its own.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()

_SASLNAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)"
_SCRAM_FIRST: Final = re.compile(
    rb"n,(?:a=[^,]*+)?,(?:m=[^,]*+,)?n=(%s{1,%d}),r=[^,]" % (_SASLNAME, NAME_BYTES_MAX)
)
# No value holds a comma, so wherever this stands an extension begins.
_TOKEN_AUTH: Final = b",tokenauth="
_TRUE: Final = re.compile(rb"(?i:true)(?=,|\Z)")

_BEARER_FIRST: Final = re.compile(rb"n,(?:a=[^,]*+)?,\x01")
# No value holds a separator, so wherever this stands a pair begins.
_AUTH: Final = b"\x01auth="
_JWT: Final = re.compile(
    rb"(?i:bearer) ++[-_~+/a-zA-Z0-9]*+\.([-_~+/a-zA-Z0-9]{1,%d})\.([-_~+/a-zA-Z0-9]*+=*+)\x01"
    % _PAYLOAD_BYTES_MAX
)
_URL_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
# Digits are not looked at, and thousands of them are no integer to Python.
_JSON: Final = json.JSONDecoder(parse_int=float, strict=False)
_JSON_BLANKS: Final = " \t\r\n"
_LITERALS: Final = {None: "null", True: "true", False: "false"}
_HALF_A_PAIR: Final = re.compile("[\ud800-\udfff]")


def plain_name(buf: bytes | bytearray, start: int, stop: int) -> str | None:
    r"""The authentication id of a PLAIN token: what stands between the first two zeros.

    >>> plain_name(b"\0alice\0alice-secret", 0, 19)
    'alice'
    """
    found = _PLAIN.match(buf, start, stop)
    if found is None:
        return None
    return _SURROGATE.sub(_REPLACEMENT, found[1]).decode("utf-8", "replace")


def scram_name(buf: bytes | bytearray, start: int, stop: int) -> str | None:
    """The user of a SCRAM client-first message; DELEGATION_TOKEN where its id stands there instead.

    >>> scram_name(b"n,,n=a=2Cb=3D,r=fyko", 0, 20)
    'a,b='
    """
    found = _SCRAM_FIRST.match(buf, start, stop)
    if found is None:
        return None
    at = buf.rfind(_TOKEN_AUTH, found.end(), stop)
    if at >= 0 and _TRUE.match(buf, at + len(_TOKEN_AUTH), stop):
        return DELEGATION_TOKEN
    return found[1].replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")


def bearer_name(buf: bytes | bytearray, start: int, stop: int, claim: str) -> str | None:
    """The value of one claim of the JWT in an OAUTHBEARER token, signed or not; None for an opaque token."""
    first = _BEARER_FIRST.match(buf, start, stop)
    if first is None:
        return None
    at = buf.rfind(_AUTH, first.end() - 1, stop)
    found = None if at < 0 else _JWT.match(buf, at + len(_AUTH), stop)
    if found is None:
        return None
    return _claimed(found[1], claim, signed=bool(found[2]))


def _claimed(payload: bytes, claim: str, *, signed: bool) -> str | None:
    """A claim that may be a name, as who verifies such a token reads it."""
    payload = payload.translate(_URL_ALPHABET, b"~")
    try:
        # A single character at the end is no byte.
        text = b64decode(payload[: -1 if len(payload) % 4 == 1 else None] + b"===")
        claims, _ = _JSON.raw_decode(text.decode(json.detect_encoding(text), "replace").lstrip(_JSON_BLANKS))
    except (Base64Error, ValueError, RecursionError):
        return None
    if not isinstance(claims, dict) or claim not in claims:
        return None
    name = claims[claim]
    if not isinstance(name, str):
        if signed or not (name is None or isinstance(name, bool)):
            return None
        name = _LITERALS[name]
    stripped = name.strip(_BLANKS)
    if not stripped or len(name) > NAME_BYTES_MAX:
        return None
    # Half of a surrogate pair is no character; Kafka's quotas call it so (`Sanitizer`).
    return _HALF_A_PAIR.sub("?", stripped if signed else name)
