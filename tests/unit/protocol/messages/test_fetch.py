"""Fetch requests and empty responses by their bytes."""

import pytest

from protocol.errors import MalformedFieldError, TruncatedError, UnknownVersionError
from protocol.messages import fetch
from protocol.messages.replica_session import read_follower

# Version 11: replica, wait, min, max, isolation, session, epoch; one topic "t" with partitions 3 and 4; nothing
# forgotten; rack "r".
SCALARS_11 = "ffffffff 000001f4 00000001 00000400 01 00000005 00000009"
ENTRY_3 = "00000003 ffffffff 000000000000000a ffffffffffffffff 00000064"
ENTRY_4 = "00000004 ffffffff 000000000000000b ffffffffffffffff 00000064"
HEADER_11 = "00000000 0001 000b 00000009 0001 63"
REQUEST_11 = bytes.fromhex(
    HEADER_11 + SCALARS_11 + "00000001 0001 74 00000002" + ENTRY_3 + ENTRY_4 + "00000000" + "0001 72"
)
BODY_11 = 15


# Version 15 and later: wait, min, max, isolation, session, epoch; no topics; nothing forgotten; no rack.
PLAIN_15 = "000001f4 00000001 00000400 00 00000000 ffffffff 01 01 01"
REPLICA_STATE = "01 0d 00000007 000000000000002a 00"


def test_follower_names_itself_in_a_tag_since_15() -> None:
    follower = bytes.fromhex(PLAIN_15 + "01" + REPLICA_STATE)
    fields = fetch.read_request(follower, 0, len(follower), 15)
    assert fields is not None
    assert fields.replica_id == -1  # its scalars alone do not tell
    assert (fields.max_bytes_at, fields.session_epoch_at) == (8, 17)
    assert fetch.replica_id(follower, 0, 15) == 7
    assert fetch.replica_id(follower[:-1], 0, 15) == -1
    read_id, read = read_follower(follower, 0, 15, full=True)
    assert (read_id, read) == (7, follower)


def test_follower_with_a_cluster_id_is_seen() -> None:
    follower = bytes.fromhex(PLAIN_15 + "02" + "00 03 02 6363" + REPLICA_STATE)
    assert fetch.replica_id(follower, 0, 18) == 7


def test_consumer_has_no_replica_id_since_15() -> None:
    consumer = bytes.fromhex(PLAIN_15 + "00")
    assert fetch.replica_id(consumer, 0, 17) == -1


@pytest.mark.parametrize("version", [-1, 19])
def test_empty_response_of_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersionError):
        fetch.empty_response(version, 1, 0, 0)


def test_request_is_written_with_another_epoch_and_other_partitions() -> None:
    entry = bytes.fromhex(ENTRY_4)
    written = fetch.encode_request(
        REQUEST_11, BODY_11, 11, 6, {(b"u", 4): entry}, [(b"t", 3), (b"t", 1), (b"v", 0)]
    )
    body = (
        HEADER_11[9:]
        + SCALARS_11[:-8]
        + "00000006"
        + "00000001 0001 75 00000001"
        + ENTRY_4
        # Two topics forgotten, the first with two partitions.
        + "00000002 0001 74 00000002 00000003 00000001 0001 76 00000001 00000000"
        + "0001 72"
    )
    raw = bytes.fromhex(body)
    assert written == len(raw).to_bytes(4, "big") + raw


def test_adjacent_partitions_of_a_topic_share_an_entry_in_order() -> None:
    entries = {(b"t", 3): b"3", (b"u", 0): b"0", (b"t", 4): b"4"}
    written = fetch.encode_request(REQUEST_11, BODY_11, 11, 6, entries, [])
    topics = "00000003 0001 74 00000001 33 0001 75 00000001 30 0001 74 00000001 34"
    assert bytes.fromhex(topics) in written


def test_topic_without_a_name_is_malformed() -> None:
    request = bytes.fromhex(HEADER_11 + SCALARS_11 + "00000001 ffff")
    with pytest.raises(MalformedFieldError):
        fetch.full_topics(request, BODY_11, 11)


def test_request_that_ends_early_is_truncated() -> None:
    with pytest.raises(TruncatedError):
        fetch.full_topics(REQUEST_11[:-7], BODY_11, 11)
