"""proxy.system.threads: whose turn it is, what is dropped, and that nothing is kept of addresses without items."""

import asyncio
import random
from collections.abc import Iterator
from itertools import count

import pytest

from proxy.system import threads
from proxy.system.threads import AddressQueue, in_turns

PLACE = 100


def made(address_bytes_max: int = 0, places: int = 10) -> AddressQueue[str]:
    return AddressQueue(places * PLACE, places, address_bytes_max)


def drained(queue: AddressQueue[str]) -> list[str]:
    found = []
    while (item := queue.next()) is not None:
        found.append(item)
    return found


def test_addresses_take_turns_and_each_is_served_in_order() -> None:
    queue = made()
    for item in ("a1", "a2", "a3", "b1", "b2"):
        assert queue.add(item[0], 1, item) == []
    assert len(queue) == 5
    assert drained(queue) == ["a1", "b1", "a2", "b2", "a3"]
    assert (len(queue), queue.bytes) == (0, 0)


def test_large_item_waits_for_its_own_weight_of_smaller_ones() -> None:
    queue = made(places=100)
    queue.add("a", 3 * PLACE, "large")
    served = []
    for number in count():
        queue.add("b", PLACE, f"b{number}")  # always one more
        item = queue.next()
        assert item is not None
        served.append(item)
        if item == "large":
            break
    assert served == ["b0", "b1", "large"]  # tags: 100, 200; 300 for either, and it came first


def test_new_address_begins_where_the_others_are() -> None:
    queue = made(places=100)
    for number in range(10):
        queue.add("a", PLACE, f"a{number}")
    for _ in range(8):
        queue.next()
    for number in range(3):
        queue.add("b", PLACE, f"b{number}")
    # Not three of b first: what it did not ask for before is not owed to it.
    assert drained(queue) == ["a8", "b0", "a9", "b1", "b2"]


def test_over_the_bound_the_newest_of_the_address_with_most_is_dropped() -> None:
    queue = made()
    for number in range(8):
        assert queue.add("a", 1, f"a{number}") == []
    assert queue.add("b", 2 * PLACE, "b0") == []
    assert queue.add("c", 1, "c0") == ["a7"]
    assert queue.add("c", 3 * PLACE, "c1") == ["a6", "a5", "a4"]
    # Now a has 4 places and c too: the newcomer is dropped.
    assert queue.add("c", 1, "c2") == ["c2"]
    assert queue.bytes == 10 * PLACE


def test_many_small_addresses_are_not_pushed_out_by_further_ones() -> None:
    queue = made()
    for number in range(10):
        queue.add(f"address {number}", 1, f"{number}")
    assert queue.add("one more", 1, "10") == ["10"]


def test_one_address_has_a_bound_of_its_own() -> None:
    queue = made(address_bytes_max=3 * PLACE)
    for number in range(3):
        assert queue.add("a", 1, f"a{number}") == []
    assert queue.add("a", 1, "a3") == ["a3"]
    assert queue.add("b", 3 * PLACE, "b0") == []
    assert queue.add("b", 3 * PLACE, "b1") == ["b1"]
    queue.discard("a0")
    assert queue.add("a", 1, "a4") == []


def test_item_larger_than_all_that_may_wait_is_dropped() -> None:
    queue = made()
    assert queue.add("a", 11 * PLACE, "a0") == ["a0"]
    assert (len(queue), queue.bytes) == (0, 0)


def test_removed_item_is_not_served() -> None:
    queue = made()
    for item in ("a1", "a2", "b1"):
        queue.add(item[0], 1, item)
    queue.discard("a1")
    queue.discard("a1")
    queue.discard("unknown")
    assert drained(queue) == ["b1", "a2"]  # it keeps the tag it came with
    queue.add("a", 1, "a3")
    queue.clear()
    assert (queue.next(), len(queue), queue.bytes) == (None, 0, 0)


def test_nothing_is_kept_of_addresses_without_items() -> None:
    queue = made()
    for number in range(1000):
        queue.add(f"address {number}", 1, f"{number}")
        queue.next() if number % 2 else queue.discard(f"{number}")
    assert (len(queue), queue.addresses, queue.bytes, queue.next()) == (0, 0, 0, None)


def test_weights_equal_a_full_recount() -> None:
    draw = random.Random(14)
    queue = AddressQueue[int](50 * PLACE, 50, 20 * PLACE)
    waiting: dict[int, tuple[str, int]] = {}
    for item in range(3000):
        if draw.random() < 0.5:
            size = draw.choice([1, PLACE, 5 * PLACE, 19 * PLACE])
            address = draw.choice("abcdefgh")
            waiting[item] = address, max(size, PLACE)
            for dropped in queue.add(address, size, item):
                del waiting[dropped]
        elif waiting and draw.random() < 0.3:
            gone = draw.choice(list(waiting))
            queue.discard(gone)
            del waiting[gone]
        elif (served := queue.next()) is not None:
            # The first of its address.
            address = waiting[served][0]
            assert served == next(other for other, (whose, _) in waiting.items() if whose == address)
            del waiting[served]
        assert queue.bytes == sum(weight for _, weight in waiting.values()) <= 50 * PLACE
        assert len(queue) == len(waiting)
        for whose in "abcdefgh":
            assert sum(weight for one, weight in waiting.values() if one == whose) <= 20 * PLACE


ITEM_NS = 500_000  # of each item, and of reading the clock nothing


@pytest.mark.parametrize(
    ("others_ms", "turn_ms"),
    [(0, 1), (8, 1), (16, 2), (24, 3), (400, 3)],
    ids=["idle loop", "8 ms", "an eighth of 16 ms", "an eighth of 24 ms", "never more than 3 ms"],
)
async def test_turn_grows_with_what_else_the_loop_does(
    monkeypatch: pytest.MonkeyPatch, others_ms: int, turn_ms: int
) -> None:
    now_ns = 0  # the clock stands still but for what is added
    monkeypatch.setattr(threads, "monotonic_ns", lambda: now_ns)
    done: list[int] = [0]  # items by turn
    ended = False

    async def others() -> None:
        nonlocal now_ns
        while not ended:
            now_ns += others_ms * 1_000_000
            done.append(0)
            await asyncio.sleep(0)

    def items() -> Iterator[int]:
        nonlocal now_ns
        for number in range(100):
            now_ns += ITEM_NS
            yield number

    rest = asyncio.create_task(others())
    async for _ in in_turns(items()):
        done[-1] += 1
    ended = True
    await rest
    # A turn ends with the item that exceeds it; the first knows of no other work yet.
    assert done[0] == 3
    assert set(done[1:-2]) == {turn_ms * 2 + 1}
