"""KIP-219's own test plan, with every family: a very low quota, no client times out, none sends too early.

Producers and consumers of all families run side by side in one window: under kip13 with a very low quota, where a
single batch is worth seconds, and under schedule with a low one, where the rate is measured.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.interop.conftest import present
from tests.interop.families import FAMILIES, Family
from tests.interop.fronts import Front, Measured, Snapshot, fill, front
from tests.interop.runs import Crowd, Run, options
from tests.support.tap import FETCH, PRODUCE

PARTITIONS = 3
STARTED_SECONDS_MAX = 60.0
SETTLE_SECONDS = 5.0
WINDOW_SECONDS = 20.0
END_SECONDS_MAX = 90.0
# kip13: ten batches of 16 KB are 32 s of quota. schedule: a batch is a fraction of a second.
BYTES_PER_SECOND = {"kip13": 5_000, "schedule": 50_000}
# The shortest request timeout among the clients' defaults: franz-go, 10 s and what the request itself may take.
RESPONSE_MS_MAX = 30_000
# 160 s of schedule's quota: no consumer may come to the end before the window is over, also where all start slowly.
STOCK_RECORDS = 8_000
WORDS = {"produce": PRODUCE, "consume": FETCH}


@dataclass(slots=True)
class Window(Measured):
    """The runs by (family, policy, word), and the taps' counts at the very end."""

    runs: dict[tuple[str, str, str], Run] = field(default_factory=dict)
    end: dict[str, Snapshot] = field(default_factory=dict)


def client(word: str, family: Family) -> str:
    return f"low-{word}-{family.name}"


@pytest.fixture(scope="module")
def window(kafka: Cluster, create_topic: CreateTopic, interop_directory: Path) -> Iterator[Window]:
    """All families, both directions, both policies, side by side."""
    directory = interop_directory / "low"
    directory.mkdir()
    with ExitStack() as stack:
        crowd = stack.enter_context(Crowd(directory))
        stock = create_topic(partitions=PARTITIONS)
        sink = create_topic(partitions=PARTITIONS)
        fill(kafka, crowd, stock, PARTITIONS, STOCK_RECORDS, 1_000, PARTITIONS).wait(END_SECONDS_MAX)
        found = Window([_front(stack, kafka, directory, policy) for policy in BYTES_PER_SECOND])
        for family in present():
            for place in found.fronts:
                _start(found, crowd, place, family, {"produce": sink, "consume": stock}, directory / "stop")
        _observe(found, crowd)
        (directory / "stop").touch()
        for run in crowd.runs:
            run.wait(END_SECONDS_MAX)
        found.end = found.snapshots()
        yield found


def _front(stack: ExitStack, kafka: Cluster, directory: Path, policy: str) -> Front:
    allowed = BYTES_PER_SECOND[policy]
    quotas = {
        client(word, family): {"producer_byte_rate": allowed, "consumer_byte_rate": allowed}
        for family in FAMILIES
        for word in WORDS
    }
    own = {"policy": policy, "scope": "cluster"}
    return stack.enter_context(front(kafka.bootstrap(), directory, policy, quotas=own, client_quotas=quotas))


def _start(
    found: Window, crowd: Crowd, place: Front, family: Family, topics: dict[str, str], stop_file: Path
) -> None:
    for word, topic in topics.items():
        words = options(place.bootstrap, client(word, family), topic, partitions=PARTITIONS)
        more = ["--stop-file", str(stop_file), "--outstanding", "30"]
        run = crowd.start(family, word, *words, *more)
        found.runs[family.name, place.policy, word] = run


def _observe(found: Window, crowd: Crowd) -> None:
    wanted = {(client(word, family), key) for family in present() for word, key in WORDS.items()}
    crowd.until(
        lambda: all(place.tap.of(*one).throttled > 0 for place in found.fronts for one in wanted),
        STARTED_SECONDS_MAX,
    )
    time.sleep(SETTLE_SECONDS)
    with found.measuring():
        time.sleep(WINDOW_SECONDS)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("policy", BYTES_PER_SECOND)
def test_low_quota_causes_no_timeouts(family: Family, policy: str, word: str, window: Window) -> None:
    run = window.runs[family.name, policy, word]
    assert not run.events("error"), run.describe()
    seen = window.end[policy][client(word, family), WORDS[word]]
    assert seen.throttled > 0, str(seen)
    if word == "produce":
        line = run.last("produced")
        assert line.number("records") > 0, run.describe()
        assert line.number("slowest_ms") < RESPONSE_MS_MAX, run.describe()
    else:
        assert run.last("consumed").number("records") > 0, run.describe()


@pytest.mark.parametrize("policy", BYTES_PER_SECOND)
def test_consumer_that_obeys_is_silent_for_its_time(family: Family, policy: str, window: Window) -> None:
    # Until the window's end: a consumer that is being closed tells the broker so at once.
    seen = window.after[policy][client("consume", family), FETCH]
    if family.obeys_throttle:
        assert seen.early == 0, str(seen)
    else:
        # It is held by not being read; and this shows that the tap would see an early one.
        assert seen.early > 0, str(seen)


@pytest.mark.parametrize("policy", BYTES_PER_SECOND)
def test_producer_that_obeys_is_silent_for_its_time(family: Family, policy: str, window: Window) -> None:
    if not family.obeys_throttle:
        pytest.skip(f"{family.name} does not obey throttle_time_ms; it is held by not being read")
    seen = window.after[policy][client("produce", family), PRODUCE]
    # Several requests are under way at once, and several responses: franz-go waits for the first one's time, looks no
    # second time, and so sends one before the later one's is over. Who does not obey at all is early every time.
    assert seen.early <= max(2, seen.throttled // 5), str(seen)


@pytest.mark.parametrize("word", WORDS)
def test_low_quota_is_held(family: Family, word: str, window: Window) -> None:
    key = (client(word, family), WORDS[word])
    ratio = window.rate("schedule", key) / BYTES_PER_SECOND["schedule"]
    # Wide: 20 s, batches worth up to a second, a busy machine.
    assert 0.6 <= ratio <= 1.3, f"{ratio:.2f}: {window.after['schedule'][key]}"
