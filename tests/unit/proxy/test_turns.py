"""Long work in turns: how much of the loop it takes, in virtual time."""

import asyncio
from collections.abc import Iterator

import pytest

from proxy.system import threads
from proxy.system.threads import in_turns

ITEM_NS = 500_000  # of each item, and of reading the clock nothing


class Clock:
    """A clock that stands still but for what is added."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.mark.parametrize(
    ("others_ms", "turn_ms"),
    [(0, 1), (8, 1), (16, 2), (24, 3), (400, 3)],
    ids=["idle loop", "8 ms", "an eighth of 16 ms", "an eighth of 24 ms", "never more than 3 ms"],
)
async def test_turn_grows_with_what_else_the_loop_does(
    monkeypatch: pytest.MonkeyPatch, others_ms: int, turn_ms: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(threads, "monotonic_ns", clock)
    done: list[int] = [0]  # items by turn
    ended = False

    async def others() -> None:
        while not ended:
            clock.now_ns += others_ms * 1_000_000
            done.append(0)
            await asyncio.sleep(0)

    def items() -> Iterator[int]:
        for number in range(100):
            clock.now_ns += ITEM_NS
            yield number

    rest = asyncio.create_task(others())
    async for _ in in_turns(items()):
        done[-1] += 1
    ended = True
    await rest
    # A turn ends with the item that exceeds it; the first knows of no other work yet.
    assert done[0] == 3
    assert set(done[1:-2]) == {turn_ms * 2 + 1}
