"""Round the producer quota: reconnects, many at once, acks=0, versions, announcements, names in turn."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Final

from tests.hostile import wire
from tests.hostile.attacks.evasion import EVERY_CLIENT_ID, MEGABYTE, Evasion
from tests.hostile.scene import QUOTA, Scene, Stage, limits, swarm
from tests.support.frames import topic_id

_RECORDS: Final = bytes(MEGABYTE)
_VERSIONS: Final = (0, 1, 2, *range(3, 14))
_FRAME_BYTES_MAX: Final = 20 * MEGABYTE
_CONNECTIONS_AT_ONCE: Final = 60
_NAMES_IN_TURN: Final = 40
_UNKNOWN: Final = 1000

Run = Callable[[Scene, str, float], None]


def stays(scene: Scene, client_id: str, until: float) -> None:
    """One connection, one request after the other: the baseline of the other attacks."""
    request = wire.produce(client_id, _RECORDS)
    with scene.connected(until) as client:
        while True:
            client.ask(request)


def reconnects(acks: int, threads: int = 8) -> Run:
    """A new connection for each request of 1 MB."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = wire.produce(client_id, _RECORDS, acks=acks)

        def once(_: int) -> None:
            with scene.connected(until) as client:
                client.send(request)
                if acks:
                    client.skip()

        swarm(threads, until, once)

    return run


def at_once(scene: Scene, client_id: str, until: float) -> None:
    """60 connections with 5 MB each, all at the same moment, again and again."""
    request = wire.produce(client_id, bytes(5 * MEGABYTE))

    def once(_: int) -> None:
        with scene.connected(until) as client:
            while True:
                client.ask(request)

    swarm(_CONNECTIONS_AT_ONCE, until, once)


def pipelined(acks: int) -> Run:
    """Ten requests of 1 MB sent before the first response, on one connection."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = wire.produce(client_id, _RECORDS, acks=acks)

        def once(_: int) -> None:
            with scene.connected(until) as client:
                while True:
                    for _ in range(10):
                        client.send(request)
                    for _ in range(10 * bool(acks)):
                        client.skip()

        swarm(4, until, once)

    return run


def names_in_turn(scene: Scene, client_id: str, until: float) -> None:
    """One user's 40 client ids in turn on one connection: more than a connection keeps apart."""
    requests = [wire.produce(f"{client_id}/{index}", bytes(200_000)) for index in range(_NAMES_IN_TURN)]

    def once(_: int) -> None:
        with scene.connected(until) as client:
            for request in itertools.cycle(requests):
                client.ask(request)

    swarm(4, until, once)


def announced(drip_bytes: int) -> Run:
    """20 connections announce 1 MB each and drip; for the last third of the time all send the rest at once."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = wire.produce(client_id, _RECORDS)
        release = time.monotonic() + (until - time.monotonic()) * 2 / 3

        def once(_: int) -> None:
            with scene.connected(until) as client:
                client.send(request[:64])
                sent = 64
                while time.monotonic() < release and sent < len(request) // 2:
                    client.send(request[sent : sent + drip_bytes])
                    sent += drip_bytes
                    time.sleep(1)
                time.sleep(max(0.0, release - time.monotonic()))
                client.send(request[sent:])
                client.skip()

        swarm(20, until, once)

    return run


def closes_in_the_middle(scene: Scene, client_id: str, until: float) -> None:
    """Requests of 5 MB whose last 100 kB never come."""
    request = wire.produce(client_id, bytes(5 * MEGABYTE))[:4_900_000]

    def once(_: int) -> None:
        with scene.connected(until) as client:
            client.send(request)
            client.reset()

    swarm(4, until, once)


def versions(scene: Scene, client_id: str, until: float) -> None:
    """Every version in turn, a new connection for each."""
    requests = [wire.produce(client_id, _RECORDS, version=version) for version in _VERSIONS]
    turn = itertools.cycle(requests)
    lock = threading.Lock()

    def once(_: int) -> None:
        with lock:
            request = next(turn)
        with scene.connected(until) as client:
            client.ask(request)

    swarm(4, until, once)


def transactional(scene: Scene, client_id: str, until: float) -> None:
    """Transactional requests, each with an id of its own."""
    names = itertools.count()

    def once(_: int) -> None:
        name = f"transaction-{next(names)}".ljust(200, "-")
        with scene.connected(until) as client:
            client.ask(wire.produce(client_id, _RECORDS, transactional_id=name))

    swarm(4, until, once)


def tiny(scene: Scene, client_id: str, until: float) -> None:
    """Requests of one byte of records, a thousand in one write."""
    requests = wire.produce(client_id, b"x", acks=0) * 1000

    def once(_: int) -> None:
        with scene.connected(until) as client:
            while True:
                client.send(requests)

    swarm(4, until, once)


def largest(scene: Scene, client_id: str, until: float) -> None:
    """Requests of exactly limits.frame_bytes_max, on ten connections."""
    empty = len(wire.produce(client_id, bytes(_FRAME_BYTES_MAX))) - 4 - _FRAME_BYTES_MAX
    request = wire.produce(client_id, bytes(_FRAME_BYTES_MAX - empty))
    assert len(request) == 4 + _FRAME_BYTES_MAX, "the limit is the frame's, without its length"

    def once(_: int) -> None:
        with scene.connected(until) as client:
            client.ask(request)

    swarm(10, until, once)


def behind_unknown_topics(version: int) -> Run:
    """A thousand unknown topics, and behind them the one with a quota."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        names = [f"unknown-{index}" for index in range(_UNKNOWN)]
        ids = [index.to_bytes(16, "big") for index in range(1, _UNKNOWN + 1)]
        request = (
            wire.produce(client_id, _RECORDS, version=version, topic_ids=[*ids, topic_id(wire.TOPIC)])
            if version >= 13
            else wire.produce(client_id, _RECORDS, version=version, topics=[*names, wire.TOPIC])
        )
        with scene.connected(until) as client:
            while True:
                client.ask(request)

    return run


