"""How responses are matched to what is owed, and every way in which a broker can be wrong."""

import struct

import pytest

from protocol.api import DESCRIBE_CLIENT_QUOTAS
from proxy.channel.settings import RESPONSE_BYTES_MAX
from tests.support.frames import LIST_OFFSETS, fetch, frame, request, some_response
from tests.support.playbook import Drop, Ends, Insert, More, Pass, Passthrough, Playbook, Wait, playbook


def asked_two() -> Playbook:
    """A dialogue in which the responses 1 and 2 are owed."""
    talk = playbook()
    talk.asks(0, request(LIST_OFFSETS, 7, correlation_id=1) + request(LIST_OFFSETS, 7, correlation_id=2))
    return talk


def responded_second() -> Playbook:
    """A dialogue in which the broker owes response 1, and response 2 is made here."""
    talk = playbook(serves_quota_api=True)
    first, second = request(LIST_OFFSETS, 7, correlation_id=1), request(DESCRIBE_CLIENT_QUOTAS, 1)
    talk.asks(0, first)
    talk.client(0, second, Drop(len(second)), Wait(0))
    talk.channel.responded(b"made here")
    return talk


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        (some_response(correlation_id=2), "broker_out_of_order"),
        *(
            (struct.pack(">ii", length, 1), "broker_frame_length")
            for length in (-1, 0, 3, RESPONSE_BYTES_MAX + 1)
        ),
    ],
)
def test_response_that_cannot_be_ends_the_connection(response: bytes, cause: str) -> None:
    asked_two().broker(0, response, Ends(cause))
    none_owed = playbook()
    none_owed.broker(0, some_response()[:7], More(8))
    none_owed.broker(0, some_response()[7:], Ends("broker_out_of_order"))


def test_response_may_be_as_long_as_the_limit_and_its_rest_passes_unseen() -> None:
    most = struct.pack(">ii", RESPONSE_BYTES_MAX, 1)
    asked_two().broker(0, most, Pass(most), Passthrough(RESPONSE_BYTES_MAX - 4))


@pytest.mark.parametrize("cut", range(1, 8))
def test_cut_head_is_kept_until_it_is_whole(cut: int) -> None:
    talk = asked_two()
    response = some_response(50)
    talk.broker(0, response[:cut], More(8))
    talk.broker(0, response[cut:], Pass(response))


def test_channel_is_idle_when_every_response_is_given_whole() -> None:
    talk = asked_two()
    assert not talk.channel.idle()
    both = some_response(4, correlation_id=1) + some_response(100, correlation_id=2)  # the first has no body
    talk.broker(0, both[:-10], Pass(both[:-10]), Passthrough(10))
    assert not talk.channel.idle()
    talk.responds(0, both[-10:])
    assert talk.channel.idle()


def test_channel_with_a_half_passed_request_is_not_idle() -> None:
    talk = playbook()
    asked = request(LIST_OFFSETS, 7, size=100)
    talk.client(0, asked[:50], Pass(asked[:50]), Passthrough(54))
    assert not talk.channel.idle()


def test_bytes_behind_a_walked_response_pass_with_it() -> None:
    talk = playbook()
    talk.asks(0, fetch(18, correlation_id=1) + request(LIST_OFFSETS, 7, correlation_id=2))
    # No topic, no tag, and 20 bytes that no version has.
    response = frame(struct.pack(">ixihibx", 1, 0, 0, 0, 1) + bytes(20))
    talk.broker(0, response[:-15], Pass(response[:-15]), Passthrough(15))
    following = some_response(correlation_id=2)
    talk.responds(0, response[-15:] + following)


def test_local_response_does_not_split_a_brokers_response() -> None:
    talk = responded_second()
    assert not talk.local_response_due
    response = some_response(100, correlation_id=1)
    talk.broker(0, response[:50], Pass(response[:50]), Passthrough(54))
    assert not talk.local_response_due
    talk.broker(0, response[50:], Pass(response[50:]), Insert(b"made here"))
