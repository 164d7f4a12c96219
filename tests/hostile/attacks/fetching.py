"""Ways round the consumer quota: replica ids, pipelines, herds, unread responses; Fetch and ShareFetch."""

import itertools
import time
from collections.abc import Callable
from typing import Final

from tests.hostile import wire
from tests.hostile.attacks.evasion import MEGABYTE, Evasion
from tests.hostile.scene import Scene, swarm

_DEPTH: Final = 50
_HERD: Final = 60
_MAX_BYTES: Final = 5 * MEGABYTE
# What one response may hold: half a second's quota, rounded up to a batch of 100 kB, and the rest of the frame.
_RESPONSE: Final = MEGABYTE + 100_000 + 500

Run = Callable[[Scene, str, float], None]
Ask = Callable[[str], bytes]


def fetch(version: int = 12, replica_id: int = -1) -> Ask:
    """A Fetch that allows 5 MB."""
    return lambda client_id: wire.fetch(
        client_id,
        version=version,
        max_bytes=_MAX_BYTES,
        partition_max_bytes=_MAX_BYTES,
        replica_id=replica_id,
    )


def share(client_id: str) -> bytes:
    """A ShareFetch that allows 5 MB."""
    return wire.share_fetch(client_id, max_bytes=_MAX_BYTES)


def sharing(client_id: str) -> bytes:
    """A ShareFetch that acknowledges what was never acquired, and allows 5 MB."""
    return wire.share_fetch(client_id, max_bytes=_MAX_BYTES, acknowledged=(0, 1_000_000))


def one_by_one(ask: Ask) -> Run:
    """One connection, one request after the other."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = ask(client_id)
        with scene.connected(until) as client:
            while True:
                client.send(request)
                client.skip()

    return run


def pipelined(ask: Ask) -> Run:
    """50 requests before the first response, on one connection."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = ask(client_id)

        def once(_: int) -> None:
            with scene.connected(until) as client:
                client.send(request * _DEPTH)
                while True:
                    client.skip()
                    client.send(request)

        swarm(1, until, once)

    return run


def reconnects(ask: Ask) -> Run:
    """A new connection for each request, eight at a time."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = ask(client_id)

        def once(_: int) -> None:
            with scene.connected(until) as client:
                client.send(request)
                client.skip()

        swarm(8, until, once)

    return run


def herd(ask: Ask, connections: int = _HERD, every_seconds: float = 1.5) -> Run:
    """Connections whose requests wait at the broker; now and then there are records, for all at once."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = ask(client_id)

        def once(index: int) -> None:
            if index == connections:  # the one that writes
                time.sleep(min(every_seconds, max(0.0, until - time.monotonic())))
                scene.broker.release(client_id)
                return
            with scene.connected(until) as client:
                while True:
                    client.send(request)
                    client.skip()

        swarm(connections + 1, until, once)

    return run


def patient(client_id: str) -> bytes:
    """A Fetch that waits for ten seconds, if it may."""
    return wire.fetch(client_id, max_bytes=_MAX_BYTES, partition_max_bytes=_MAX_BYTES, max_wait_ms=10_000)


def leaves(ask: Ask) -> Run:
    """Ask, wait until the response is on its way, and be gone before it is read; 20 at a time."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = ask(client_id)

        def once(_: int) -> None:
            with scene.connected(until) as client:
                client.send(request)
                client.socket.recv(4)
                client.reset()

        swarm(20, until, once)

    return run


def closes_early(ask: Ask) -> Run:
    """Ask and close at once, 20 at a time."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = ask(client_id)

        def once(_: int) -> None:
            with scene.connected(until) as client:
                client.send(request)
                time.sleep(0.01)

        swarm(20, until, once)

    return run


def all_versions(scene: Scene, client_id: str, until: float) -> None:
    """Every version of Fetch in turn, each on a new connection."""
    requests = itertools.cycle([fetch(version)(client_id) for version in range(4, 19)])

    def once(_: int) -> None:
        with scene.connected(until) as client:
            client.send(next(requests))
            client.skip()

    swarm(1, until, once)


def _evasion(name: str, finding: int, what: str, run: Run, connections: int = 1) -> Evasion:
    return Evasion(name, finding, what, "fetch", _RESPONSE, run, connections)


FETCHING: Final = (
    _evasion("fetch-stays", 11, "one Fetch after the other (for comparison)", one_by_one(fetch())),
    _evasion("replica-v7", 10, "replica_id = 1, Fetch v7", one_by_one(fetch(7, 1))),
    _evasion("replica-v12", 10, "replica_id = 1, Fetch v12", one_by_one(fetch(12, 1))),
    _evasion("replica-v17", 10, "tagged ReplicaState, Fetch v17", one_by_one(fetch(17, 1))),
    _evasion("debug-v12", 10, "replica_id = -2 (debugging), Fetch v12", one_by_one(fetch(12, -2))),
    _evasion("fetch-pipelined", 11, "50 Fetches pipelined on one connection", pipelined(fetch())),
    _evasion("replica-pipelined", 11, "the same with replica_id = 1", pipelined(fetch(12, 1))),
    _evasion("share-stays", 11, "one ShareFetch after the other", one_by_one(share)),
    _evasion("share-pipelined", 11, "50 ShareFetches pipelined on one connection", pipelined(share)),
    _evasion("share-acknowledging", 11, "the same, with made-up acknowledgements", pipelined(sharing)),
    _evasion("fetch-herd", 11, "60 Fetches parked, then records for all", herd(fetch()), _HERD),
    _evasion(
        "fetch-herd-patient",
        11,
        "the same after 4 s, max_wait_ms 10 s",
        herd(patient, every_seconds=4),
        _HERD,
    ),
    _evasion("share-herd", 11, "60 ShareFetches parked, then records for all", herd(share), _HERD),
    _evasion("fetch-reconnects", 11, "a new connection for each Fetch", reconnects(fetch()), 8),
    _evasion("share-reconnects", 11, "a new connection for each ShareFetch", reconnects(share), 8),
    _evasion("fetch-leaves", 11, "Fetch, gone before its response is read", leaves(fetch()), 20),
    _evasion("share-leaves", 11, "ShareFetch, gone before its response is read", leaves(share), 20),
    _evasion("fetch-closes", 11, "Fetch, closed 10 ms later", closes_early(fetch()), 20),
    _evasion("fetch-versions", 11, "Fetch 4-18 in turn, a new connection for each", all_versions),
)
