"""Questions of members to the holder that are not about shares, on sockets; and the tenure that an executor has."""

import asyncio
from pathlib import Path

import pytest

from proxy.fleet import HolderPort
from proxy.fleet.calls import BUSY, QUESTIONS_MAX, NoResponseError
from proxy.fleet.secret import NO_SECRET
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from quotas.sharing.lessor import Lessor
from tests.component.proxy.fleet.rig import TERMS, fleet, secret, until

SECONDS_MAX = 20.0


async def test_holder_responds_to_a_members_question(tmp_path: Path) -> None:
    async with fleet(secret(tmp_path, "word")) as one:
        a = one.join("a", tmp_path / "word")
        with pytest.raises(NoResponseError) as error:
            await a.client.ask(b"early", SECONDS_MAX)
        assert not error.value.sent
        await until(lambda: a.lessee.leased(now_ms()))
        assert await a.client.ask(b"nothing answers", SECONDS_MAX) == BUSY
        asked = asyncio.Event()

        async def respond(content: bytes) -> bytes:
            if content == b"slow":
                asked.set()
                await asyncio.sleep(3600)
            return content.upper()

        one.port.responding.respond = respond
        # More than the first frames may have.
        large = b"x" * 300_000
        responses = await asyncio.gather(a.client.ask(b"one", SECONDS_MAX), a.client.ask(large, SECONDS_MAX))
        assert list(responses) == [b"ONE", large.upper()]
        with pytest.raises(NoResponseError, match="no response of the holder within"):
            await a.client.ask(b"slow", 0.05)
        asked.clear()
        waiting = asyncio.create_task(a.client.ask(b"slow", SECONDS_MAX))
        await asked.wait()
        assert one.port.tenure == 1
        one.port.retire("gw-2 is the holder")
        with pytest.raises(NoResponseError, match="has ended") as error:
            await waiting
        assert error.value.sent
        assert one.port.tenure == 0


async def test_questions_too_many_are_refused() -> None:
    async with fleet() as one:
        a, b = one.join("a"), one.join("b")
        await until(lambda: a.lessee.leased(now_ms()) and b.lessee.leased(now_ms()))

        async def respond(_content: bytes) -> bytes:
            await asyncio.sleep(3600)
            return b"late"

        one.port.responding.respond = respond
        waiting = [asyncio.create_task(a.client.ask(b"?", SECONDS_MAX)) for _ in range(QUESTIONS_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(NoResponseError, match="too many") as error:
            await a.client.ask(b"?", SECONDS_MAX)
        assert not error.value.sent
        await until(lambda: len(one.port.responding.running) == QUESTIONS_MAX)
        assert await b.client.ask(b"?", SECONDS_MAX) == BUSY
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_tenure_that_is_not_confirmed_is_over_without_a_tick() -> None:
    """A process that was suspended must not go on as the holder until something looks."""
    clock = 1000
    port = HolderPort(4, NO_SECRET, lambda: clock, FleetFigures())
    assert port.tenure == 0
    port.lead(Lessor(TERMS, 8, lambda _: 1.0, clock, 0), tenure_ms=300)
    assert port.tenure == 1
    clock += 299
    assert port.tenure == 1
    clock += 1
    assert port.tenure == 0
    port.retire("over")
    port.lead(Lessor(TERMS, 9, lambda _: 1.0, clock, 0), tenure_ms=300)
    assert port.tenure == 2, "another tenure"
