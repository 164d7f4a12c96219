"""What connections keep in memory counts against the budget, whatever it is, and closing gives it back."""

import pytest

from protocol.api import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from protocol.primitives import count_bytes
from proxy.channel import SharedResponse
from proxy.channel.direction import ENTRY_BYTES
from proxy.system.clock import now_ms
from tests.component.proxy.net.rig import Clerk, End, Rig, until
from tests.support.frames import LIST_OFFSETS, fetch, filler, request
from tests.support.playbook import owed_of

MIB = 1024 * 1024
CONNECTIONS = 48
# A request that is seen whole, since it gets a response here; of each, HALF is sent.
WHOLE = request(ALTER_CLIENT_QUOTAS, 1, size=MIB)
HALF = 200_000
DESCRIBE = request(DESCRIBE_CLIENT_QUOTAS, 1, b"fields", correlation_id=7)
FRAME_MS = 61_000  # a sweep later than limits.frame_seconds


async def half_sent(rig: Rig, count: int = HALF, from_address: str = "192.0.2.1") -> End:
    """A client that sends a part of a request; what is kept of it is counted, or has ended it."""
    ended, kept = len(rig.ended), rig.shared.kept.bytes
    client = rig.connect(from_address=from_address, serves_quota_api=True)
    await client.send(WHOLE[:count])
    await until(
        lambda: rig.shared.kept.bytes >= kept + count or len(rig.ended) > ended,
        "it is kept, or one has ended",
    )
    return client


async def test_half_requests_stay_within_the_budget(rig: Rig) -> None:
    rig.limit(kept_bytes_max=4 * MIB)
    for _ in range(CONNECTIONS):
        await half_sent(rig)
        assert rig.shared.kept.bytes <= 4 * MIB
    assert rig.stats.errors["kept_bytes"] == len(rig.ended) > 0
    assert rig.stats.kept_bytes() >= len(rig.connections) * HALF - MIB


async def test_half_requests_of_one_address_do_not_end_those_of_another(rig: Rig) -> None:
    rig.limit(kept_bytes_max=4 * MIB)
    await half_sent(rig, 500_000, from_address="192.0.2.2")
    honest = rig.connection
    for _ in range(CONNECTIONS):
        await half_sent(rig)
    assert honest in rig.connections


async def test_closed_connections_keep_nothing(rig: Rig) -> None:
    for _ in range(8):
        await half_sent(rig)
    for connection in list(rig.connections):
        connection.close("client_closed")
    assert rig.shared.kept.bytes == 0


async def test_connection_over_its_own_bound_is_closed(rig: Rig) -> None:
    rig.limit(kept_bytes_per_connection_max=100_000)
    client = await half_sent(rig)
    assert (await client.rest(), rig.stats.errors) == (b"", {"kept_bytes": 1})


async def test_request_is_not_counted_once_it_has_arrived(rig: Rig) -> None:
    rig.shared.ask = Clerk().ask
    client = await half_sent(rig)
    await client.send(WHOLE[HALF:])
    # It waits for its response: counted is the request, and no buffer beside it.
    await until(lambda: rig.shared.kept.bytes == len(WHOLE), "only the question is kept")


async def test_fast_first_bytes_do_not_excuse_slow_ones(rig: Rig) -> None:
    client = await half_sent(rig, 1000)
    now = now_ms()
    rig.connection.sweep(now)
    await client.send(WHOLE[1000:HALF])
    await until(lambda: rig.connection.requests.kept_bytes == HALF, "much has come in one go")
    rig.connection.sweep(now + FRAME_MS)
    assert rig.connections, "in this time it was fast"
    rig.connection.sweep(now + 2 * FRAME_MS)
    assert (rig.connections, rig.stats.errors) == (set(), {"slow_client": 1})


async def test_unread_responses_stay_within_the_budget(rig: Rig) -> None:
    rig.limit(kept_bytes_max=24 * MIB)
    clerk = Clerk()
    rig.shared.ask = clerk.ask
    rest = memoryview(bytearray(filler(6 * MIB)))
    for number in range(1, 17):
        client = rig.connect(serves_quota_api=True, send_buffer=4096)
        await client.send(DESCRIBE)
        await clerk.asked(number)
        clerk.give[-1](SharedResponse((len(rest) + 4).to_bytes(4, "big") + DESCRIBE[8:12], rest))
        assert rig.shared.kept.bytes <= 24 * MIB
    assert rig.stats.errors == {"kept_bytes": 13}
    assert len(rig.connections) == 3


