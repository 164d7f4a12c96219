"""What keeps a class of a capacity from using more: over windows, as rows, and as events."""

from collections.abc import Sequence

import pytest

from proxy.events import Event
from proxy.explain.capacities import SAMPLED_MAX, CapacityWatch, row_of, rows_of
from proxy.explain.documents import CLASSES_MAX, Level
from proxy.explain.parts import MINUTE, TEN_SECONDS
from quotas.definitions.classes import UNPROMISED, Terms
from quotas.definitions.entities import BucketKey
from quotas.sharing.capacities import CapacityState, ClassState

IN = "producer_byte_rate"
MB = 1e6
A, B = BucketKey(None, "a"), BucketKey(None, "b")


def one(bucket: BucketKey | None, terms: Terms, demand: float, rate: float, lent: float = 0.0) -> ClassState:
    return ClassState(IN, bucket, terms, demand * MB, rate * MB, lent * MB)


def terms(rate: float, ceiling: float, weight: float = 1.0, *, exempt: bool = False) -> Terms:
    return Terms(rate * MB, ceiling * MB, weight, exempt)


def state(*classes: ClassState, left: float = 0.0, shrunk: float = 1.0, broker: int = -1) -> CapacityState:
    each = tuple(own._replace(shrunk=shrunk) for own in classes)
    return CapacityState(IN, broker, 8 * MB, shrunk, left * MB, each)


def sampled(
    states: Sequence[CapacityState], seconds: int, watch: CapacityWatch | None = None
) -> CapacityWatch:
    watch = watch or CapacityWatch()
    for second in range(seconds):
        for _ in watch.sample(states, 1_000_000 + 1000 * second):
            pass
    return watch


def level(watch: CapacityWatch, bucket: BucketKey = A, window: int = MINUTE) -> Level | None:
    return watch.level(IN, bucket, None, window, 1_000_000 + 9_000)


# a is promised 2, b 4, of 8 MB/s; both want all: 2 are lent, one to each.
USED_UP = state(one(A, terms(2, 8), 8, 2, 1), one(B, terms(4, 8), 8, 4, 1))


def test_class_that_wants_more_than_it_has_is_bound_by_the_capacity() -> None:
    found = level(sampled([USED_UP], 10))
    assert found is not None
    assert (found.binds, found.entity, found.shared, found.broker) == ("capacity", "client-id 'a'", False, -1)
    assert (found.capacity, found.rate, found.ceiling) == (8 * MB, 2 * MB, 8 * MB)
    assert (found.has, found.lent, found.spare, found.shrunk) == (2 * MB, 1 * MB, 2 * MB, 1.0)


@pytest.mark.parametrize(
    ("own", "shrunk", "binds"),
    [
        (one(A, terms(2, 3), 3, 2, 1), 1.0, "ceiling"),
        (
            one(A, terms(2, 8), 8, 2, 6),
            1.0,
            "capacity",
        ),  # a ceiling that is the capacity, of one that has all of it
        (one(A, terms(2, 2), 2, 2), 1.0, "rate"),
        (one(A, terms(2, 2), 2, 1.6), 0.8, "shrunk"),
        (one(A, terms(2, 8), 8, 1.6), 0.8, "shrunk"),
        (one(A, terms(2, 8), 2.5, 2, 0.5), 1.0, None),
        (one(A, terms(2, 8, exempt=True), 8, 8), 1.0, None),
    ],
)
def test_what_binds(own: ClassState, shrunk: float, binds: str | None) -> None:
    found = level(sampled([state(own, shrunk=shrunk)], 10))
    assert (None if found is None else found.binds) == binds


def test_level_is_what_bound_most_of_the_time_and_its_means() -> None:
    watch = sampled([state(one(A, terms(2, 3), 3, 2, 1))], 4)
    for second in range(4, 10):
        for _ in watch.sample([USED_UP], 1_000_000 + 1000 * second):
            pass
    found = level(watch)
    assert found is not None
    assert (found.binds, found.lent, found.spare) == ("capacity", 1 * MB, 1.6 * MB)  # (4 x 1 + 6 x 2) / 10


def test_class_that_has_stopped_to_wait_is_explained_while_its_waits_are_in_the_window() -> None:
    watch = sampled([USED_UP], 1)
    assert watch.level(IN, A, None, MINUTE, 1_030_000) is not None
    assert watch.level(IN, A, None, TEN_SECONDS, 1_030_000) is None


def test_where_each_broker_has_a_capacity_the_one_is_named_at_which_it_waited_longest() -> None:
    own = [one(A, terms(2, 8), 8, 2, lent)._replace(broker=broker) for broker, lent in ((1, 1), (2, 3))]
    here, there = state(own[0], broker=1), state(own[1], broker=2)
    watch = sampled([here, there], 2)
    sampled([there], 8, watch)
    found = level(watch)
    assert found is not None
    assert (found.broker, found.lent) == (2, 3 * MB)


