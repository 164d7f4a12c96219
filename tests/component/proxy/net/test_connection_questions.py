"""A connection that answers quota requests: later, in order, once, and not after its end."""

from collections.abc import Callable

import pytest

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, DESCRIBE_CLIENT_QUOTAS
from protocol.errors import TruncatedError
from proxy.channel import Forward, OngoingMoves, PeerError
from tests.component.proxy.net.rig import Clerk, End, Rig, until
from tests.support.frames import LIST_OFFSETS, frame, request, some_response

ASKED = request(DESCRIBE_CLIENT_QUOTAS, 1, b"fields", correlation_id=7)
RESPONSE = frame(b"\0\0\0\7later")
PLAIN = request(LIST_OFFSETS, 7, size=100, correlation_id=1)
PLAIN_RESPONSE = some_response(50)


async def asking(rig: Rig, asked: bytes = ASKED, moves: OngoingMoves | None = None) -> tuple[End, Clerk]:
    """A client whose quota requests get responses from a clerk, which has the first."""
    clerk = Clerk()
    rig.shared.ask = clerk.ask
    client = rig.connect(serves_quota_api=True, reassignments=moves)
    await client.send(asked)
    if not asked.startswith(PLAIN):
        await clerk.asked()
    return client, clerk


async def test_response_comes_without_a_broker(rig: Rig) -> None:
    client, clerk = await asking(rig)
    (question,) = clerk.questions
    assert (question.frame, question.peer, question.address) == (ASKED, rig.connection.peer, "192.0.2.1")
    clerk.give[0](RESPONSE)
    assert await client.receive(len(RESPONSE)) == RESPONSE
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert not clerk.withdrawn, "it is finished"


async def test_requests_behind_wait_for_the_response(rig: Rig) -> None:
    client, clerk = await asking(rig, ASKED + ASKED + PLAIN)
    clerk.give[0](RESPONSE)
    await clerk.asked(2)
    clerk.give[1](RESPONSE)
    assert await client.receive(2 * len(RESPONSE)) == RESPONSE * 2
    broker = await rig.accept()
    assert await broker.receive(len(PLAIN)) == PLAIN
    await broker.send(PLAIN_RESPONSE)
    assert await client.receive(len(PLAIN_RESPONSE)) == PLAIN_RESPONSE


async def test_response_waits_for_the_brokers_before_it(rig: Rig) -> None:
    client, clerk = await asking(rig, PLAIN + ASKED)
    broker = await rig.accept()
    assert await broker.receive(len(PLAIN)) == PLAIN
    await clerk.asked()
    clerk.give[0](RESPONSE)
    await broker.send(PLAIN_RESPONSE)
    assert await client.receive(len(PLAIN_RESPONSE + RESPONSE)) == PLAIN_RESPONSE + RESPONSE


async def test_large_response_arrives_whole(rig: Rig) -> None:
    client, clerk = await asking(rig, ASKED + PLAIN)
    large = frame(b"\0\0\0\7" + bytes(8_000_000))
    clerk.give[0](bytearray(large))
    assert await client.receive(len(large)) == large
    assert await (await rig.accept()).receive(len(PLAIN)) == PLAIN


@pytest.mark.parametrize("behind", [b"", ASKED + PLAIN], ids=["nothing", "two requests"])
@pytest.mark.parametrize("end", [End.close, End.reset])
async def test_question_of_a_closed_connection_is_withdrawn_and_its_response_dropped(
    rig: Rig, behind: bytes, end: Callable[[End], None]
) -> None:
    client, clerk = await asking(rig, ASKED + behind)
    end(client)
    await until(lambda: not rig.connections, "the connection has ended")
    assert clerk.withdrawn == clerk.questions
    clerk.give[0](RESPONSE)
    assert not rig.stats.errors


@pytest.mark.parametrize(
    ("error", "cause"),
    [(TruncatedError("cut"), "malformed"), (PeerError("quota_requests_max", "full"), "quota_requests_max")],
    ids=["malformed", "too many"],
)
async def test_refused_question_ends_the_connection(rig: Rig, error: Exception, cause: str) -> None:
    client, clerk = await asking(rig)
    clerk.give[0](error)
    assert await client.rest() == b""
    assert rig.stats.errors == {cause: 1}


async def test_draining_connection_gives_its_response_first(rig: Rig) -> None:
    client, clerk = await asking(rig)
    assert not rig.connection.drain(0)
    clerk.give[0](RESPONSE)
    rig.connection.drain(0)
    assert await client.rest() == RESPONSE


async def test_request_is_forwarded_to_the_broker_first_if_asked_for(rig: Rig) -> None:
    wanted = request(ALTER_PARTITION_REASSIGNMENTS, 1, b"what is wanted", correlation_id=7)
    sent = request(ALTER_PARTITION_REASSIGNMENTS, 1, b"the first step", correlation_id=7)
    client, clerk = await asking(rig, wanted + PLAIN, OngoingMoves())
    clerk.give[0](Forward(ALTER_PARTITION_REASSIGNMENTS, sent, "plan"))
    broker = await rig.accept()
    assert await broker.receive(len(sent)) == sent
    said = frame(b"\0\0\0\7\0what the broker says")
    await broker.send(said)
    await clerk.asked(2)
    assert (clerk.questions[1].frame, clerk.questions[1].plan) == (said, "plan")
    clerk.give[1](RESPONSE)
    assert await client.receive(len(RESPONSE)) == RESPONSE
    assert await broker.receive(len(PLAIN)) == PLAIN
