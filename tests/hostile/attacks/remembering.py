"""What Sluice can be made to keep: sessions, halves of requests, answers that are not read, names. In MiB."""

import contextlib
import struct
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from protocol.api import DESCRIBE_CLIENT_QUOTAS, JOIN_GROUP, LIST_OFFSETS
from tests.hostile import wire
from tests.hostile.attacks import harm
from tests.hostile.attacks.harm import Harm, Row, survivor
from tests.hostile.scene import Scene, Stage
from tests.hostile.wire import uvarint
from tests.support.frames import request

_SETTLE_SECONDS: Final = 2.0
_SESSIONS: Final = 33
_SESSION_TAGS: Final = 8_300_000
_HALVES: Final = 60
_QUOTAS: Final = 50_000
_ASKING: Final = 60
_NAMES: Final = 4_000
_NAME_BYTES: Final = 32_000
_FRAME_BYTES: Final = 16 * 1024 * 1024 - 1024
# What one attack may leave behind, or have kept while it lasts. Budgets are smaller; CPython gives memory back late.
LEFT_MIB: Final = 48.0
KEPT_MIB: Final = 200.0


def sessions(scene: Scene) -> None:
    """Throttled incremental Fetches with 16.7 MB of partition tags each, a session and a connection for each."""
    tags = uvarint(_SESSION_TAGS) + b"\0\0" * _SESSION_TAGS
    for index in range(_SESSIONS):
        with contextlib.suppress(OSError), scene.connected(time.monotonic() + 5) as client:
            name = f"session-{index}"
            client.send(wire.fetch(name, session=(0, 0), max_bytes=5_000_000))
            client.skip()
            client.send(wire.fetch(name, session=(77, 1), max_bytes=5_000_000) * 3)
            client.send(wire.fetch(name, session=(77, 2 + index), partition_tags=tags))
            for _ in range(4):
                client.skip()


def half_joins(scene: Scene) -> None:
    """60 JoinGroups of 16 MiB of which the last bytes do not come, all at once."""
    half = request(JOIN_GROUP, 9, size=_FRAME_BYTES)[: _FRAME_BYTES - 100]
    _together(scene, half, _HALVES)


def half_controls(scene: Scene) -> None:
    """The same of a quota question, of which all is needed."""
    half = request(DESCRIBE_CLIENT_QUOTAS, 1, size=_FRAME_BYTES)[: _FRAME_BYTES - 100]
    _together(scene, half, _HALVES)


def _together(scene: Scene, data: bytes, count: int) -> None:
    with contextlib.ExitStack() as stack:
        until = time.monotonic() + 30
        for _ in range(count):
            with contextlib.suppress(OSError):
                client = stack.enter_context(scene.connected(until))
                client.send(data)
        time.sleep(1.0)
        scene_peak(scene)


_peaks: Final[dict[int, int]] = {}


def scene_peak(scene: Scene) -> None:
    """Remember the memory that the process has now: connections that did it are open still."""
    _peaks[scene.sluice.process_id] = scene.resident_bytes()


def answers_unread(scene: Scene) -> None:
    """Requests of 20 bytes for all of 50,000 quotas, answers never read."""
    question = request(DESCRIBE_CLIENT_QUOTAS, 1, b"\1\0\0", client_id="x")
    with contextlib.ExitStack() as stack:
        for _ in range(_ASKING):
            with contextlib.suppress(OSError):
                client = stack.enter_context(scene.connected(time.monotonic() + 20))
                client.send(question)
        time.sleep(6.0)
        scene_peak(scene)


def names(scene: Scene) -> None:
    """4,000 client ids of 32 kB on one connection."""
    with contextlib.suppress(OSError), scene.connected(time.monotonic() + 30) as client:
        for index in range(_NAMES):
            name = f"{index}-".ljust(_NAME_BYTES, "n")
            client.ask(wire.api_versions(name))


def names_of_topics(scene: Scene) -> None:
    """A million topics by id, none of which is known, under topic quotas."""
    with contextlib.suppress(OSError), scene.connected(time.monotonic() + 20) as client:
        for block in range(100):
            ids = [struct.pack(">QQ", block + 1, index) for index in range(10_000)]
            client.ask(wire.produce("ids", b"x", version=13, topic_ids=ids))


def slow_readers(scene: Scene) -> None:
    """200 connections that fetch 5 MB each and read nothing."""
    with contextlib.ExitStack() as stack:
        for index in range(200):
            with contextlib.suppress(OSError):
                client = stack.enter_context(scene.connected(time.monotonic() + 10))
                client.send(wire.fetch(f"slow-{index}", max_bytes=5_000_000))
        time.sleep(2.0)
        scene_peak(scene)


def half_requests(scene: Scene) -> None:
    """2,000 connections with half a request of 30 kB each."""
    half = wire.half(LIST_OFFSETS, 7, 60_000)
    with contextlib.ExitStack() as stack:
        for _ in range(2_000):
            with contextlib.suppress(OSError):
                client = stack.enter_context(scene.connected(time.monotonic() + 10))
                client.send(half)
        time.sleep(1.0)
        scene_peak(scene)


def _harm(
    name: str, finding: int, what: str, attack: Callable[[Scene], None], stage: Stage, bar: float
) -> Harm:
    def run() -> float:
        with survivor(stage) as scene:
            with scene.connected() as client:  # what the first connection costs is no attack's doing
                client.ask(wire.api_versions("first"))
            before = scene.resident_bytes()
            attack(scene)
            time.sleep(_SETTLE_SECONDS)
            most = max(scene.resident_bytes(), _peaks.pop(scene.sluice.process_id, 0))
            return (most - before) / (1 << 20)

    return Harm(Row(name, finding, what, "MiB", bar), run)


_MANY_QUOTAS: Final = Stage(
    client_quotas={f"client-{index}": {"producer_byte_rate": 1_000_000} for index in range(_QUOTAS)}
)
_TOPICS: Final = Stage(quota_file='[[quota]]\ntopic = "<default>"\nproducer_byte_rate = 2000000\n')
_PLAIN: Final = Stage()
_HARMS: Final = (
    _harm(
        "sessions", 4, "33 throttled sessions with 16.7 MB of tags, closed again", sessions, _PLAIN, LEFT_MIB
    ),
    _harm("half-joins", 6, "60 JoinGroups of 16 MiB, half sent", half_joins, _PLAIN, KEPT_MIB),
    _harm(
        "half-questions", 6, "60 DescribeClientQuotas of 16 MiB, half sent", half_controls, _PLAIN, KEPT_MIB
    ),
    _harm("unread", 7, "60 × all of 50,000 quotas, answers not read", answers_unread, _MANY_QUOTAS, KEPT_MIB),
    _harm("names", 8, "4,000 client ids of 32 kB on one connection", names, _PLAIN, LEFT_MIB),
    _harm("topic-ids", 8, "a million unknown topic ids, topic quotas", names_of_topics, _TOPICS, KEPT_MIB),
    _harm("slow-readers", 7, "200 Fetches of 5 MB, answers not read", slow_readers, _PLAIN, KEPT_MIB),
    _harm("half-requests", 6, "2,000 requests of 60 kB, half sent", half_requests, _PLAIN, KEPT_MIB),
)
ROWS: Final = tuple(each.row for each in _HARMS)


def measure(names: Collection[str] = ()) -> Mapping[str, float]:
    """Run all, or some; the figures by name."""
    return harm.measure(_HARMS, names)
