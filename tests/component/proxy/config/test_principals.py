"""A subject in Java's form, from the bytes of a certificate; bytes that are none are refused, and nothing else."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.principals import CertificateError, expires_at, host_names, subject
from tests.support.certificates import Authority

UTF8: Final = 0x0C
Names = Sequence[Sequence[tuple[str, int, bytes]]]
"""Relative names, the most general first; each a list of type, tag of the value, value."""


def encoded(tag: int, content: bytes) -> bytes:
    """One item: tag, length, content."""
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def object_identifier(dotted: str) -> bytes:
    """A type, written with dots."""
    first, second, *rest = (int(number, 0) for number in dotted.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        septets = [number & 0x7F]
        while number := number >> 7:
            septets.append(number & 0x7F | 0x80)
        content += bytes(reversed(septets))
    return encoded(0x06, content)


def name(names: Names) -> bytes:
    """A distinguished name."""
    relative = [
        b"".join(encoded(0x30, object_identifier(kind) + encoded(tag, value)) for kind, tag, value in one)
        for one in names
    ]
    return encoded(0x30, b"".join(encoded(0x31, one) for one in relative))


def certificate(names: Names, ends: tuple[int, bytes] = (0x17, b"491231235959Z")) -> bytes:
    """A certificate of this subject; fields that are not read are empty."""
    version, serial = encoded(0xA0, encoded(0x02, b"\x02")), encoded(0x02, b"\x01")
    nothing = encoded(0x30, b"")
    validity = encoded(0x30, encoded(0x17, b"200101000000Z") + encoded(*ends))
    inner = encoded(0x30, version + serial + nothing + nothing + validity + name(names) + nothing)
    return encoded(0x30, inner)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        ([[("2.5.4.6", UTF8, b"DE")], [("2.5.4.3", UTF8, b"alice")]], "CN=alice,C=DE"),
        ([], ""),
        ([[("2.5.4.11", UTF8, b"a"), ("2.5.4.3", UTF8, b"b")]], "OU=a+CN=b"),
        ([[("2.5.4.10", UTF8, b'Ex, "Inc" <a+b>;#=\\')]], 'O=Ex\\, \\"Inc\\" \\<a\\+b\\>\\;\\#\\=\\\\'),
        ([[("2.5.4.3", UTF8, b" a b ")]], "CN=\\ a b\\ "),
        ([[("2.5.4.3", UTF8, b"a\0b")]], "CN=a\\00b"),
        ([[("2.5.4.3", UTF8, "J\u00fcrgen".encode())]], "CN=J\u00fcrgen"),
        ([[("1.2.840.113549.1.9.1", 0x16, b"a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
        ([[("2.5.4.3", 0x04, b"ab")]], "CN=#04026162"),
        ([[("0.9.2342.19200300.100.1.1", UTF8, b"u")], [("0.9.2342.19200300.100.1.25", 0x16, b"org")]], "DC=org,UID=u"),
    ],
)  # fmt: skip
def test_subject_is_written_as_java_writes_it(
    names: list[list[tuple[str, int, bytes]]], written: str
) -> None:
    assert subject(certificate(names)) == written


def test_certificate_of_openssl_is_read(tmp_path: Path) -> None:
    made = Authority.make(tmp_path).issue("alice", "/C=DE/O=Example, Inc/OU=ops/CN=alice")
    der = ssl.PEM_cert_to_DER_cert(made.cert_file.read_text())
    assert subject(der) == "CN=alice,OU=ops,O=Example\\, Inc,C=DE"
    assert 29 < (expires_at(der) - datetime.now(UTC).timestamp()) / 86400 < 31


@pytest.mark.parametrize(
    ("names", "read"),
    [
        ("subjectAltName=DNS:*.Kafka.test,IP:127.0.0.1,DNS:kafka.test", ("*.kafka.test", "kafka.test")),
        ("subjectAltName=critical,DNS:b1.kafka.test", ("b1.kafka.test",)),
        ("subjectAltName=IP:127.0.0.1", ()),
        ("keyUsage=digitalSignature", ()),
    ],
)
def test_host_names_of_a_certificate_are_read(tmp_path: Path, names: str, read: tuple[str, ...]) -> None:
    made = Authority.make(tmp_path).issue("own", "/CN=not.a.host", names=names)
    assert host_names(ssl.PEM_cert_to_DER_cert(made.cert_file.read_text())) == read


@pytest.mark.parametrize(
    ("tag", "text", "year"),
    [(0x17, b"491231235959Z", 2049), (0x17, b"500101000000Z", 1950), (0x18, b"20510101000000Z", 2051)],
)  # fmt: skip
def test_expiry_of_a_certificate_is_read(tag: int, text: bytes, year: int) -> None:
    assert datetime.fromtimestamp(expires_at(certificate([], (tag, text))), UTC).year == year


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x00", b"\x04\x02ab", b"\x30\x80\x00\x00", b"\x30\x82\xff\xff"]
)
def test_invalid_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(CertificateError):
        subject(data)


def test_object_identifier_is_bounded() -> None:
    # Numbers of more than 4,300 digits are not written by Python: a ValueError that is no CertificateError.
    written = subject(certificate([[(f"1.2.{1 << 7 * 255 - 1}", UTF8, b"a")]]))
    assert len(written) == len("1.2.=#0c0161") + 538
    for size in (256, 2300):
        with pytest.raises(CertificateError, match=f"object identifier of {size + 1} bytes"):
            subject(certificate([[(f"1.2.{1 << 7 * size - 1:#x}", UTF8, b"a")]]))


def test_impossible_time_is_refused() -> None:
    with pytest.raises(CertificateError, match="is not a time"):
        expires_at(certificate([], (0x17, b"4912312359")))


WHOLE = certificate([[("2.5.4.3", UTF8, b"alice")], [("2.5.4.10", 0x13, b"x" * 200)]])


@given(st.integers(0, len(WHOLE) - 1))
def test_cut_certificate_is_refused(at: int) -> None:
    with pytest.raises(CertificateError):
        subject(WHOLE[:at])


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_wrong_byte_ends_in_a_subject_or_in_its_own_error(at: int, value: int) -> None:
    data = bytearray(WHOLE)
    data[at] = value
    for read in (subject, expires_at, host_names):
        try:
            read(bytes(data))
        except CertificateError:
            continue
