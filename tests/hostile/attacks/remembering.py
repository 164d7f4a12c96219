"""What Sluice can be made to keep: sessions, halves of requests, responses that are not read, names. In MiB."""

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from protocol.api import DESCRIBE_CLIENT_QUOTAS, JOIN_GROUP, LIST_OFFSETS
from protocol.primitives import uvarint_bytes
from tests.hostile import scene as harm
from tests.hostile import wire
from tests.hostile.scene import Harm, Row, Scene, Stage, survivor
from tests.support.frames import request

_SETTLE_SECONDS: Final = 2.0
_SESSIONS: Final = 33
_SESSION_SECONDS_MAX: Final = 100.0
_SESSION_OWNER: Final = "sessions"
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
    """33 sessions; then, over the quota, an incremental Fetch with 16.7 MB of partition tags in each."""
    until = time.monotonic() + _SESSION_SECONDS_MAX
    over = threading.Event()
    done = threading.Event()
    greedy = threading.Thread(target=_stay_over_the_quota, args=(scene, until, over, done), daemon=True)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(_SESSIONS):
            client = stack.enter_context(scene.connected(until))
            response = client.ask(wire.fetch(_SESSION_OWNER, session=(0, 0), max_bytes=1))
            # Correlation id, tags, throttle time, error.
            clients.append((client, int.from_bytes(response[11:15], "big")))
        greedy.start()
        over.wait(_SESSION_SECONDS_MAX)
        tags = uvarint_bytes(_SESSION_TAGS) + b"\0\0" * _SESSION_TAGS
        for client, session_id in clients:
            with contextlib.suppress(OSError):
                client.send(wire.fetch(_SESSION_OWNER, session=(session_id, 1), partition_tags=tags))
                client.skip()
    done.set()
    greedy.join()


def _stay_over_the_quota(scene: Scene, until: float, over: threading.Event, done: threading.Event) -> None:
    """Fetch on new connections, so that the client is over its quota all the while."""
    request = wire.fetch(_SESSION_OWNER, max_bytes=5_000_000)
    while time.monotonic() < until and not done.is_set():
        with contextlib.suppress(OSError), scene.connected(until) as client:
            while client.ask(request)[5:9] == bytes(4):  # until a response names a throttle time
                pass
            over.set()
            time.sleep(0.1)


def half_joins(scene: Scene) -> None:
    """60 JoinGroups of 16 MiB of which the last bytes do not come, all at once."""
    _together(scene, [request(JOIN_GROUP, 9, size=_FRAME_BYTES)[:-100]] * _HALVES)


def half_controls(scene: Scene) -> None:
    """The same of a quota question, of which all is needed."""
    _together(scene, [request(DESCRIBE_CLIENT_QUOTAS, 1, size=_FRAME_BYTES)[:-100]] * _HALVES)


def _together(scene: Scene, data: Iterable[bytes], seconds: float = 1.0) -> None:
    """Send each of these on a connection of its own, keep all of them open, and watch the memory for so long."""
    with contextlib.ExitStack() as stack:
        for each in data:
            with contextlib.suppress(OSError):
                stack.enter_context(scene.connected(time.monotonic() + 30)).send(each)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.25)
            scene_peak(scene)


_peaks: Final[dict[int, int]] = {}


def scene_peak(scene: Scene) -> None:
    """Remember the most memory that the process has had: the connections that did it are open still."""
    _peaks[scene.sluice.process_id] = max(scene.resident_bytes(), _peaks.get(scene.sluice.process_id, 0))


def responses_unread(scene: Scene) -> None:
    """Requests of 20 bytes for all of 50,000 quotas, responses never read; they are made a part at a time."""
    _together(scene, [request(DESCRIBE_CLIENT_QUOTAS, 1, b"\1\0\0", client_id="x")] * _ASKING, 12.0)


def names(scene: Scene) -> None:
    """4,000 client ids of 32 kB on one connection."""
    with contextlib.suppress(OSError), scene.connected(time.monotonic() + 30) as client:
        for index in range(_NAMES):
            name = f"{index}-".ljust(_NAME_BYTES, "n")
            client.ask(wire.api_versions(name))


def names_of_topics(scene: Scene) -> None:
    """Half a million topics by id, none of which is known, under topic quotas."""
    with contextlib.suppress(OSError), scene.connected(time.monotonic() + 20) as client:
        for block in range(50):
            ids = [struct.pack(">QQ", block + 1, index) for index in range(10_000)]
            client.ask(wire.produce("ids", b"x", version=13, topic_ids=ids))


def slow_readers(scene: Scene) -> None:
    """200 connections that fetch 5 MB each and read nothing."""
    _together(scene, (wire.fetch(f"slow-{index}", max_bytes=5_000_000) for index in range(200)), 2.0)


def half_requests(scene: Scene) -> None:
    """2,000 connections with half a request of 30 kB each."""
    _together(scene, [wire.half(LIST_OFFSETS, 7, 60_000)] * 2_000)


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

    return Row(name, finding, what, "MiB", bar), run


_MANY_QUOTAS: Final = Stage(
    client_quotas={f"client-{index:0200}": {"producer_byte_rate": 1_000_000} for index in range(_QUOTAS)}
)
_TOPICS: Final = Stage(quota_file='[[quota]]\ntopic = "<default>"\nproducer_byte_rate = 2000000\n')
_PLAIN: Final = Stage()
_KAFKA: Final = Stage("kip13")
_HARMS: Final = (
    _harm(
        "sessions", 4, "33 throttled sessions with 16.7 MB of tags, closed again", sessions, _KAFKA, LEFT_MIB
    ),
    _harm("half-joins", 6, "60 JoinGroups of 16 MiB, half sent", half_joins, _PLAIN, KEPT_MIB),
    _harm(
        "half-questions", 6, "60 DescribeClientQuotas of 16 MiB, half sent", half_controls, _PLAIN, KEPT_MIB
    ),
    _harm(
        "unread", 7, "60 × all of 50,000 quotas, responses not read", responses_unread, _MANY_QUOTAS, KEPT_MIB
    ),
    _harm("names", 8, "4,000 client ids of 32 kB on one connection", names, _PLAIN, LEFT_MIB),
    _harm("topic-ids", 8, "500,000 unknown topic ids, topic quotas", names_of_topics, _TOPICS, KEPT_MIB),
    _harm("slow-readers", 7, "200 Fetches of 5 MB, responses not read", slow_readers, _PLAIN, KEPT_MIB),
    _harm("half-requests", 6, "2,000 requests of 60 kB, half sent", half_requests, _PLAIN, KEPT_MIB),
)
ROWS: Final = tuple(row for row, _ in _HARMS)
measure: Final = partial(harm.measure, _HARMS)
