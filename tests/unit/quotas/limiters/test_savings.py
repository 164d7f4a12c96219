"""A large request of a name below a default: it is paid for before it passes. 100 bytes are 1 ms."""

import pytest

from quotas.limiters.limiter import ADMITTED, Flow, Lendable
from quotas.limiters.savings import KEPT_MS, Savings
from quotas.limiters.schedule import POLL_MS_MAX, ScheduledLimiter
from quotas.options import EngineOptions

RATE = 100_000
BURST = 40_000
SIZE = BURST + 2 * RATE


class NewNames:
    """The class of new names, which has room for so many advances."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.paid: list[int] = []

    def spend(self, limiter: Lendable, part: int, now_ms: int) -> float:
        """No other has saved anything."""
        return 0.0

    def advance(self, limiter: Lendable, part: int, size: int, now_ms: int) -> bool:
        if len(self.paid) == self.room:
            return False
        self.paid.append(part)
        return True

    def charge(self, limiter: Lendable, part: int, now_ms: int) -> None:
        self.paid.append(part)


def class_with(new_names: NewNames | None = None) -> ScheduledLimiter:
    limiter = ScheduledLimiter(RATE, EngineOptions(policy="schedule", burst_seconds=0.4), 0)
    limiter.savings = Savings(new_names)
    return limiter


def trusted(size: int = SIZE) -> Flow:
    """A channel that has sent such requests before."""
    flow = Flow()
    flow.missing = flow.trusted = size
    return flow


def passes(limiter: ScheduledLimiter, flow: Flow, size: int, now_ms: int) -> bool:
    """Ask; a request that is held asks again within 0.5 s, which the tests do at the times that matter."""
    decision = limiter.produce(flow, size, now_ms)
    assert decision.hold_until_ms <= now_ms + POLL_MS_MAX
    return not decision.hold_until_ms and not decision.refused


def held(limiter: ScheduledLimiter, flow: Flow, size: int, until_ms: int, *, since_ms: int = 0) -> None:
    """Ask every 0.5 s, until before a time."""
    for now_ms in range(since_ms, until_ms, POLL_MS_MAX):
        assert not passes(limiter, flow, size, now_ms)


def test_request_beyond_the_burst_waits_until_it_is_paid_for() -> None:
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 2000)
    assert not passes(limiter, flow, SIZE, 1999)
    assert limiter.produce(flow, SIZE, 2000) is ADMITTED
    assert limiter.credit_bytes(2000) == 0  # the burst is used as well


def test_request_within_the_burst_does_not_wait() -> None:
    limiter = class_with()
    assert limiter.produce(trusted(), BURST, 0) is ADMITTED


def test_what_is_saved_counts_as_used_and_lends_nothing() -> None:
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 1001)
    assert limiter.unpaid_bytes(1000) == -RATE
    assert passes(limiter, flow, SIZE, 2000)
    assert limiter.unpaid_bytes(2000) == BURST


def test_new_names_pay_first_while_they_have_room() -> None:
    new_names = NewNames(room=1)
    limiter, flow = class_with(new_names), trusted()
    assert passes(limiter, flow, SIZE, 0)
    assert new_names.paid == [SIZE - BURST]
    assert limiter.debt_bytes(0) == SIZE - BURST
    assert not passes(limiter, flow, SIZE, 1999)
    assert new_names.paid == [SIZE - BURST]


def test_new_names_pay_what_is_not_saved_yet() -> None:
    new_names = NewNames(room=0)
    limiter, flow = class_with(new_names), trusted()
    held(limiter, flow, SIZE, 1501)
    new_names.room = 1
    assert passes(limiter, flow, SIZE, 1500)
    assert new_names.paid == [RATE // 2]


@pytest.mark.parametrize(
    ("back_ms", "passes_ms"), [(16_000, 18_000), (15_000 + POLL_MS_MAX + KEPT_MS, 18_000)]
)
def test_refused_request_goes_on_saving_if_it_comes_again_soon(back_ms: int, passes_ms: int) -> None:
    size = BURST + 18 * RATE
    limiter, flow = class_with(), trusted(size)
    held(limiter, flow, size, 15_000)
    assert limiter.produce(flow, size, 15_000).refused
    held(limiter, flow, size, passes_ms, since_ms=back_ms)
    assert passes(limiter, flow, size, passes_ms)


def test_savings_of_a_request_that_does_not_come_again_are_lost() -> None:
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 1001)
    late_ms = 1000 + POLL_MS_MAX + KEPT_MS + 1
    assert not passes(limiter, flow, SIZE, late_ms)
    assert not passes(limiter, flow, SIZE, late_ms + 1999)
    assert passes(limiter, flow, SIZE, late_ms + 2000)


def test_bytes_that_come_late_are_not_saved_for_twice() -> None:
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 2000)
    assert passes(limiter, flow, SIZE, 2000)
    limiter.announce(flow, SIZE, 2000)
    limiter.take_back(2250)
    assert flow.lost == SIZE
    flow.missing = SIZE
    assert passes(limiter, flow, SIZE, 2260)


def test_bytes_that_are_announced_and_not_sent_are_no_savings_of_others() -> None:
    """What a request had not saved is not saved when it does not come."""
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 2000)
    assert passes(limiter, flow, SIZE, 2000)
    limiter.request_arrived(flow)
    assert limiter.produce(flow, BURST // 4, 2200) is ADMITTED
    limiter.announce(flow, BURST // 4, 2200)
    limiter.take_back(2450)
    assert limiter.savings is not None
    assert not limiter.savings.bytes


def test_change_of_the_rate_keeps_what_is_saved() -> None:
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 1001)
    limiter.lend(
        1.0, 1000, loan=RATE
    )  # twice the rate: a request is lacking 100 kB and half of a larger burst
    assert not passes(limiter, flow, SIZE, 1499)
    assert passes(limiter, flow, SIZE, 1500)


def test_doubtful_request_that_saves_keeps_no_other_waiting() -> None:
    limiter, liar = class_with(), Flow()
    liar.missing = SIZE
    assert not passes(limiter, liar, SIZE, 0)
    assert passes(limiter, Flow(), 1000, 10)


def test_request_that_came_in_part_is_given_back_once() -> None:
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 2000)
    assert passes(limiter, flow, SIZE, 2000)
    limiter.announce(flow, SIZE, 2000)
    flow.announced = BURST  # the rest has come
    limiter.leave(flow, 2000)
    assert limiter.savings is not None
    assert limiter.savings.bytes + limiter.credit_bytes(2000) == BURST


def test_class_that_an_entry_names_now_pays_for_all_of_a_request() -> None:
    limiter, flow = class_with(), trusted()
    held(limiter, flow, SIZE, 2000)
    assert passes(limiter, flow, SIZE, 2000)
    limiter.request_arrived(flow)
    limiter.savings = None
    assert passes(limiter, flow, SIZE, 3000)
    assert limiter.debt_bytes(3000) == SIZE - BURST


@pytest.mark.parametrize("doubtful", [False, True])
@pytest.mark.parametrize("small", [1000, BURST // 2])
def test_large_requests_beside_small_ones_of_another_connection_have_their_part(
    small: int, doubtful: bool
) -> None:
    """The large ones are half of what is sent, or nearly a fifth if their channels are never trusted."""
    limiter = class_with()
    sizes = {trusted(small): small, Flow() if doubtful else trusted(): SIZE}
    due_ms = dict.fromkeys(sizes, 0)
    sent = dict.fromkeys(sizes, 0)
    until_ms = 60_000
    while (now_ms := min(due_ms.values())) < until_ms:
        for flow, size in sizes.items():
            if due_ms[flow] != now_ms:
                continue
            flow.missing = size
            decision = limiter.produce(flow, size, now_ms)
            mute_ms = min(decision.throttle_ms, 250)  # as in a class of a capacity (`budgets`)
            due_ms[flow] = max(decision.hold_until_ms, now_ms + mute_ms) + 1
            due_ms[flow] += size == SIZE and decision.hold_until_ms > 0  # its timer is late
            if decision.refused:
                limiter.leave(flow, now_ms)
            elif not decision.hold_until_ms:
                limiter.announce(flow, size, now_ms)
                limiter.request_arrived(flow)
                sent[flow] += size
                if size == SIZE and doubtful:
                    flow.trusted = 0  # it is a new channel for each request
    all_of_it = RATE * until_ms / 1000
    large = sent[list(sizes)[1]]
    assert sum(sent.values()) >= (0.75 if doubtful else 0.95) * all_of_it
    assert large >= (0.15 if doubtful else 0.47) * all_of_it


def test_savings_for_a_larger_request_are_not_lost_by_a_smaller_one() -> None:
    savings = Savings(None)
    savings.wait(SIZE, due_ms=500, now_ms=0)
    savings.add(paid_ms=0, rate=100.0, now_ms=1000)
    savings.spend(BURST)
    assert savings.bytes == RATE - BURST
    savings.add(paid_ms=0, rate=100.0, now_ms=2000)  # none waits
    assert savings.bytes == RATE - BURST
    savings.add(paid_ms=0, rate=100.0, now_ms=500 + KEPT_MS + 1)
    assert not savings.bytes


def test_new_names_pay_first_for_a_first_large_response() -> None:
    new_names = NewNames(room=9)
    limiter, flow = class_with(new_names), Flow()
    assert limiter.fetch(flow, 0) is ADMITTED
    limiter.fetched(flow, SIZE, 5)
    assert new_names.paid == [SIZE - BURST]
    assert limiter.fetch(flow, 3000) is ADMITTED
    limiter.fetched(flow, SIZE, 3005)
    assert len(new_names.paid) == 1
