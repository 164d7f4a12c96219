"""The walk through share responses by their bytes; `tests/oracle` has Kafka's own classes judge it."""

import pytest

from protocol.api import FETCH, SHARE_ACKNOWLEDGE, SHARE_FETCH
from protocol.errors import UnknownVersionError
from protocol.walks.share import ShareWalk
from tests.unit.protocol.hex_frames import hex_framed
from tests.unit.protocol.relay import relay

UUID = "000102030405060708090a0b0c0d0e0f"
# Correlation id, tags; throttle time, no error, no message.
HEAD = "00000009 00 00000000 0000 00"
LOCK_TIMEOUT = "00007530"
# Index, no error, no message; for a fetch the acknowledgement's; the leader's id and epoch, tags.
ACKNOWLEDGED = "00000003 0000 00 00000001 00000005 00"
FETCHED = "00000003 0000 00 0000 00 00000001 00000005 00"
# Five bytes of records; two acquired ranges, the second with a tag.
RECORDS = "06 7272727272"
ACQUIRED = "03 0000000000000001 0000000000000002 0001 00 0000000000000003 0000000000000004 0001 01 09 01 aa"
# Broker 1, "10.0.0.11":9092, rack "r".
BROKER = "00000001 0a 31302e302e302e3131 00002384 02 72 00"
MOVED = "00000001 0a 3132372e302e302e31 00004a9d 02 72 00"


def ours(node_id: int, _host: str, _port: int) -> tuple[str, int] | None:
    return ("127.0.0.1", 19100 + node_id)


def share_fetch(brokers: str) -> bytes:
    topic = "02" + UUID + "02" + FETCHED + RECORDS + ACQUIRED + "00" + "00"
    return hex_framed(HEAD, LOCK_TIMEOUT, topic, brokers, "00")


def share_acknowledge(version: int, brokers: str) -> bytes:
    topic = "02" + UUID + "03" + ACKNOWLEDGED + "00" + ACKNOWLEDGED + "00" + "00"
    return hex_framed(HEAD, LOCK_TIMEOUT if version >= 2 else "", topic, brokers, "00")


@pytest.mark.parametrize("pieces", [[], [1] * 300, [7] * 60])
@pytest.mark.parametrize("version", [1, 2])
def test_addresses_are_replaced(version: int, pieces: list[int]) -> None:
    frame = share_fetch("02" + BROKER)
    walk = ShareWalk(SHARE_FETCH, version, len(frame) - 4)
    assert relay(walk, frame, pieces, ours) == share_fetch("02" + MOVED)
    frame = share_acknowledge(version, "02" + BROKER)
    walk = ShareWalk(SHARE_ACKNOWLEDGE, version, len(frame) - 4)
    assert relay(walk, frame, pieces, ours) == share_acknowledge(version, "02" + MOVED)


def test_response_without_addresses_passes() -> None:
    frame = share_fetch("01")
    assert relay(ShareWalk(SHARE_FETCH, 2, len(frame) - 4), frame, [3] * 50, ours) == frame


def test_response_with_an_error_and_no_topics_passes() -> None:
    frame = hex_framed("00000009 00 00000000 001d 03 6e6f", LOCK_TIMEOUT, "01 01 00")
    assert relay(ShareWalk(SHARE_FETCH, 1, len(frame) - 4), frame, [], ours) == frame


def test_shorter_address_is_filled_up_behind_the_array() -> None:
    def short(_node_id: int, _host: str, _port: int) -> tuple[str, int]:
        return ("a", 1)

    # Eight bytes shorter: one field, tag 127, six zeros.
    frame = share_fetch("02" + BROKER)
    sent = relay(ShareWalk(SHARE_FETCH, 1, len(frame) - 4), frame, [], short)
    assert sent.endswith(bytes.fromhex("02 00000001 02 61 00000001 02 72 00" + "01 7f 06 000000000000"))
    assert len(sent) == len(frame)


def test_records_that_have_not_come_are_unseen() -> None:
    records = "b1a801" + "72" * 21552  # 21552 + 1 as a varint
    topic = "02" + UUID + "02" + FETCHED + records + "01" + "00" + "00"
    frame = hex_framed(HEAD, LOCK_TIMEOUT, topic, "01 00")
    walk = ShareWalk(SHARE_FETCH, 1, len(frame) - 4)
    assert walk.feed(bytearray(frame[:100]), 0, 100, ours) == 100
    # Behind the records: nothing acquired, three empty tag sections, no endpoints.
    assert walk.passthrough == len(frame) - 100 - 5


@pytest.mark.parametrize(("api_key", "version"), [(SHARE_FETCH, 0), (SHARE_FETCH, 3), (FETCH, 1)])
def test_unknown_layout_is_refused(api_key: int, version: int) -> None:
    with pytest.raises(UnknownVersionError):
        ShareWalk(api_key, version, 100)
