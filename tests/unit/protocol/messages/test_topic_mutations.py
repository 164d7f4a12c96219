"""Topic mutations that are refused, and how results are matched (KIP-599); tests/property reads and writes the rest."""

import pytest

from protocol.api import DELETE_TOPICS
from protocol.errors import MalformedFieldError, OversizedError, UnknownVersionError
from protocol.messages.topic_mutations import (
    NO_TOPIC_ID,
    TOPICS_MAX,
    TopicMutation,
    match_results,
    merged_response,
    read_request,
    read_response,
    rejected_entry,
)
from tests.unit.protocol.hex_frames import hex_framed


def asked(fields: str) -> bytes:
    """DeleteTopics 0, whose header ends at byte 14: length, key, version, correlation id 9, no client id."""
    return hex_framed("0014 0000 00000009 ffff", fields)


@pytest.mark.parametrize(
    ("fields", "version", "error", "match"),
    [
        ("00000001 ffff 00007530", 0, MalformedFieldError, "has no name"),
        (f"{TOPICS_MAX + 1:08x}", 0, OversizedError, "10001 topics"),  # before they are read
        ("", -1, UnknownVersionError, None),
        ("", 8, UnknownVersionError, None),
    ],
)
def test_request_that_cannot_be_is_refused(
    fields: str, version: int, error: type[Exception], match: str | None
) -> None:
    with pytest.raises(error, match=match):
        read_request(asked(fields), 14, DELETE_TOPICS, version)


def topic(name: str | None, topic_id: bytes = NO_TOPIC_ID) -> TopicMutation:
    return TopicMutation(name, topic_id, 1, 0, 0)


# DeleteTopics 1: correlation id 9, throttle time 5, "b" deleted, "a" not known.
DELETED_1 = hex_framed("00000009 00000005 00000002 0001 62 0000 0001 61 0003")


def test_entries_are_put_into_the_requests_order() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    became = match_results(found, [topic("a"), topic("b")])
    merged = merged_response(DELETED_1, found, became, compact=False)
    assert merged == hex_framed("00000009 00000005 00000002 0001 61 0003 0001 62 0000")


def test_unrequested_topic_comes_last_and_is_not_lost() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    made = rejected_entry(topic("x"), DELETE_TOPICS, 1)
    merged = merged_response(DELETED_1, found, [made, None], compact=False)
    assert merged == hex_framed("00000009 00000005 00000003 0001 78 0059 0001 62 0000 0001 61 0003")


def test_topic_named_twice_gets_one_hex_framed() -> None:
    found = read_response(DELETED_1, DELETE_TOPICS, 1)
    became = match_results(found, [topic("a"), topic("a"), topic("c")])
    assert [None if entry is None else entry.name for entry in became] == ["a", None, None]


def test_topic_is_found_by_its_id_though_the_broker_names_it() -> None:
    topic_id = b"\x11" * 16
    frame = hex_framed(f"00000009 00 00000000 02 02 61 {topic_id.hex()} 0000 00 00 00")
    (became,) = match_results(read_response(frame, DELETE_TOPICS, 6), [topic(None, topic_id)])
    assert became is not None
    assert (became.name, became.topic_id) == ("a", topic_id)