_TOPICS: Final = Stage(quota_file=f'[[quota]]\ntopic = "{wire.TOPIC}"\nproducer_byte_rate = {QUOTA}\n')
_USER: Final = Stage(user_quotas={"ANONYMOUS": limits(QUOTA)}, client_quotas={})
_SMALL_FRAMES: Final = Stage(sections={"limits": {"frame_bytes_max": _FRAME_BYTES_MAX}})
_ONE: Final = MEGABYTE + 500


def _evasion(
    name: str,
    finding: int,
    what: str,
    run: Run,
    connections: int = 1,
    request_bytes: int = MEGABYTE + 500,
    stage: Stage = EVERY_CLIENT_ID,
) -> Evasion:
    return Evasion(name, finding, what, "produce", request_bytes, run, connections, stage)


_FIVE: Final = 5 * MEGABYTE + 500
PRODUCING: Final = (
    _evasion("stays", 13, "one connection that stays, 1 MB a request (for comparison)", stays),
    _evasion("reconnects", 13, "a new connection for each Produce of 1 MB", reconnects(1), 8),
    _evasion("reconnects-acks0", 13, "the same with acks=0", reconnects(0), 8),
    _evasion("at-once", 13, "60 connections × 5 MB at once", at_once, 60, _FIVE),
    _evasion("pipelined", 13, "10 × 1 MB pipelined on each of 4 connections", pipelined(1), 4),
    _evasion("pipelined-acks0", 13, "the same with acks=0", pipelined(0), 4),
    _evasion("names-in-turn", 13, "one user's 40 client ids in turn", names_in_turn, 4, 201_000, _USER),
    _evasion("announced-1B", 14, "20 × 1 MB announced, 1 byte/s, the rest at once", announced(1), 20),
    _evasion("announced-16K", 14, "the same, 16 KiB/s", announced(16_384), 20),
    _evasion("mid-frame", 14, "5 MB, closed 100 kB before its end", closes_in_the_middle, 4, _FIVE),
    _evasion("versions", 13, "Produce 0-13 in turn, a new connection for each", versions, 4),
    _evasion("transactional", 13, "transactional ids, a new connection for each", transactional, 4),
    _evasion("tiny", 13, "records of 1 byte, 1,000 requests a write, acks=0", tiny, 4, 500),
    _evasion(
        "largest",
        13,
        "requests of exactly frame_bytes_max (20 MB)",
        largest,
        10,
        _FRAME_BYTES_MAX,
        _SMALL_FRAMES,
    ),
    _evasion(
        "behind-names",
        12,
        "1,000 unknown topics before the limited one, v9",
        behind_unknown_topics(9),
        1,
        2 * MEGABYTE,
        _TOPICS,
    ),
    _evasion("behind-ids", 12, "the same by id, v13", behind_unknown_topics(13), 1, 2 * MEGABYTE, _TOPICS),
)
