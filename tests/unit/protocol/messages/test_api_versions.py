"""The client's software, as ApiVersions names it; tests/property has the ranges that a client is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.api_versions import meant_cluster, software
from protocol.primitives import string_bytes, uvarint_bytes


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


def meaning(cluster_id: str | None) -> bytes:
    """Tags, the software, and which node of which cluster is meant: version 5."""
    return body("x", "y")[:-1] + string_bytes(cluster_id, True) + b"\0\0\0\1\0"


def test_cluster_that_a_client_means_is_read_from_version_5_on() -> None:
    sent = b"client-id" + meaning("ours")
    assert [meant_cluster(sent, 9, len(sent), version) for version in (4, 5)] == [b"", b"ours"]
    found = {meant_cluster(sent, 9, end, 5) for end in range(9, len(sent) - 5)}
    assert found == {b""}, "cut off"


@pytest.mark.parametrize("cluster_id", [None, "", "c" * 65])
def test_client_that_does_not_know_its_cluster_means_none(cluster_id: str | None) -> None:
    sent = meaning(cluster_id)
    assert meant_cluster(sent, 0, len(sent), 5) == b""


@given(st.binary(max_size=200))
def test_cluster_of_any_bytes_is_short(sent: bytes) -> None:
    assert len(meant_cluster(sent, 0, len(sent), 5)) <= 64


@given(st.binary(max_size=200), st.integers(3, 5))
def test_software_of_any_bytes_is_short_and_plain(sent: bytes, version: int) -> None:
    found = software(sent, 0, len(sent), version)
    assert len(found) <= 129
    assert found.isascii()
    assert found.replace(" ", "").isprintable()
