"""SaslHandshake 0-1 and SaslAuthenticate 0-2 (KIP-43, KIP-152, KIP-368), and the name in a client's token.

Of requests the mechanism's name and the position of the token are read; of responses the error code, the position of
the broker's token, and the session's lifetime. Ignored: the broker's list of mechanisms, error messages. Nothing is
rewritten. Version notes: SaslAuthenticate has session_lifetime_ms since 1 and is flexible since 2; SaslHandshake never
is. After a SaslHandshake 0, tokens follow without a Kafka header (`proxy.channel.handlers.sasl`).

The name is that in PLAIN (RFC 4616), SCRAM's first message (RFC 5802) or OAUTHBEARER (RFC 7628). For a token that
Kafka's own servers accept, the result is the name that they find (`tests/oracle` compares). For a token that they
reject, it may be any name: the broker verifies tokens, and the channel receives its response. So only the parts that
lead to the name are checked, in one pass of C code whatever the token contains. For a token without a name, or with one
that is too long, the result is None, never an error. Ignored: authorization ids (Kafka refuses one that differs from
the name), nonces, proofs, and every claim but one.

No secret is copied: patterns search the buffer that contains the token, and only the name is extracted. Of a JWT the
payload is decoded, but not the signature; nothing of it is kept.

Kafka's servers deviate from the RFCs:

- Bytes of PLAIN's name that are not UTF-8 become replacement characters. Names are not normalised (SASLprep).
- If a name or a key occurs twice, the last one is used.
- A JWT's payload may use either base64 alphabet: Kafka 4.1 and newer decode unsecured ones with the URL alphabet, older
  versions with the other; jose4j decodes signed ones with both, and ignores characters of neither ("~").
- Of an unsecured JWT (without a signature) Jackson parses the first JSON value and ignores the rest; a claim that is
  true, false or null is that word, and the name keeps its blanks. Of a signed JWT the claim must be a string, and the
  name is trimmed.

Non-obvious:

- Tokens are read only for the name. Sluice requires nothing else of a token: a broker may accept a token that is
  incomplete otherwise, and its user would then have no quota here.
"""

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from struct import Struct
from typing import Final, NamedTuple

from protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE, flexible
from protocol.errors import MalformedFieldError
from protocol.header import response_body_start
from protocol.primitives import Buffer, bytes_size, int16, skip, skip_string, string

_INT64: Final = Struct(">q").unpack_from
_LIFETIME_SINCE: Final = 1

# The result of `scram_name` for a delegation token (KIP-48), which contains its id instead of the owner's name.
DELEGATION_TOKEN: Final = "\0delegation token"

# Kafka does not bound names; but a token of a megabyte must not become a key.
NAME_BYTES_MAX: Final = 1024
# In base64. JSON of this size is parsed in at most 2 ms.
_PAYLOAD_BYTES_MAX: Final = 64 * 1024
# The characters that Java's String.trim removes.
_BLANKS: Final = "".join(map(chr, range(0x21)))

_PLAIN: Final = re.compile(rb"[^\0]*+\0([^\0]{1,%d})\0" % NAME_BYTES_MAX)
# Half of a surrogate pair, complete or cut off: Java replaces it by one character, Python replaces each byte.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()

_SASLNAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)"
_SCRAM_FIRST: Final = re.compile(
    rb"n,(?:a=[^,]*+)?,(?:m=[^,]*+,)?n=(%s{1,%d}),r=[^,]" % (_SASLNAME, NAME_BYTES_MAX)
)
# No value contains a comma, so an extension begins wherever this occurs.
_TOKEN_AUTH: Final = b",tokenauth="
_TRUE: Final = re.compile(rb"(?i:true)(?=,|\Z)")

_BEARER_FIRST: Final = re.compile(rb"n,(?:a=[^,]*+)?,\x01")
# No value contains a separator, so a pair begins wherever this occurs.
_AUTH: Final = b"\x01auth="
_JWT: Final = re.compile(
    rb"(?i:bearer) ++[-_~+/a-zA-Z0-9]*+\.([-_~+/a-zA-Z0-9]{1,%d})\.([-_~+/a-zA-Z0-9]*+=*+)\x01"
    % _PAYLOAD_BYTES_MAX
)
_URL_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
# Numbers are not used, and Python refuses to convert thousands of digits to an integer.
_JSON: Final = json.JSONDecoder(parse_int=float, strict=False)
_JSON_BLANKS: Final = " \t\r\n"
_LITERALS: Final = {None: "null", True: "true", False: "false"}
_HALF_A_PAIR: Final = re.compile("[\ud800-\udfff]")


class Verdict(NamedTuple):
    """A SaslAuthenticate response: the broker's result for a client's token.

    Attributes:
        error_code: 0 for success, or for the next step of the exchange.
        start, stop: the range of the broker's token in the buffer; equal if it is empty.
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
    """Return where the client's token begins and ends in a SaslAuthenticate request whose fields begin at `pos`."""
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


def plain_name(buf: bytes | bytearray, start: int, stop: int) -> str | None:
    r"""Return the user name in the PLAIN token buf[start:stop], between its first two zero bytes; None if invalid.

    >>> plain_name(b"\0alice\0alice-secret", 0, 19)
    'alice'
    """
    found = _PLAIN.match(buf, start, stop)
    if found is None:
        return None
    return _SURROGATE.sub(_REPLACEMENT, found[1]).decode("utf-8", "replace")


def scram_name(buf: bytes | bytearray, start: int, stop: int) -> str | None:
    """Return the user name in the SCRAM client-first message buf[start:stop]; None if the message is invalid.

    DELEGATION_TOKEN if it contains the id of a delegation token instead of a user.

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
    """Return this claim of the JWT in the OAUTHBEARER token buf[start:stop], without checking its signature.

    None if the token is not a JWT, or the claim is missing or not a name.
    """
    first = _BEARER_FIRST.match(buf, start, stop)
    if first is None:
        return None
    at = buf.rfind(_AUTH, first.end() - 1, stop)
    found = None if at < 0 else _JWT.match(buf, at + len(_AUTH), stop)
    if found is None:
        return None
    return _claimed(found[1], claim, signed=bool(found[2]))


def _claimed(payload: bytes, claim: str, *, signed: bool) -> str | None:
    """Return the claim as a name, as Kafka's verifier of such a token reads it; None if it cannot be one."""
    payload = payload.translate(_URL_ALPHABET, b"~")
    try:
        # A single character at the end is not a byte.
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
    # Half of a surrogate pair is not a character; Kafka's quotas replace it by "?" (`Sanitizer`).
    return _HALF_A_PAIR.sub("?", stripped if signed else name)
