"""Primitive types at their edges: the last byte, null, and lengths that cannot be."""

from collections.abc import Callable

import pytest

from protocol import primitives
from protocol.errors import MalformedFieldError, OversizedError, TruncatedError
from protocol.primitives import PORTION, clear, drain, for_each
from tests.support.portions import counted


def plain(read: Callable[[bytes, int, int, bool], object]) -> Callable[[bytes, int, int], object]:
    """The reader of a field in versions that are not flexible."""
    return lambda buf, pos, end: read(buf, pos, end, False)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("8001", 128),
        ("ac02", 300),
        ("8500", 5),  # longer than it need be, which Kafka's reader takes
        ("ffffffff0f", 2**32 - 1),
    ],
)
def test_uvarint_is_read(raw: str, value: int) -> None:
    buf = bytes.fromhex(raw)
    assert primitives.uvarint(buf, 0, len(buf)) == (value, len(buf))


@pytest.mark.parametrize(
    ("read", "raw", "error"),
    [
        *((primitives.uvarint, raw, TruncatedError) for raw in ("", "80", "ffff")),
        *(
            (primitives.uvarint, raw, MalformedFieldError) for raw in ("ffffffff1f", "808080808001")
        ),  # over 32 bits
        (plain(primitives.string), "0001ff", MalformedFieldError),  # no UTF-8
        (plain(primitives.count), "fffffffe", MalformedFieldError),  # below null
        (plain(primitives.skip_bytes), "000000036162", TruncatedError),
        (primitives.int16, "ff", TruncatedError),
        (primitives.int32, "fffeff", TruncatedError),
    ],
)
def test_field_that_cannot_be_is_refused(
    read: Callable[[bytes, int, int], object], raw: str, error: type[Exception]
) -> None:
    buf = bytes.fromhex(raw)
    with pytest.raises(error):
        read(buf, 0, len(buf))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1])
def test_uvarint_is_read_as_it_was_written(value: int) -> None:
    raw = primitives.uvarint_bytes(value)
    assert primitives.uvarint(raw, 0, len(raw)) == (value, len(raw))


@pytest.mark.parametrize(
    ("raw", "flexible", "text"),
    [
        ("00026869", False, "hi"),
        ("0000", False, ""),
        ("ffff", False, None),
        ("036869", True, "hi"),
        ("01", True, ""),
        ("00", True, None),
    ],
)
def test_string_has_two_forms(raw: str, flexible: bool, text: str | None) -> None:
    buf = bytes.fromhex(raw)
    assert primitives.string(buf, 0, len(buf), flexible) == (text, len(buf))
    assert primitives.skip_string(buf, 0, len(buf), flexible) == len(buf)
    assert primitives.string_bytes(text, flexible) == buf
    with pytest.raises(TruncatedError):
        primitives.string(buf, 0, len(buf) - 1, flexible)


@pytest.mark.parametrize(("raw", "flexible"), [("fffe", False), ("818002", True)])
def test_string_of_a_length_that_cannot_be_is_malformed(raw: str, flexible: bool) -> None:
    buf = bytes.fromhex(raw) + bytes(100_000)
    with pytest.raises(MalformedFieldError):
        primitives.string(buf, 0, len(buf), flexible)


def test_count_reads_both_forms_of_null() -> None:
    assert primitives.count(b"\xff\xff\xff\xff", 0, 4, False) == (-1, 4)
    assert primitives.count(b"\x00", 0, 1, True) == (-1, 1)
    assert primitives.count_bytes(-1, False) == b"\xff\xff\xff\xff"
    assert primitives.count_bytes(-1, True) == b"\x00"


def test_numbers_have_a_sign() -> None:
    buf = b"\xff\xfe\xff\xff"
    assert (primitives.int16(buf, 0, 2), primitives.int32(buf, 0, 4)) == (-2, -65537)


def test_array_of_more_elements_than_bytes_is_truncated() -> None:
    assert primitives.count(b"\x04abc", 0, 4, True) == (3, 1)
    with pytest.raises(TruncatedError):
        primitives.count(b"\x05abc", 0, 4, True)
    assert primitives.streamed_count(b"\x05abc", 0, 4, True) == (4, 1)


def test_more_elements_or_tagged_fields_than_kafka_takes_are_refused() -> None:
    size = primitives.ELEMENTS_MAX
    assert primitives.streamed_count(size.to_bytes(4, "big"), 0, 4, False) == (size, 4)
    with pytest.raises(OversizedError, match=r"1000001 elements .* at most 1000000"):
        primitives.streamed_count((size + 1).to_bytes(4, "big"), 0, 4, False)
    most = primitives.uvarint_bytes(primitives.TAGS_MAX) + bytes(2 * primitives.TAGS_MAX)
    assert primitives.skip_tags(most, 0, len(most)) == len(most)
    more = primitives.uvarint_bytes(primitives.TAGS_MAX + 1)
    with pytest.raises(OversizedError, match=r"10001 tagged fields .* at most 10000"):
        primitives.skip_tags(more, 0, len(more))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300])
def test_tagged_fields_of_every_width_are_passed(size: int) -> None:
    field = b"\x01" + primitives.uvarint_bytes(size) + bytes(size)
    buf = b"\x03" + field + b"\x81\x01\x00" + field + b"rest"
    assert primitives.skip_tags(buf, 0, len(buf)) == len(buf) - 4
    for end in range(len(buf) - 4):
        with pytest.raises(TruncatedError):
            primitives.skip_tags(buf, 0, end)


@pytest.mark.parametrize(
    ("count", "turns"), [(0, 1), (1, 1), (PORTION - 1, 1), (PORTION, 2), (3 * PORTION + 1, 4)]
)
def test_full_portions_take_a_turn_each(count: int, turns: int) -> None:
    done: list[int] = []
    assert counted(for_each(range(count), done.extend)) == (None, turns)
    assert done == list(range(count))

    items = dict.fromkeys(range(count))
    popped: list[tuple[int, None]] = []
    assert counted(drain(items, popped.extend)) == (None, turns)
    assert popped == [(index, None) for index in reversed(range(count))]
    assert items == {}


@pytest.mark.parametrize("make", [list, dict.fromkeys])
def test_collection_is_emptied_in_portions(make: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitives, "PORTION", 3)
    items = make(range(7))
    left = [len(items) for _ in clear(items)]
    assert left == [4, 1]
    assert not items
