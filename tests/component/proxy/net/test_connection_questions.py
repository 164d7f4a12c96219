"""A connection that answers quota requests: later, in order, once, and not after its end."""

from collections.abc import Callable

from protocol.api import ALTER_PARTITION_REASSIGNMENTS, DESCRIBE_CLIENT_QUOTAS
from protocol.errors import TruncatedError
from proxy.channel import Forward, OngoingMoves, PeerError, Question
from proxy.net import Connection
from tests.component.proxy.net.rig import End, Rig, until
from tests.support.frames import LIST_OFFSETS, frame, request, some_response

ASKED = request(DESCRIBE_CLIENT_QUOTAS, 1, b"fields", correlation_id=7)
RESPONSE = frame(b"\0\0\0\7later")
PLAIN = request(LIST_OFFSETS, 7, size=100, correlation_id=1)
PLAIN_RESPONSE = some_response(50)


class Clerk:
    """Takes questions; the test answers them when it likes."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.give: list[Callable[[bytes | bytearray | Forward | Exception], None]] = []
        self.withdrawn: list[Question] = []

    def ask(
        self, question: Question, response: Callable[[bytes | bytearray | Forward | Exception], None]
    ) -> Callable[[], None]:
        self.questions.append(question)
        self.give.append(response)
        return lambda: self.withdrawn.append(question)


def connected(rig: Rig, moves: OngoingMoves | None = None) -> tuple[End, Clerk]:
    """A client whose quota requests get responses from a clerk."""
    clerk = Clerk()
    rig.shared.ask = clerk.ask
    return rig.connect(serves_quota_api=True, reassignments=moves), clerk


async def asked(clerk: Clerk, count: int = 1) -> None:
    await until(lambda: len(clerk.questions) == count, "the clerk is asked")


async def test_response_comes_without_a_broker(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED)
    await asked(clerk)
    assert clerk.questions[0].frame == ASKED
    assert clerk.questions[0].peer == rig.connection.peer
    clerk.give[0](RESPONSE)
    assert await client.receive(len(RESPONSE)) == RESPONSE


async def test_requests_behind_wait_for_the_response(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED + ASKED + PLAIN)
    await asked(clerk)
    clerk.give[0](RESPONSE)
    await asked(clerk, 2)
    clerk.give[1](RESPONSE)
    assert await client.receive(2 * len(RESPONSE)) == RESPONSE * 2
    broker = await rig.accept()
    assert await broker.receive(len(PLAIN)) == PLAIN
    await broker.send(PLAIN_RESPONSE)
    assert await client.receive(len(PLAIN_RESPONSE)) == PLAIN_RESPONSE


async def test_response_waits_for_the_brokers_before_it(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(PLAIN + ASKED)
    broker = await rig.accept()
    assert await broker.receive(len(PLAIN)) == PLAIN
    await asked(clerk)
    clerk.give[0](RESPONSE)
    await broker.send(PLAIN_RESPONSE)
    assert await client.receive(len(PLAIN_RESPONSE + RESPONSE)) == PLAIN_RESPONSE + RESPONSE


async def test_large_response_arrives_whole(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED + PLAIN)
    await asked(clerk)
    large = frame(b"\0\0\0\7" + bytes(8_000_000))
    clerk.give[0](bytearray(large))
    assert await client.receive(len(large)) == large
    assert await (await rig.accept()).receive(len(PLAIN)) == PLAIN


async def test_response_for_a_closed_connection_is_dropped(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED)
    await asked(clerk)
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    clerk.give[0](RESPONSE)
    assert not rig.stats.errors


async def test_question_of_a_closed_connection_is_withdrawn(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED)
    await asked(clerk)
    assert clerk.questions[0].address == "192.0.2.1"
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert clerk.withdrawn == clerk.questions


async def test_question_is_withdrawn_while_requests_behind_it_wait(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED + ASKED + PLAIN)
    await asked(clerk)
    client.reset()
    await until(lambda: not rig.connections, "the connection has ended")
    assert clerk.withdrawn == clerk.questions


async def test_finished_question_is_not_withdrawn(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED)
    await asked(clerk)
    clerk.give[0](RESPONSE)
    assert await client.receive(len(RESPONSE)) == RESPONSE
    client.close()
    await until(lambda: not rig.connections, "the connection has ended")
    assert not clerk.withdrawn


async def test_malformed_question_ends_the_connection(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED)
    await asked(clerk)
    clerk.give[0](TruncatedError("cut"))
    assert await client.rest() == b""
    assert rig.stats.errors == {"malformed": 1}


async def test_too_many_questions_end_the_connection(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED)
    await asked(clerk)
    clerk.give[0](PeerError("quota_requests_max", "full"))
    assert await client.rest() == b""
    assert rig.stats.errors == {"quota_requests_max": 1}


async def test_draining_connection_gives_its_response_first(rig: Rig) -> None:
    client, clerk = connected(rig)
    await client.send(ASKED)
    await asked(clerk)
    connection: Connection = rig.connection
    assert not connection.drain(0)
    clerk.give[0](RESPONSE)
    connection.drain(0)
    assert await client.rest() == RESPONSE


async def test_request_is_forwarded_to_the_broker_first_if_asked_for(rig: Rig) -> None:
    client, clerk = connected(rig, OngoingMoves())
    wanted = request(ALTER_PARTITION_REASSIGNMENTS, 1, b"what is wanted", correlation_id=7)
    sent = request(ALTER_PARTITION_REASSIGNMENTS, 1, b"the first step", correlation_id=7)
    await client.send(wanted + PLAIN)
    await asked(clerk)
    clerk.give[0](Forward(ALTER_PARTITION_REASSIGNMENTS, sent, "plan"))
    broker = await rig.accept()
    assert await broker.receive(len(sent)) == sent
    said = frame(b"\0\0\0\7\0what the broker says")
    await broker.send(said)
    await asked(clerk, 2)
    assert (clerk.questions[1].frame, clerk.questions[1].plan) == (said, "plan")
    clerk.give[1](RESPONSE)
    assert await client.receive(len(RESPONSE)) == RESPONSE
    assert await broker.receive(len(PLAIN)) == PLAIN
