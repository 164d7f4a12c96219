"""Reassignments on a channel: asked of the shell, sent on in the caller's name, listed as asked for (KIP-435)."""

import pytest

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, API_VERSIONS, LIST_PARTITION_REASSIGNMENTS
from protocol.messages import reassignments
from protocol.messages.reassignments import AlterRequest, Ongoing, Reassignments, Stepping
from proxy.channel import Forward, OngoingMoves, Question, ShownMove
from tests.support.frames import frame, request
from tests.support.playbook import Drop, Ends, Insert, More, Pass, Playbook, Wait, playbook
from tests.unit.protocol.kafka_frames import RESPONSES, framed, struct

ASKED = AlterRequest(60_000, True, [(("t", 0), (3, 4))])
FIELDS = reassignments.request_body(ASKED, 1)
ALTER = request(ALTER_PARTITION_REASSIGNMENTS, 1, FIELDS, correlation_id=2)
SENT = request(ALTER_PARTITION_REASSIGNMENTS, 1, b"the first step", correlation_id=2)
SAID = frame(b"\0\0\0\2\0what the broker says")
RESPONSE = frame(b"\0\0\0\2\0what the caller is told")
PLAIN = request(2, 7, size=40, correlation_id=1)
LATER = request(2, 7, size=40, correlation_id=3)
FULL = Wait(0, held=False)
LIST = [
    request(LIST_PARTITION_REASSIGNMENTS, version, reassignments.EVERYTHING, correlation_id=5)
    for version in (0, 1)
]
MOVE = ShownMove(Ongoing((3, 4, 1, 2), (3, 4), (1, 2)), Stepping((1, 2), (3, 1)))
STEP = Ongoing((3, 1, 2), (3,), (2,))
FOREIGN = Ongoing((7, 8), (7,), (8,))


def talking(*keys: tuple[str, int], user: str = "bob", sasl: bool = False) -> Playbook:
    """A dialogue in a mode with batches, where moves of these partitions are under way."""
    shown = OngoingMoves()
    shown.moves = dict.fromkeys(keys, MOVE)
    return playbook(user=user, sasl=sasl, reassignments=shown)


def question(talk: Playbook) -> Question:
    found = talk.channel.requests.take_signal()
    assert found is not None
    return found


def asked(before: bytes = b"", after: bytes = b"") -> Playbook:
    """A dialogue in which the shell judges a request."""
    talk = talking()
    passed = (Pass(before),) if before else ()
    talk.client(0, before + ALTER + after, *passed, Drop(len(ALTER)), FULL)
    assert question(talk).frame == ALTER
    return talk


def forwarded(talk: Playbook, plan: object = None) -> Playbook:
    """The same, where the shell has the broker judge a request of its own."""
    talk.channel.responded(Forward(ALTER_PARTITION_REASSIGNMENTS, SENT, plan))
    talk.client(1, b"", Insert(SENT), FULL)
    return talk


def test_request_is_judged_by_the_shell_then_by_the_broker() -> None:
    talk = talking()
    talk.client(0, ALTER + LATER, Drop(len(ALTER)), FULL)
    key = ALTER_PARTITION_REASSIGNMENTS
    assert question(talk) == Question(key, 1, 2, ALTER, len(ALTER) - len(FIELDS), "bob", trusted=False)
    forwarded(talk, "plan")
    talk.broker(2, SAID[:-1], More(len(SAID)))
    assert talk.channel.requests.take_signal() is None
    talk.broker(2, SAID[-1:], Drop(len(SAID)))
    assert talk.signalled
    said = question(talk)
    assert (said.frame, said.plan, said.api_key, said.correlation_id) == (SAID, "plan", key, 2)
    talk.client(3, b"", FULL)
    talk.channel.responded(RESPONSE)
    talk.broker(4, b"", Insert(RESPONSE))
    talk.client(5, b"", Pass(LATER))


def test_responses_owed_before_come_before_the_brokers() -> None:
    talk = forwarded(asked(PLAIN))
    first = frame(b"\0\0\0\1first")
    talk.broker(2, first + SAID, Pass(first), Drop(len(SAID)))


def test_channel_that_is_to_end_asks_the_broker_first() -> None:
    talk = asked()
    talk.channel.end_intake()
    forwarded(talk)
    talk.broker(2, SAID, Drop(len(SAID)))
    question(talk)
    assert not talk.channel.idle()
    talk.channel.responded(RESPONSE)
    talk.broker(3, b"", Insert(RESPONSE))
    assert talk.channel.idle()


def test_response_without_a_broker_is_given_too() -> None:
    talk = asked()
    talk.channel.responded(RESPONSE)
    talk.broker(1, b"", Insert(RESPONSE))
    assert talk.channel.idle()


