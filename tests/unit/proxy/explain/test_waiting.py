"""Clients that begin to wait for more than half of their time, and end, in virtual time."""

from proxy.channel import UNASKED, Condition
from proxy.explain.rules import Rule
from proxy.explain.waiting import NAMED_MAX, Judgement, Waiter, Waiting
from proxy.explain.watch import Watch
from quotas.definitions.definitions import StaticQuotas
from tests.support.engines import engine_with

ENGINE = engine_with(static=StaticQuotas(producer_default=1000))
PRODUCE = Rule("produce", "producer_byte_rate")
TICK_MS = 100
JUDGE_MS = 5_000


class Rig:
    """Connections that are visited ten times a second, and judged every 5 s."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.waiting = Waiting()
        self.now_ms = 1_000_000
        self.held: dict[str, int] = {}

    def run(self, seconds: float, **held: float) -> list[Judgement]:
        """Let time pass: each client is held for this part of it; returns what was judged."""
        found: list[Judgement] = []
        until_ms = self.now_ms + round(seconds * 1000)
        while self.now_ms < until_ms:
            self.now_ms += TICK_MS
            for client_id, part in held.items():
                # In holds of half a second, as they come.
                holds = self.now_ms % 1000 < part * 1000
                self.held[client_id] = self.held.get(client_id, 0) + TICK_MS * holds
                quota = ENGINE.client("", client_id, broker=1)
                condition = Condition(quota, 1, UNASKED, self.held[client_id], 0, None)
                self.watch.visit(client_id, condition, "peer", TICK_MS, self.now_ms)
            if self.now_ms % JUDGE_MS == 0:
                found += self.judge()
        return found

    def judge(self) -> list[Judgement]:
        list(self.waiting.judge(self.watch, self.now_ms))
        judgement = self.waiting.take(self.now_ms)
        return [] if judgement is None else [judgement]


def names(waiters: tuple[Waiter, ...]) -> list[str]:
    return [waiter.client_id for waiter in waiters]


def test_client_begins_once_and_ends_once() -> None:
    rig = Rig()
    [begun] = rig.run(300, a=0.8)
    assert names(begun.begun) == ["a"]
    assert (begun.ended, begun.others) == ((), 0)
    assert begun.begun[0].part > 0.5
    assert begun.begun[0].rule == PRODUCE
    [ended] = rig.run(120, a=0.0)
    assert (begun.begun[0].user, names(ended.ended)) == ("", ["a"])


def test_client_that_is_gone_ends() -> None:
    rig = Rig()
    assert len(rig.run(60, a=0.9)) == 1
    rig.watch.end("a")
    [ended] = rig.run(120)
    assert names(ended.ended) == ["a"]


def test_client_that_waits_less_is_no_event() -> None:
    assert Rig().run(300, a=0.0, b=0.2, c=0.4) == []


def test_client_at_the_edge_makes_no_stream_of_events() -> None:
    rig = Rig()
    found = [judgement for part in (0.6, 0.4) * 20 for judgement in rig.run(30, a=part)]
    assert [names(judgement.begun) for judgement in found] == [["a"]]


def test_short_wait_of_a_new_client_is_no_event() -> None:
    rig = Rig()
    assert rig.run(8, a=1.0) == []
    assert rig.run(300, a=0.0) == []


def test_one_long_wait_a_minute_is_no_event() -> None:
    rig = Rig()
    found = [one for _ in range(10) for one in (*rig.run(20, a=1.0), *rig.run(40, a=0.0))]
    assert len(found) <= 2  # while the client is new, its first wait is most of its time


def test_client_that_connects_anew_again_and_again_begins() -> None:
    rig = Rig()
    found = []
    for _ in range(60):
        found += rig.run(1, a=0.9)
        rig.watch.end("a")
        rig.held.clear()
    assert [names(judgement.begun) for judgement in found] == [["a"]]


def test_worst_connection_counts() -> None:
    rig = Rig()
    quota = ENGINE.client("", "a", broker=1)
    for tick in range(600):
        now_ms = rig.now_ms + tick * TICK_MS
        for connection in range(10):
            held_ms = tick * TICK_MS if connection == 0 else 0
            condition = Condition(quota, 1, UNASKED, held_ms, 0, None)
            rig.watch.visit(connection, condition, "peer", TICK_MS, now_ms)
    rig.now_ms += 60_000
    [judgement] = rig.judge()
    assert names(judgement.begun) == ["a"]
    assert judgement.begun[0].part > 0.9


def test_made_up_names_are_counted_and_not_named() -> None:
    rig = Rig()
    crowd = {f"c{number}": 0.9 for number in range(NAMED_MAX * 5)}
    begun = rig.run(60, **crowd)
    assert sum(len(judgement.begun) for judgement in begun) == NAMED_MAX
    assert sum(judgement.others for judgement in begun) == NAMED_MAX * 4
    ended = rig.run(120, **dict.fromkeys(crowd, 0.0))
    assert sum(len(judgement.ended) for judgement in ended) == NAMED_MAX


def test_clients_that_are_not_throttled_are_not_looked_at() -> None:
    rig = Rig()
    rig.run(10, **{f"c{number}": 0.0 for number in range(100)})
    assert rig.watch.take_throttled(10) == {}
    assert list(rig.waiting.judge(rig.watch, rig.now_ms)) == []
