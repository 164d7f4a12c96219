r"""A certificate's subject -> a principal's name: Kafka's `ssl.principal.mapping.rules` (KIP-371).

    RULE:pattern/replacement/[L|U]      the whole subject must match; $1 is its first group; L and U change case
    DEFAULT                             the subject as it is

The first rule that matches applies; without one the client is refused, as by a broker. Patterns are Python's regular
expressions; Java's named groups `(?<name>…)` are supported too. Features that only Java has (\p{Lower}, intersections
of classes) are an error when the configuration is read, or match nothing. A slash within pattern or replacement is
escaped with a backslash.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

DEFAULT_RULES: Final = "DEFAULT"
RULES_MAX: Final = 100
_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|$)")
_JAVA_GROUP: Final = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.ASCII)

Rule = Callable[[str], str | None]


class RuleError(ValueError):
    """A rule of `principal_mapping_rules` is invalid."""


class NoMatchingRuleError(ValueError):
    """No rule of `principal_mapping_rules` applies to the subject of a client's certificate."""


class MappingRules:
    """Kafka's `ssl.principal.mapping.rules`: make a principal's name from the subject of a certificate.

    >>> rules = MappingRules("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT")
    >>> rules.name("CN=Billing,OU=ServiceUsers,O=Example"), rules.name("CN=x")
    ('billing', 'CN=x')
    """

    def __init__(self, text: str) -> None:
        """Parse the rules.

        Raises:
            RuleError: a rule is invalid; with its position.
        """
        self._rules: list[Rule] = []
        pos = 0
        while pos < len(text):
            found = _RULE.match(text, pos)
            if found is None:
                raise RuleError(
                    f"not a rule: {text[pos:].strip()!r}; RULE:pattern/replacement/[LU] or DEFAULT"
                )
            self._rules.append(_unchanged if found[1] else _rule(found[2], found[3], found[4]))
            pos = found.end()
        if not 0 < len(self._rules) <= RULES_MAX:
            raise RuleError(f"there must be 1 to {RULES_MAX} rules, not {len(self._rules)}")

    def name(self, subject: str) -> str:
        """Return the principal's name for a subject, by the first rule that applies.

        Raises:
            NoMatchingRuleError: no rule applies.
        """
        for rule in self._rules:
            found = rule(subject)
            if found is not None:
                return found
        raise NoMatchingRuleError(f"no principal mapping rule applies to {subject!r}")


def _unchanged(subject: str) -> str:
    return subject


def _rule(pattern_text: str, replacement: str, case: str) -> Rule:
    try:
        pattern = re.compile(_JAVA_GROUP.sub("(?P<", pattern_text))
    except re.error as error:
        raise RuleError(f"pattern {pattern_text!r}: {error}") from None
    parts = _parts(replacement, pattern)

    def replaced(found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found[part[0]] or "" for part in parts)

    def apply(subject: str) -> str | None:
        if pattern.fullmatch(subject) is None:
            return None
        # Like Java: if the whole subject matches, every match is replaced.
        result = pattern.sub(replaced, subject)
        return result.lower() if case == "L" else result.upper() if case == "U" else result

    return apply


def _parts(replacement: str, pattern: re.Pattern[str]) -> list[str | tuple[int | str]]:
    """Split a replacement into texts and groups; a reference to a missing group is a text, as in Kafka."""
    parts: list[str | tuple[int | str]] = []
    pos = 0
    for found in _REFERENCE.finditer(replacement):
        parts.append(replacement[pos : found.start()])
        pos = found.end()
        escaped, number, name = found.groups()
        if escaped is not None:
            parts.append(escaped)
        elif name is not None:
            if name not in pattern.groupindex:
                raise RuleError(f"replacement {replacement!r}: the pattern has no group {name!r}")
            parts.append((name,))
        else:
            parts.extend(_numbered(number, pattern.groups))
    parts.append(replacement[pos:])
    return parts


def _numbered(digits: str, groups: int) -> list[str | tuple[int | str]]:
    """Return the longest reference to an existing group: $12 is group 12, or group 1 and the text 2."""
    for count in range(len(digits), 0, -1):
        if int(digits[:count]) <= groups:
            return [(int(digits[:count]),), digits[count:]]
    return ["$" + digits]


# ----------------------------------------------------------------------------------------------------
# The subject of an X.509 certificate as Java writes it, and the end of its validity.
#
# Kafka's principal of a certificate is `X500Principal.getName()`: RFC 2253, the last name first, no blanks.
# The standard
# library returns the subject with other names and without the types that Java's form depends on, so it is
# decoded from
# the bytes (X.690, X.680). tests/oracle compares it with Java's own class.
#
# Signature, validity and trust are not checked here: the TLS library has done so in the handshake.


_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAME: Final = bytes.fromhex("551d11")  # 2.5.29.17
_DNS_NAME: Final = 0x82
_UTC_TIME: Final = 0x17
# The types that Java reads as texts, all as UTF-8; values of other types are written as bytes.
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString
_TEXTS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
# RFC 2253 §2.3, and STREET and UID of its table; all other types are written as object identifiers.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_LENGTH_BYTES_MAX: Final = 4
# Java takes 4,096; real ones have ten or so, with a UUID twenty. A number that fills this has 540 digits.
_OID_BYTES_MAX: Final = 256