async def test_unread_response_is_not_copied_and_comes_whole(rig: Rig) -> None:
    clerk = Clerk()
    rig.shared.ask = clerk.ask
    client = rig.connect(serves_quota_api=True, send_buffer=4096)
    await client.send(DESCRIBE)
    await clerk.asked(1)
    content = filler(MIB)
    shared = bytearray(content)
    head = (len(content) + 4).to_bytes(4, "big") + DESCRIBE[8:12]
    clerk.give[0](SharedResponse(head, memoryview(shared)))
    with pytest.raises(BufferError):  # a view of it is still there, and no copy
        shared.clear()
    assert await client.receive(len(head) + len(content)) == head + content
    await until(lambda: rig.shared.kept.bytes == 0, "nothing is kept any more")
    shared.clear()


async def test_client_that_reads_nothing_is_asked_for_nothing_more(rig: Rig) -> None:
    clerk = Clerk()
    rig.shared.ask = clerk.ask
    client = rig.connect(serves_quota_api=True, send_buffer=4096)
    responses = [(MIB + 4).to_bytes(4, "big") + bytes([number] * (MIB + 4)) for number in range(4)]
    await client.send(4 * DESCRIBE)
    for number in (0, 1):
        await clerk.asked(number + 1)
        clerk.give[number](responses[number])
    # One response is being written, one waits for its turn, and no third one is made.
    assert (rig.connection.channel.kept_bytes, len(clerk.give)) == (MIB + 8, 2)
    for number in (2, 3):
        assert await client.receive(MIB + 8) == responses[number - 2]
        await clerk.asked(number + 1)
        clerk.give[number](responses[number])
    assert await client.receive(2 * (MIB + 8)) == responses[2] + responses[3]


async def test_responses_owed_are_counted_at_a_sweep(rig: Rig) -> None:
    client = rig.connect()
    await client.send(b"".join(request(LIST_OFFSETS, 7, correlation_id=number) for number in range(1000)))
    await until(lambda: owed_of(rig.connection.channel) == 1000, "all are owed their responses")
    before = rig.shared.kept.bytes
    rig.connection.sweep(now_ms())
    assert rig.shared.kept.bytes == before + 1000 * ENTRY_BYTES


async def test_client_ids_of_a_connection_are_few_and_short(rig: Rig) -> None:
    client = rig.connect()
    asked = b"".join(
        request(LIST_OFFSETS, 7, client_id=f"{number:04d}".ljust(32_000, "x")) for number in range(200)
    )
    await client.send(asked)
    await (await rig.accept()).receive(len(asked))
    channel = rig.connection.channel
    assert (len(rig.engine), channel.kept_bytes) == (1, 200 * ENTRY_BYTES)
    assert rig.engine.client_bytes < 4096


def throttled_fetch(session_id: int, tag_bytes: int) -> bytes:
    """An incremental Fetch of one partition, with so many bytes in its tag section."""
    tags = b"\1\0" + count_bytes(tag_bytes - 1, True) + bytes(tag_bytes)
    partition = bytes(4 + 4 + 8 + 4 + 8 + 4) + tags
    topics = b"\2" + b"\2t" + b"\2" + partition + b"\0" + b"\1" + b"\1\0"
    return fetch(12, session_id=session_id, session_epoch=5, topics=topics)


async def test_throttled_sessions_keep_no_tags(rig: Rig) -> None:
    rig.quota(consumer=1000, mute_seconds_max=1)
    rig.charge_fetch(10_000_000)
    for session_id in range(1, CONNECTIONS + 1):
        client = rig.connect()
        asked = throttled_fetch(session_id, 100_000 if session_id % 2 else 100)
        await client.send(asked)
        await client.receive(4)
    assert rig.stats.fetches_answered == CONNECTIONS
    sessions = rig.shared.sessions
    assert len(sessions) == CONNECTIONS // 2, "those with short tags"
    assert sessions.kept_bytes < CONNECTIONS * 1024
    assert rig.shared.kept.total >= sessions.kept_bytes
