"""The library that a channel notes of its client: what is kept, shared, and left out."""

import pytest

from proxy.channel.errors import PeerError
from proxy.channel.handlers.addresses import LIBRARIES_MAX, shared
from tests.support.frames import api_versions, frame
from tests.support.playbook import channel_machine

JAVA = ("apache-kafka-java", "4.4.0")
MIB = 1 << 20


def library(*requests: bytes) -> str:
    """Of a channel that has been sent these."""
    channel = channel_machine(frame_bytes_max=32 * MIB)
    for one in requests:
        channel.requests.receive(bytearray(one), 0, len(one), 0)
    return channel.library


def test_before_api_versions_there_is_none() -> None:
    assert channel_machine().library == ""


@pytest.mark.parametrize("version", [3, 4, 5])
def test_client_says_it(version: int) -> None:
    assert library(api_versions(version, software=JAVA)) == "apache-kafka-java 4.4.0"


def test_client_that_falls_back_to_version_0_has_said_it() -> None:
    assert library(api_versions(4, software=JAVA), api_versions(0)) == "apache-kafka-java 4.4.0"


def test_connections_of_one_library_share_one_string() -> None:
    assert library(api_versions(software=JAVA)) is library(api_versions(software=JAVA))


def test_shared_names_have_a_bound() -> None:
    for number in range(2 * LIBRARIES_MAX):
        assert shared(f"a client {number}") == f"a client {number}"
    info = shared.cache_info()
    assert info.currsize == info.maxsize == LIBRARIES_MAX


@pytest.mark.parametrize(
    "software",
    [
        ("<script>", "1"),
        ("a\x1b[2J", "1"),
        ("é", "1"),
        ("x" * 65, "1"),
        ("x" * 16 * MIB, "1"),
        ("x", "1" * 16 * MIB),
    ],
    ids=["markup", "escape", "not ascii", "too long", "16 MiB name", "16 MiB version"],
)
def test_what_brokers_refuse_is_not_shown_and_costs_nothing(software: tuple[str, str]) -> None:
    before = shared.cache_info().misses
    assert library(api_versions(software=software)) == ""
    assert shared.cache_info().misses == before


@pytest.mark.parametrize(
    "length", [b"\x0f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01"]
)
def test_name_that_is_longer_than_its_request_is_not_shown(length: bytes) -> None:
    front = api_versions(software=("x", "y"))[4 : -len(b"\2x\2y\0")]
    sent = frame(front + length + b"x\2y\0")
    assert library(sent + api_versions(0, correlation_id=2)) == ""
    assert library(sent, api_versions(software=JAVA, correlation_id=2)) == "apache-kafka-java 4.4.0"


def test_name_is_not_read_beyond_its_request() -> None:
    """What follows the request would complete it."""
    whole = api_versions(software=JAVA)
    cut = frame(whole[4:-4])
    channel = channel_machine()
    with pytest.raises(PeerError):  # the rest of it is no request
        channel.requests.receive(bytearray(cut + whole[-4:]), 0, len(whole), 0)
    assert channel.library == ""


def test_name_that_is_not_utf_8_is_not_shown() -> None:
    sent = api_versions(software=("xx", "y"))
    assert library(sent.replace(b"\3xx", b"\3\xff\xfe")) == ""
