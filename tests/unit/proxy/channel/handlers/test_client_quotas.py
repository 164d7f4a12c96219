"""The quota API on a channel: asked of the shell, the response in its turn, and nothing taken meanwhile."""

from typing import Any

import pytest

from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from proxy.channel import Question
from proxy.channel.errors import REQUEST_BYTES_MAX
from tests.support.frames import frame, request
from tests.support.playbook import Drop, Ends, Insert, More, Pass, Playbook, Wait, playbook

RESPONSE = frame(b"\0\0\0\2the answer")
DESCRIBE = request(DESCRIBE_CLIENT_QUOTAS, 1, b"fields", correlation_id=2)
PLAIN = request(2, 7, size=40, correlation_id=1)
LATER = request(2, 7, size=40, correlation_id=3)
FULL = Wait(0, held=False)
HEADER = request(DESCRIBE_CLIENT_QUOTAS, 0)
MOST = REQUEST_BYTES_MAX[ALTER_CLIENT_QUOTAS]


def talking(user: str = "ANONYMOUS", **told: Any) -> Playbook:
    return playbook(serves_quota_api=True, user=user, **told)


def asked(user: str = "ANONYMOUS", **told: Any) -> Playbook:
    """A dialogue in which the shell has a question to respond to."""
    talk = talking(user, **told)
    talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    return talk


def question(talk: Playbook) -> Question:
    found = talk.channel.requests.take_signal()
    assert found is not None
    assert talk.channel.requests.take_signal() is None
    return found


def test_request_is_given_to_the_shell_whole() -> None:
    found = question(asked("ann"))
    assert found == Question(DESCRIBE_CLIENT_QUOTAS, 1, 2, DESCRIBE, len(DESCRIBE) - 6, "ann", trusted=False)
    assert found.frame[found.body_at :] == b"fields"


def test_requests_before_the_login_end_the_connection() -> None:
    assert question(asked("ann", sasl=True)).user == "ann"
    talk = talking("ANONYMOUS", sasl=True)
    talk.client(0, DESCRIBE, Ends("unauthenticated"))  # brokers close on what comes before SASL
    assert talk.channel.requests.take_signal() is None


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("key", [DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS])
def test_both_apis_and_versions_get_responses_here(key: int, version: int) -> None:
    talk = talking()
    asked = request(key, version, b"x")
    talk.client(0, asked, Drop(len(asked)), FULL)
    assert question(talk)[:2] == (key, version)
    assert talk.stats.requests[key] == 1


def test_response_is_given_and_requests_are_taken_again() -> None:
    talk = asked()
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


@pytest.mark.parametrize("first_made", [True, False])
def test_responses_that_were_owed_before_come_first(first_made: bool) -> None:
    talk = talking()
    talk.client(0, PLAIN + DESCRIBE, Pass(PLAIN), Drop(len(DESCRIBE)), FULL)
    first = frame(b"\0\0\0\1first")
    if first_made:
        talk.channel.responded(RESPONSE)
        assert not talk.local_response_due
        talk.broker(1, first, Pass(first), Insert(RESPONSE))
    else:
        talk.responds(1, first)
        talk.broker(2, b"")
        talk.channel.responded(RESPONSE)
        talk.broker(3, b"", Insert(RESPONSE))


@pytest.mark.parametrize("correlation_id", [2, 9])
def test_broker_that_responds_instead_breaks_the_protocol(correlation_id: int) -> None:
    talk = asked()
    talk.broker(1, frame(bytes((0, 0, 0, correlation_id)) + b"none"), Ends("broker_out_of_order"))


def test_channel_that_is_to_end_gives_the_response_first() -> None:
    talk = asked()
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


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (request(DESCRIBE_CLIENT_QUOTAS, 2), "unsupported_version"),
        (request(DESCRIBE_CLIENT_QUOTAS, -1), "unsupported_version"),
        (request(ALTER_CLIENT_QUOTAS, 0, size=MOST + 1)[:100], "frame_length"),
        (HEADER[:7] + b"\1" + HEADER[8:], "malformed"),  # it ends in its header
    ],
)
def test_request_that_cannot_be_ends_the_connection(sent: bytes, cause: str) -> None:
    talking(frame_bytes_max=2 * MOST).client(0, sent, Ends(cause))


@pytest.mark.parametrize(("user", "trusted"), [("ANONYMOUS", True), ("ann", False), ("", False)])
def test_only_unauthenticated_clients_are_trusted_on_loopback(user: str, trusted: bool) -> None:
    talk = talking(user, trusted=True)
    talk.client(0, DESCRIBE, Drop(len(DESCRIBE)), FULL)
    assert question(talk).trusted == trusted
