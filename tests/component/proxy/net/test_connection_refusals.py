"""A Produce that is refused on real sockets: owed responses are sent, the client is told the end, nothing passes."""

import asyncio

import pytest

from tests.component.proxy.net.rig import ASKED, RESPONDED, SECONDS_MAX, Rig, until
from tests.support.frames import produce

LARGE = 2_000_000


def spend(rig: Rig) -> None:
    """Use the quota up for longer than the longest hold: 100 s against 0.2 s."""
    rig.quota(producer=10_000, policy="schedule", hold_seconds_max=0.2)
    rig.charge_produce(1_000_000)


@pytest.mark.parametrize(("acks", "label"), [(-1, "acks"), (0, "acks0")])
async def test_refused_client_is_closed_and_no_byte_reaches_the_broker(
    rig: Rig, acks: int, label: str
) -> None:
    spend(rig)
    client = rig.connect()
    async with asyncio.timeout(SECONDS_MAX):
        sending = asyncio.create_task(client.send(produce(9, LARGE, acks=acks)))
        assert await client.rest() == b""  # an end, and no reset
        await sending  # what the proxy does not want is read and dropped
    await until(lambda: len(rig.ended) == 1, "the connection has ended")
    assert rig.stats.produce_refused == {label: 1}
    assert rig.stats.errors["produce_refused"] == 1
    with pytest.raises(BlockingIOError):
        rig.back.accept()


async def test_responses_that_are_owed_come_before_the_end(rig: Rig) -> None:
    spend(rig)
    client = rig.connect()
    await client.send(ASKED + produce(9, 5000, correlation_id=2) + produce(9, 5000, correlation_id=3))
    broker = await rig.accept()
    assert await broker.receive(len(ASKED)) == ASKED
    await until(lambda: bool(rig.stats.produce_refused), "the request is refused")
    await broker.send(RESPONDED)
    assert await client.rest() == RESPONDED
    assert await broker.rest() == b""  # neither of the two


async def test_client_that_goes_on_sending_is_closed_after_a_second(rig: Rig) -> None:
    spend(rig)
    client = rig.connect()
    await client.send(produce(9, 5000))
    await until(lambda: len(rig.ended) == 1, "the connection has ended")
    assert rig.shared.arrivals  # it counts until it is closed
    await until(lambda: not rig.shared.arrivals, "its time is over")