def test_no_more_than_a_bounded_number_of_classes_is_kept() -> None:
    watch = sampled([state(one(A, terms(1, 8), 8, 1))], 1)
    for second, lent in enumerate((0, 0, 3), start=1):
        many = [one(BucketKey(None, f"c{number}"), terms(1, 8), 8, 1, lent) for number in range(SAMPLED_MAX)]
        for _ in watch.sample([state(*many, one(B, terms(1, 8), 8, 1))], 1_000_000 + 1000 * second):
            pass
    assert level(watch) is None  # the one that waited longest ago made room
    assert level(watch, B) is None  # the others wait now as well, and stay with all of their samples
    found = level(watch, BucketKey(None, "c1"))
    assert found is not None
    assert found.lent == 1 * MB


def test_row_adds_up_and_shows_those_that_have_most() -> None:
    row = row_of(USED_UP)
    assert (row.value, row.promised, row.lent, row.left) == (8 * MB, 6 * MB, 2 * MB, 0.0)
    assert [(shown.entity, shown.has, shown.lent, shown.waits) for shown in row.classes] == [
        ("client-id 'b'", 4 * MB, 1 * MB, True),
        ("client-id 'a'", 2 * MB, 1 * MB, True),
    ]
    many = [one(BucketKey(None, f"c{number}"), terms(1, 8), 1, 1) for number in range(CLASSES_MAX + 5)]
    row = row_of(state(*many))
    assert (row.classes_total, len(row.classes)) == (CLASSES_MAX + 5, CLASSES_MAX)


def test_rate_that_the_schedule_needs_where_nothing_is_promised_is_not_shown_as_promised() -> None:
    row = row_of(state(one(UNPROMISED, terms(0, 8), 8, 0.24, 4.76), one(A, terms(0, 4), 8, 0.24, 2.76)))
    assert [(shown.entity, shown.rate, shown.has, shown.lent) for shown in row.classes] == [
        ("clients without a limit", 0.0, 0.24 * MB, 4.76 * MB),
        ("client-id 'a'", 0.0, 0.24 * MB, 2.76 * MB),
    ]


def test_class_of_each_broker_is_sampled_by_itself_in_a_capacity_of_the_cluster() -> None:
    here, there = (
        one(A, terms(2, 8), 8, 2, lent)._replace(broker=broker) for broker, lent in ((1, 1), (2, 3))
    )
    watch = sampled([state(here, there)], 2)
    sampled([state(there)], 8, watch)
    found = level(watch)
    assert found is not None
    assert (found.broker, found.lent) == (-1, 3 * MB)


def test_what_brokers_take_comes_first() -> None:
    out = USED_UP._replace(quota_key="consumer_byte_rate")
    assert [row.key for row in rows_of([out, USED_UP])] == [IN, "consumer_byte_rate"]


def judged(watch: CapacityWatch, states: Sequence[CapacityState], begin: int, end: int) -> list[Event]:
    """Judge every second, from one to another."""
    return [event for second in range(begin, end) for event in watch.judge(states, 1000 * second)]


def test_capacity_is_used_up_after_five_seconds_and_no_longer_after_fifteen_without_a_wait() -> None:
    watch = CapacityWatch()
    assert judged(watch, [USED_UP], 0, 5) == []
    [event] = judged(watch, [USED_UP], 5, 60)
    assert event.text == "The capacity of all brokers (in), 8.0 MB/s, is used up: 2 classes wait for more."
    assert judged(watch, [], 60, 75) == []
    [event] = judged(watch, [], 75, 100)
    assert event.text == "The capacity of all brokers (in) is no longer used up."
    assert judged(watch, [], 100, 200) == []


def test_a_moment_in_between_is_no_event() -> None:
    watch = CapacityWatch()
    judged(watch, [USED_UP], 0, 10)
    assert judged(watch, [], 10, 20) + judged(watch, [USED_UP], 20, 21) + judged(watch, [], 21, 35) == []


def test_more_is_promised_than_there_is() -> None:
    watch = CapacityWatch()
    shrunk = state(one(A, terms(6, 6), 6, 4.8), one(B, terms(4, 4), 4, 3.2), shrunk=0.8, broker=3)
    first, second = judged(watch, [shrunk], 0, 10)
    assert {first.text, second.text} == {
        "More is promised than the capacity of broker 3 (in), 8.0 MB/s, has: classes have 80% of their rates.",
        "The capacity of broker 3 (in), 8.0 MB/s, is used up: 2 classes wait for more.",
    }
    ended = [event.text for event in judged(watch, [state(broker=3)], 10, 60)]
    assert "Promised rates are within the capacity of broker 3 (in) again." in ended
