"""The quota API on a channel: asked of the shell, the response in its turn, and nothing taken meanwhile."""

import pytest

from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from proxy.channel import Question
from proxy.channel.errors import REQUEST_BYTES_MAX
from tests.support.frames import frame, request
from tests.support.playbook import FRAME_BYTES_MAX, Drop, Ends, Insert, More, Pass, Playbook, Wait, playbook

RESPONSE = frame(b"\0\0\0\2the answer")
DESCRIBE = request(DESCRIBE_CLIENT_QUOTAS, 1, b"fields", correlation_id=2)
PLAIN = request(2, 7, size=40, correlation_id=1)
LATER = request(2, 7, size=40, correlation_id=3)
FULL = Wait(0, held=False)


def talking(
    user: str = "ANONYMOUS",
    *,
    trusted: bool = False,
    sasl: bool = False,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> Playbook:
    return playbook(
        serves_quota_api=True, user=user, trusted=trusted, sasl=sasl, frame_bytes_max=frame_bytes_max
    )


def question(talk: Playbook) -> Question:
    found = talk.channel.requests.take_signal()
    assert found is not None
    assert talk.channel.requests.take_signal() is None
    return found


def test_request_is_given_to_the_shell_whole() -> None:
    talk = talking("ann")
    talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    asked = question(talk)
    assert asked == Question(DESCRIBE_CLIENT_QUOTAS, 1, 2, DESCRIBE, len(DESCRIBE) - 6, "ann", trusted=False)
    assert asked.frame[asked.body_at :] == b"fields"


@pytest.mark.parametrize(("user", "asked_here"), [("ANONYMOUS", False), ("ann", True)])
def test_requests_before_the_login_end_the_connection(user: str, asked_here: bool) -> None:
    talk = talking(user, sasl=True)
    if asked_here:
        talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    else:
        talk.client(0, DESCRIBE, Ends("unauthenticated"))  # brokers close on what comes before SASL
    assert (talk.channel.requests.take_signal() is not None) == asked_here


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("key", [DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS])
def test_both_apis_and_versions_get_responses_here(key: int, version: int) -> None:
    talk = talking()
    asked = request(key, version, b"x")
    talk.client(0, asked, Drop(len(asked)), FULL)
    assert question(talk)[:2] == (key, version)
    assert talk.stats.requests[key] == 1


def test_response_is_given_and_requests_are_taken_again() -> None:
    talk = talking()
    talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    talk.channel.responded(RESPONSE)
    assert talk.local_response_due
    talk.broker(1, b"", Insert(RESPONSE))
    assert talk.signalled  # the waiting direction is to go on
    assert talk.channel.idle()
    talk.asks(2, LATER)


def test_nothing_is_taken_before_the_response_is_there() -> None:
    talk = talking()
    talk.client(0, DESCRIBE + LATER, Drop(len(DESCRIBE)), FULL)
    talk.client(1, b"", FULL)
    talk.channel.responded(RESPONSE)
    talk.broker(2, b"", Insert(RESPONSE))
    talk.client(3, b"", Pass(LATER))


def test_responses_that_were_owed_before_come_first() -> None:
    talk = talking()
    talk.client(0, PLAIN + DESCRIBE, Pass(PLAIN), Drop(len(DESCRIBE)), FULL)
    talk.channel.responded(RESPONSE)
    assert not talk.local_response_due
    first = frame(b"\0\0\0\1first")
    talk.broker(1, first, Pass(first), Insert(RESPONSE))


def test_response_that_comes_first_waits_for_the_brokers() -> None:
    talk = talking()
    talk.client(0, PLAIN + DESCRIBE, Pass(PLAIN), Drop(len(DESCRIBE)), FULL)
    talk.responds(1, frame(b"\0\0\0\1first"))
    talk.broker(2, b"")
    talk.channel.responded(RESPONSE)
    talk.broker(3, b"", Insert(RESPONSE))


@pytest.mark.parametrize("correlation_id", [2, 9])
def test_broker_that_responds_instead_breaks_the_protocol(correlation_id: int) -> None:
    talk = talking()
    talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    talk.broker(1, frame(bytes((0, 0, 0, correlation_id)) + b"none"), Ends("broker_out_of_order"))


def test_channel_that_is_to_end_gives_the_response_first() -> None:
    talk = talking()
    talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    talk.channel.end_intake()
    assert not talk.channel.idle()
    talk.channel.responded(RESPONSE)
    talk.broker(1, b"", Insert(RESPONSE))
    assert talk.channel.idle()
    talk.client(2, LATER, FULL)


def test_where_the_brokers_quotas_hold_both_pass() -> None:
    talk = playbook()
    talk.asks(0, request(ALTER_CLIENT_QUOTAS, 1, b"fields"))
    assert talk.channel.requests.take_signal() is None


def test_request_is_kept_until_it_is_whole() -> None:
    talk = talking()
    talk.client(0, DESCRIBE[:-1], More(len(DESCRIBE)))
    assert talk.channel.requests.take_signal() is None
    talk.client(0, DESCRIBE[-1:], Drop(len(DESCRIBE)), FULL)


@pytest.mark.parametrize("version", [2, -1])
def test_unknown_version_ends_the_connection(version: int) -> None:
    talking().client(0, request(DESCRIBE_CLIENT_QUOTAS, version), Ends("unsupported_version"))


def test_request_too_large_to_be_kept_ends_the_connection() -> None:
    most = REQUEST_BYTES_MAX[ALTER_CLIENT_QUOTAS]
    talk = talking(frame_bytes_max=2 * most)
    asked = request(ALTER_CLIENT_QUOTAS, 0, size=most + 1)[:100]
    talk.client(0, asked, Ends("frame_length"))


def test_request_that_ends_in_its_header_ends_the_connection() -> None:
    asked = request(DESCRIBE_CLIENT_QUOTAS, 0)
    talking().client(0, asked[:7] + b"\1" + asked[8:], Ends("malformed"))


@pytest.mark.parametrize(("user", "trusted"), [("ANONYMOUS", True), ("ann", False), ("", False)])
def test_only_unauthenticated_clients_are_trusted_on_loopback(user: str, trusted: bool) -> None:
    talk = talking(user, trusted=True)
    talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    assert question(talk).trusted == trusted