Item = tuple[int, int, int]  # tag, where its content begins, where it ends


class CertificateError(ValueError):
    """The bytes are not a certificate; the message contains the position."""


def subject(certificate: bytes) -> str:
    """Return the subject's name as `X500Principal.getName()` formats it; "" if the certificate has none."""
    names = _fields(certificate)[4]
    # A relative name usually has one attribute, otherwise several joined by a plus sign.
    relative = [
        "+".join(_attribute(certificate, one) for one in _items(certificate, name, _SET))
        for name in _items(certificate, names, _SEQUENCE)
    ]
    return ",".join(reversed(relative))


def expires_at(certificate: bytes) -> float:
    """Return when a certificate's validity ends, in seconds since the epoch."""
    times = list(_items(certificate, _fields(certificate)[3], _SEQUENCE))
    if len(times) != 2:
        raise CertificateError("a validity that is not two times")
    tag, start, end = times[1]
    # RFC 5280 §4.1.2.5: both end with Z and name seconds; a two-digit year is one of 1950 to 2049.
    text = certificate[start:end].decode("ascii", "replace")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise CertificateError(f"byte {start}: {text!r} is not a time") from None


def host_names(certificate: bytes) -> tuple[str, ...]:
    """Return the host names of a certificate (RFC 5280 §4.2.1.6), in lower case; "*.…" is one for any first label.

    A name in the subject is none: clients have not read it for years.
    """
    for extensions in (item for item in _fields(certificate) if item[0] == _EXTENSIONS):
        for extension in _items(certificate, _item(certificate, *extensions[1:]), _SEQUENCE):
            # Its kind, perhaps whether it is critical, its value.
            parts = list(_items(certificate, extension, _SEQUENCE))
            if len(parts) > 1 and certificate[parts[0][1] : parts[0][2]] == _ALTERNATIVE_NAME:
                names = _items(certificate, _item(certificate, *parts[-1][1:]), _SEQUENCE)
                return tuple(
                    certificate[start:end].decode("ascii", "replace").lower()
                    for tag, start, end in names
                    if tag == _DNS_NAME
                )
    return ()


def certified_as(host: str) -> tuple[str, str]:
    """Return the two names of a certificate that are a host's (RFC 6125 §6.4): its own, and a wildcard for one label.

    >>> certified_as("B1.kafka.example.org")
    ('b1.kafka.example.org', '*.kafka.example.org')
    """
    host = host.lower().removesuffix(".")
    return host, f"*.{host.partition('.')[2]}"


def _fields(data: bytes) -> list[Item]:
    """Return serial number, signature algorithm, issuer, validity, subject and what follows of the certificate."""
    outer = _item(data, 0, len(data))
    inner = next(_items(data, outer, _SEQUENCE), None)
    if inner is None:
        raise CertificateError("byte 0: not a certificate")
    found = [item for item in _items(data, inner, _SEQUENCE) if item[0] != _VERSION]
    if len(found) < 5:
        raise CertificateError(f"byte {inner[1]}: a certificate without a subject")
    return found


def _attribute(data: bytes, attribute: Item) -> str:
    parts = list(_items(data, attribute, _SEQUENCE))
    if len(parts) != 2 or parts[0][0] != _OID:
        raise CertificateError(f"byte {attribute[1]}: not a type and a value")
    (_, oid_start, oid_end), (tag, start, end) = parts
    number = _oid(data[oid_start:oid_end])
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{data[oid_end:end].hex()}"  # type and length belong to it
    return f"{keyword}={_escape(data[start:end].decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    """Escape a value by RFC 2253 §2.4, and `=` and `#` everywhere, as Java does."""
    first = len(text) - len(text.lstrip(" \r"))
    last = len(text.rstrip(" \r"))
    written = []
    for index, character in enumerate(text):
        if character == "\x00":
            written.append("\\00")
        elif character in _ESCAPED or not first <= index < last:
            written.append("\\" + character)
        else:
            written.append(character)
    return "".join(written)


def _oid(content: bytes) -> str:
    """Return an object identifier as text, its numbers separated by dots.

    >>> _oid(bytes.fromhex("550403"))
    '2.5.4.3'
    """
    if len(content) > _OID_BYTES_MAX:
        raise CertificateError(
            f"an object identifier of {len(content)} bytes, at most {_OID_BYTES_MAX} are supported"
        )
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise CertificateError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _items(data: bytes, parent: Item, tag: int) -> Iterator[Item]:
    """Yield the items of a sequence or a set."""
    found, pos, end = parent
    if found != tag:
        raise CertificateError(f"byte {pos}: tag {found:#04x}, expected {tag:#04x}")
    while pos < end:
        item = _item(data, pos, end)
        yield item
        pos = item[2]


def _item(data: bytes, pos: int, limit: int) -> Item:
    """Return the item at `pos`: its tag, and its contents by its definite length (DER)."""
    if pos + 2 > limit:
        raise CertificateError(f"byte {pos}: ends within a tag")
    tag, length = data[pos], data[pos + 1]
    start = pos + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= _LENGTH_BYTES_MAX or start + count > limit:
            raise CertificateError(f"byte {pos}: no length")
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    if start + length > limit:
        raise CertificateError(f"byte {pos}: {length} bytes announced, {limit - start} left")
    return tag, start, start + length