@pytest.mark.parametrize("asked", [ALTER, *LIST])
def test_with_mode_pass_everything_passes(asked: bytes) -> None:
    talk = playbook()
    talk.asks(0, asked)
    assert talk.channel.requests.take_signal() is None
    talk.responds(1, frame(asked[8:12] + b"\0 as it is"))


def test_requests_before_the_login_end_the_connection() -> None:
    talk = talking(user="ANONYMOUS", sasl=True)
    talk.client(0, ALTER, Ends("unauthenticated"))
    assert talk.channel.requests.take_signal() is None


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        *(
            (request(key, version), "unsupported_version")
            for key in (ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS)
            for version in (2, -1)
        ),
        (request(LIST_PARTITION_REASSIGNMENTS, 0, b"\0\0"), "malformed"),
    ],
)
def test_request_that_cannot_be_read_ends_the_connection(asked: bytes, cause: str) -> None:
    talking().client(0, asked, Ends(cause))


def listed(**ongoing: Ongoing) -> bytes:
    found = {(name, 0): one for name, one in ongoing.items()}
    return reassignments.write_list_response(Reassignments(0, 0, None, found), 5)


def test_list_shows_the_move_in_place_of_its_step() -> None:
    talk = talking(("t", 0), ("waits", 0))
    talk.asks(0, LIST[0])
    response = listed(foreign=FOREIGN, t=STEP)
    told = listed(foreign=FOREIGN, t=MOVE.ongoing, waits=MOVE.ongoing)
    talk.broker(1, response, Insert(told), Drop(len(response)))


def test_list_of_version_1_has_the_batch_behind() -> None:
    talk = talking(("t", 0))
    talk.client(0, LIST[1], Insert(LIST[0]), Drop(len(LIST[1])))
    response = listed(t=STEP)
    found = Reassignments(0, 0, None, {("t", 0): MOVE.ongoing})
    told = reassignments.write_list_response(found, 5, {("t", 0): Stepping((1, 2), (3, 1))})
    talk.broker(1, response, Insert(told), Drop(len(response)))


def test_list_shows_no_more_than_was_asked_for() -> None:
    talk = talking(("t", 0), ("t", 1), ("other", 0))
    topic = b"\2t\2" + (1).to_bytes(4, "big") + b"\0"
    talk.asks(0, request(LIST_PARTITION_REASSIGNMENTS, 0, bytes(4) + b"\2" + topic + b"\0", correlation_id=5))
    response = listed()
    told = reassignments.write_list_response(Reassignments(0, 0, None, {("t", 1): MOVE.ongoing}), 5)
    talk.broker(1, response, Insert(told), Drop(len(response)))


def test_list_without_moves_passes() -> None:
    talk = talking()
    talk.asks(0, LIST[0])
    talk.responds(1, listed(foreign=FOREIGN))


@pytest.mark.parametrize("version", [0, 1])
def test_client_without_the_right_to_list_gets_the_error_alone(version: int) -> None:
    talk = talking(("t", 0))
    refused = Reassignments(0, 31, "Cluster authorization failed.", {})
    response = reassignments.write_list_response(refused, 5)
    if version:
        talk.client(0, LIST[1], Insert(LIST[0]), Drop(len(LIST[1])))
        told = reassignments.write_list_response(refused, 5, {})
        talk.broker(1, response, Insert(told), Drop(len(response)))
    else:
        talk.asks(0, LIST[0])
        talk.responds(1, response)


@pytest.mark.parametrize("batches", [True, False])
def test_version_1_of_the_list_is_offered_where_there_are_batches(batches: bool) -> None:
    talk = talking() if batches else playbook()
    talk.asks(0, request(API_VERSIONS, 3, b"\1\1\0", correlation_id=7))
    responses = []
    for newest in (0, 1 if batches else 0):
        kind = RESPONSES[API_VERSIONS]
        entry = struct(
            kind, 3, "ApiVersion", api_key=LIST_PARTITION_REASSIGNMENTS, min_version=0, max_version=newest
        )
        responses.append(framed(kind(version=3, error_code=0, api_keys=[entry], throttle_time_ms=0)))
    talk.broker(1, responses[0], Insert(responses[1]), Drop(len(responses[0])))


def test_shell_may_ask_the_broker_more_than_once() -> None:
    talk = asked(after=LATER)
    for plan in ("may the caller?", "the first step"):
        forwarded(talk, plan)
        talk.broker(2, SAID, Drop(len(SAID)))
        assert question(talk).plan == plan
    talk.channel.responded(RESPONSE)
    talk.broker(3, b"", Insert(RESPONSE))
    talk.client(4, b"", Pass(LATER))
