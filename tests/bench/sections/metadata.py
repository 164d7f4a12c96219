"""Metadata of very many partitions: how long the loop is held by rewriting it, and whether others notice.

Twice: a made-up response through `protocol.messages.metadata` alone, and a real topic set on the real broker, where one
client asks for all of it again and again while others produce at a fixed rate and have their latency taken.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from protocol.messages.metadata import rewrite_head
from tests.bench import wire
from tests.bench.figures import percentile
from tests.bench.lanes import DIRECT, HAPROXY, SLUICE, Lane
from tests.bench.report import Bar, Outcome, Table, tabulate
from tests.bench.stage import Stage

LANES: Final = (DIRECT, HAPROXY, SLUICE)
HELD_LIMIT_MS: Final = 5.0
"""What "a few ms" is taken to mean."""
_BROKERS: Final = 100
_VERSION: Final = 12
_REPEATS: Final = 200
_PRODUCE_RATE: Final = 200.0
_ASK_PAUSE_SECONDS: Final = 0.05
_TOPIC: Final = "beside-metadata"
_TIMES: Final = ("p50 alone", "p99 alone", "p50", "p99", "max", "response p50")


def run(stage: Stage) -> Outcome:
    """Measure the rewriting by itself, then on the broker."""
    options = stage.options
    per_topic = options.metadata_partitions // options.metadata_topics
    scripted = sorted(rewrite_times(options.metadata_topics, per_topic))
    stage.say(f"metadata: creating {options.metadata_partitions:,} partitions")
    stage.create_topic(_TOPIC)
    for number in range(options.metadata_topics):
        stage.create_topic(f"many-{number:04d}", per_topic)
    stage.wait_for_partitions("many-", per_topic * options.metadata_topics)
    live = {}
    with stage.lanes.open(*stage.lanes.usable(*LANES)) as lanes:
        for lane in lanes:
            live[lane.name] = _beside(stage, lane)
            shown = ", ".join(f"{key} {value:.2f}" for key, value in live[lane.name].items())
            stage.say(f"metadata {lane.name}: {shown}")
    bars = [Bar("Metadata: the loop is held, p99", percentile(scripted, 99), HELD_LIMIT_MS, "ms")]
    if SLUICE in live:
        slower = live[SLUICE]["p99"] - live[DIRECT]["p99"]
        bars.append(Bar("Metadata: others' p99 beside it, over direct", slower, HELD_LIMIT_MS, "ms"))
    return Outcome([_scripted_table(options.metadata_partitions, scripted), _live_table(live)], bars)


def rewrite_times(topics: int, partitions_per_topic: int) -> list[float]:
    """Return how many ms each of some rewritings of a made-up response of 100 brokers took."""
    frame = wire.metadata_response(_BROKERS, topics, partitions_per_topic)
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter_ns()
        replaced, _ = rewrite_head(frame, _VERSION, lambda node, _host, _port: ("sluice", 19100 + node))
        times.append((time.perf_counter_ns() - began) / 1e6)
        assert replaced, "the whole response was shown"
    return times


def _beside(stage: Stage, lane: Lane) -> dict[str, float]:
    """Take the latency of small requests alone, then beside a client that asks for all metadata."""
    seconds = stage.options.metadata_seconds
    with (
        stage.generator(lane.port, _TOPIC, size=100, connections=4) as produces,
        stage.generator(lane.port, _TOPIC, size=100, connections=1) as asks,
    ):
        alone = produces.ask(f"open {seconds} {_PRODUCE_RATE}")
        asks.say(f"metadata {seconds} {_ASK_PAUSE_SECONDS}")
        beside = produces.ask(f"open {seconds} {_PRODUCE_RATE}")
        received = json.loads(asks.hear())
    return {
        **{f"{name} alone": alone[name] for name in ("p50", "p99")},
        **{name: beside[name] for name in ("p50", "p99", "max")},
        **{f"response {name}": received[name] for name in ("p50", "bytes", "count")},
    }


def _scripted_table(partitions: int, ordered: list[float]) -> Table:
    cells = tuple(f"{percentile(ordered, percent):.3f}" for percent in (50, 99, 100))
    columns = ("partitions", "brokers", "p50 ms", "p99 ms", "max ms")
    note = "Only the head of the response is read and replaced; topics and partitions pass untouched."
    row = (f"{partitions:,}", str(_BROKERS), *cells)
    return Table("Metadata: the rewriting alone", columns, (row,), note)


def _live_table(live: dict[str, dict[str, float]]) -> Table:
    note = f"Produce at {_PRODUCE_RATE:g}/s over four connections, alone and beside a client that asks for everything."
    columns: dict[str, Callable[[str], object]] = {
        "lane": str,
        **{f"{name} ms": partial(lambda name, lane: f"{live[lane][name]:.2f}", name) for name in _TIMES},
        "response kB": lambda lane: f"{live[lane]['response bytes'] / 1e3:.0f}",
        "responses": lambda lane: f"{live[lane]['response count']:.0f}",
    }
    return tabulate("Metadata: what others notice", live, columns, note)
