"""The ranges a client is told, by their bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.api_versions import rewrite, software
from protocol.primitives import string_bytes, uvarint_bytes
from tests.unit.protocol.hex_frames import hex_framed


def test_ranges_are_cut_and_unknown_apis_dropped() -> None:
    # Version 0: Produce 0-99, Fetch 4-18, API 500, Metadata from a version that is not served.
    frame = hex_framed("00000007 0000 00000004 0000 0000 0063 0001 0004 0012 01f4 0000 0001 0003 0020 0021")
    # Produce keeps its minimum of 0, by which librdkafka knows that it may compress.
    assert rewrite(frame, 0) == hex_framed("00000007 0000 00000002 0000 0000 000d 0001 0004 0012")


def test_flexible_response_keeps_tags_and_what_follows() -> None:
    # Version 4: one API with an unknown tag; throttle time; one tagged feature.
    frame = hex_framed("00000007 0000 02 0012 0000 0009 01 07 01 aa 00000000 01 00 01 01")
    assert rewrite(frame, 4) == hex_framed("00000007 0000 02 0012 0000 0005 01 07 01 aa 00000000 01 00 01 01")


def test_refused_version_gets_a_response_in_version_0() -> None:
    frame = hex_framed("00000007 0023 00000001 0012 0000 0009")
    assert rewrite(frame, 5) == hex_framed("00000007 0023 00000001 0012 0000 0005")


def body(name: str | None, version: str | None) -> bytes:
    """What follows the client id: the header's tags, the software's name and version, tags."""
    return b"\0" + string_bytes(name, True) + string_bytes(version, True) + b"\0"


def test_software_is_its_name_and_version() -> None:
    sent = b"client-id" + body("apache-kafka-java", "4.0.0-rc.1")
    assert software(sent, 9, len(sent), 3) == "apache-kafka-java 4.0.0-rc.1"
    assert software(bytearray(sent), 9, len(sent), 4) == "apache-kafka-java 4.0.0-rc.1"


def test_software_is_not_said_before_version_3() -> None:
    sent = body("apache-kafka-java", "4.0.0")
    assert software(sent, 0, len(sent), 2) == ""


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", "1"),
        (None, "1"),
        ("a", None),
        ("<b>", "1"),
        ("a b", "1"),
        ("a\x1b[2J", "1"),
        ("-a", "1"),
        ("a.", "1"),
        ("é", "1"),
        ("a" * 65, "1"),
        ("a", "1" * 65),
        ("a", "1\n"),
    ],
)
def test_software_that_brokers_refuse_is_not_shown(name: str | None, version: str | None) -> None:
    sent = body(name, version)
    assert software(sent, 0, len(sent), 3) == ""


def test_software_of_the_longest_names() -> None:
    sent = body("a" * 64, "b" * 64)
    assert software(sent, 0, len(sent), 3) == "a" * 64 + " " + "b" * 64


def test_software_that_is_cut_off_is_not_shown() -> None:
    sent = body("librdkafka", "2.3.0")
    found = [software(sent, 0, end, 3) for end in range(len(sent))]
    assert found[: len(sent) - 1] == [""] * (len(sent) - 1)


def test_software_after_many_tags_is_not_looked_for() -> None:
    sent = uvarint_bytes(17) + b"\0\0" * 17 + body("librdkafka", "2.3.0")[1:]
    assert software(sent, 0, len(sent), 3) == ""


@given(st.binary(max_size=200), st.integers(3, 5))
def test_software_of_any_bytes_is_short_and_plain(sent: bytes, version: int) -> None:
    found = software(sent, 0, len(sent), version)
    assert len(found) <= 129
    assert found.isascii()
    assert found.replace(" ", "").isprintable()
