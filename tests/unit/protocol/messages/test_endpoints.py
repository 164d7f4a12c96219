"""Arrays of endpoints in tag sections, by their bytes."""

import pytest

from protocol.errors import MalformedFieldError, TruncatedError
from protocol.messages import addresses
from protocol.primitives import uvarint_bytes

# One broker: id 1, host "ab", port 9, rack "r", no tags.
BROKER = "00000001 03 6162 00000009 02 72 00"
ARRAY = bytes.fromhex("02" + BROKER)


def ours(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    assert (node_id, host, port) == (1, "ab", 9)
    return ("cd", 8)


def no_address(_node_id: int, _host: str, _port: int) -> None:
    return None


def test_endpoints_are_read_with_their_new_addresses() -> None:
    entries, pos = addresses.read_endpoints(ARRAY, 0, len(ARRAY), ours)
    assert entries == [addresses.Endpoint(1, "cd", 8, b"\x02r", b"\x00")]
    assert pos == len(ARRAY)
    assert addresses.endpoints_bytes(entries) == bytes.fromhex("02 00000001 03 6364 00000008 02 72 00")
    assert addresses.endpoints_bytes(entries, racks=False) == bytes.fromhex(
        "02 00000001 03 6364 00000008 00 00"
    )
    for end in range(len(ARRAY)):
        with pytest.raises(TruncatedError):
            addresses.read_endpoints(ARRAY, 0, end, ours)


def test_other_tags_and_the_bytes_behind_them_are_unchanged() -> None:
    # Tag 0 is the array, tag 5 is unknown; two bytes behind the section.
    section = bytes.fromhex("02 00 0f") + ARRAY + bytes.fromhex("05 01 aa" + "eeee")
    rewritten = addresses.rewrite_tags(section, 0, len(section), ours)
    assert rewritten == bytes.fromhex("02 00 0f 02 00000001 03 6364 00000008 02 72 00" + "05 01 aa" + "eeee")
    assert addresses.fit_tags(section, 0, len(section), ours) == rewritten


def test_endpoints_without_brokers_are_left_out() -> None:
    section = bytes.fromhex("02 00 0f") + ARRAY + bytes.fromhex("05 01 aa")
    assert addresses.rewrite_tags(section, 0, len(section), no_address) == bytes.fromhex("01 05 01 aa")


def test_tags_without_endpoints_are_unchanged() -> None:
    section = bytes.fromhex("01 05 01 aa")
    assert addresses.rewrite_tags(section, 0, len(section), no_address) is None
    assert addresses.fit_tags(section, 0, len(section), no_address) is None


def test_shorter_array_before_the_tags_is_padded_by_a_tag() -> None:
    tail = ARRAY + b"\x00"
    # No broker is named: the array is empty, and 14 bytes are padding: one field, tag 127, 12 zeros.
    assert addresses.fit_array(tail, 0, len(tail), no_address) == bytes.fromhex("01 01 7f 0c") + bytes(12)
    assert addresses.fit_array(b"\x01\x00", 0, 2, no_address) is None


@pytest.mark.parametrize("size", [*range(120, 140), 16380, 16385, 16390, 16400])
def test_padding_gives_the_old_length_for_every_host_length(size: int) -> None:
    host = b"h" * size
    array = b"\x02" + bytes(4) + uvarint_bytes(size + 1) + host + bytes(6)
    section = b"\x01\x00" + uvarint_bytes(len(array)) + array
    fitted = addresses.fit_tags(section, 0, len(section), lambda *_: ("x", 1))
    assert fitted is not None
    assert len(fitted) == len(section)


def test_too_many_tags_are_malformed() -> None:
    section = b"\x7f" + b"\x05\x00" * 127
    with pytest.raises(MalformedFieldError):
        addresses.rewrite_tags(section, 0, len(section), no_address)


def _asked_of_nobody(_node_id: int, _host: str, _port: int) -> None:
    raise AssertionError("more endpoints than are rewritten are not looked at")


@pytest.mark.parametrize("count", [addresses.FITTED_MAX, addresses.FITTED_MAX + 1])
def test_more_endpoints_than_are_rewritten_are_left_out(count: int) -> None:
    array = uvarint_bytes(count + 1) + bytes.fromhex(BROKER) * count
    section = b"\x02\x00" + uvarint_bytes(len(array)) + array + bytes.fromhex("05 01 aa")
    tail = array + bytes.fromhex("01 05 01 aa")
    few = count <= addresses.FITTED_MAX
    address_map = ours if few else _asked_of_nobody
    fitted = addresses.fit_tags(section, 0, len(section), address_map)
    shared = addresses.fit_array(tail, 0, len(tail), address_map)
    assert fitted is not None
    assert shared is not None
    assert (len(fitted), len(shared)) == (len(section), len(tail))
    if few:
        assert (fitted.count(b"cd"), shared.count(b"cd")) == (count, count)
    else:
        assert fitted[:4] == bytes.fromhex("02 05 01 aa")
        assert shared[:5] == bytes.fromhex("01 02 05 01 aa")
