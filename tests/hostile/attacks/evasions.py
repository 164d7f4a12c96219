"""Ways round the quota: they run for a time, and bytes are counted at the broker.

Most are a number of connections that all do one thing again and again (`connections`), or one that stays
(`connection`); what is done on a connection is a function of the connection and of what is sent.

PRODUCING   reconnects, many at once, acks=0, versions, announcements, names in turn
NAMING      another spelling of the same name: OAUTHBEARER tokens that brokers accept as alice's (RFC 6750). The
            brokers' grammar of a token is b64token, with `~`, `+`, `/` and `=` at its end; what is no base64url is no
            matter in a signature that the broker's validator decodes leniently
FETCHING    replica ids, pipelines, herds, unread responses; Fetch and ShareFetch
"""

import base64
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tests.hostile import wire
from tests.hostile.broker_program import PARKED
from tests.hostile.scene import (
    QUOTA,
    Allowance,
    Scene,
    Stage,
    as_kafka,
    fullest,
    limits,
    scheduled,
    staged,
    swarm,
)
from tests.hostile.wire import Client
from tests.support.frames import topic_id

T = TypeVar("T")
Run = Callable[[Scene, str, float], None]
"""Attacks in the name of a client id until a moment."""
MEGABYTE: Final = 1_000_000
FETCH_MAX_BYTES: Final = 5 * MEGABYTE + 500
EVERY_CLIENT_ID: Final = Stage()


def connections(count: int, build: Callable[[str], T], act: Callable[[Client, T], None]) -> Run:
    """Act on so many connections at a time, each made anew when that is done or the proxy closes it."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        made = build(client_id)

        def once(_: int) -> None:
            with scene.connected(until) as client:
                act(client, made)

        swarm(count, until, once)

    return run


def connection(build: Callable[[str], T], act: Callable[[Client, T], None]) -> Run:
    """Act on one connection that stays; that it is closed is a failure."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        made = build(client_id)
        with scene.connected(until) as client:
            act(client, made)

    return run


def asks_once(client: Client, request: bytes) -> None:
    """One request, and its response."""
    client.send(request)
    client.skip()


def asks(client: Client, request: bytes) -> None:
    """One request after the other."""
    while True:
        asks_once(client, request)


def asks_in_turn(client: Client, requests: Sequence[bytes]) -> None:
    """One request after the other, each of them in turn."""
    for request in itertools.cycle(requests):
        asks_once(client, request)


def asks_next(client: Client, requests: Iterator[bytes]) -> None:
    """The next one of the requests of all connections."""
    asks_once(client, next(requests))


def sends(client: Client, request: bytes) -> None:
    """One request, whose response is not waited for."""
    client.send(request)


def sends_on(client: Client, requests: bytes) -> None:
    """The same bytes for ever."""
    while True:
        client.send(requests)


def sends_and_resets(client: Client, data: bytes) -> None:
    """Some bytes, and a reset behind them."""
    client.send(data)
    client.reset()


@dataclass(frozen=True, slots=True)
class Evasion:
    """One way round the quota.

    Args:
        name: of the test and of the client ids that it uses, each by itself or (`by_prefix`) all together.
        finding: its number in issue 14.
        what: the row of the table.
        direction: `produce` or `fetch`.
        request_bytes: the largest request, or the largest response that a Fetch may bring.
        run: does it until a moment.
        connections: how many it has at a time.
        stage: where it takes place, the policy aside; evasions of one stage may run beside each other.
    """

    name: str
    finding: int
    what: str
    direction: str
    request_bytes: int
    run: Run
    connections: int = 1
    stage: Stage = EVERY_CLIENT_ID

    @property
    def client_id(self) -> str:
        """In whose name it is done."""
        return (PARKED if "herd" in self.name else "") + self.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evasion got.

    Attributes:
        fullest_second: the most bytes in any second.
        total: of the whole run.
        seconds: how long that was.
    """

    evasion: Evasion
    stage: Stage
    fullest_second: int
    total: int
    seconds: float
    failed: str = ""

    @property
    def allowance(self) -> Allowance:
        """What may pass."""
        size = self.evasion.request_bytes
        if self.stage.policy == "schedule":
            return scheduled(QUOTA, size, self.seconds)
        if self.evasion.direction == "fetch":
            size = FETCH_MAX_BYTES  # `kip13` allows ten seconds' quota in one response
        return as_kafka(QUOTA, size, self.seconds, self.evasion.connections, self.stage.hold_seconds[1])

    @property
    def factor_of_second(self) -> float:
        """The fullest second over the quota."""
        return self.fullest_second / QUOTA

    @property
    def factor_of_run(self) -> float:
        """The run over the quota."""
        return self.total / (QUOTA * self.seconds)


def run_together(scene: Scene, evasions: Sequence[Evasion], seconds: float) -> list[Outcome]:
    """Run some evasions beside each other; each has a quota of its own."""
    scene.broker.order(reset=True)
    began = time.monotonic()
    until = began + seconds
    failures: dict[str, str] = {}

    def run(evasion: Evasion) -> None:
        try:
            evasion.run(scene, evasion.client_id, until)
        except TimeoutError:
            pass
        except Exception as error:  # noqa: BLE001 - told with the outcome, and asserted there
            failures[evasion.name] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in evasions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = time.monotonic()
    outcomes = []
    for each in evasions:
        counted, failed = scene.broker.counted(each.direction, each.client_id), failures.get(each.name, "")
        seconds = ended - began
        outcomes.append(Outcome(each, scene.stage, fullest(counted), sum(counted.values()), seconds, failed))
    return outcomes


def measure(
    evasions: Iterable[Evasion],
    policy: str,
    seconds: float,
    *,
    hold_seconds: tuple[float, float],
    beside: int,
) -> list[Outcome]:
    """Run them under a policy, a proxy for each stage, at most `beside` of them at a time."""
    outcomes: list[Outcome] = []
    left = list(evasions)
    while left:
        stage = left[0].stage
        here = [each for each in left if each.stage is stage]
        left = [each for each in left if each.stage is not stage]
        with staged(replace(stage, policy=policy, hold_seconds=hold_seconds)) as scene:
            for first in range(0, len(here), beside):
                outcomes += run_together(scene, here[first : first + beside], seconds)
    return outcomes


_ALICE: Final = Stage(user_quotas={"alice": limits(QUOTA)}, client_quotas={})
_SIGNATURE: Final = "c2lnbmF0dXJlLW9mLXRoaXMtdG9rZW4"


def token(signature: str, padding: str = "") -> str:
    """A token of alice's with such a signature; `padding` stands behind its payload."""
    parts = [{"alg": "RS256"}, {"sub": "alice", "iat": 1, "exp": 1 << 40}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((encoded[0], encoded[1] + padding, signature))


def as_alice(bearer: str, head: str = "n,,") -> Run:
    """Log in with a token, and produce 1 MB after 1 MB."""

    def act(client: Client, request: bytes) -> None:
        client.ask(wire.sasl_handshake("OAUTHBEARER"))
        client.ask(wire.sasl_token(f"{head}\x01auth=Bearer {bearer}\x01\x01".encode()))
        asks(client, request)

    return connection(lambda client_id: wire.produce(client_id, bytes(MEGABYTE)), act)


def _token(name: str, what: str, run: Run) -> Evasion:
    return Evasion(f"token-{name}", 15, f"OAUTHBEARER: {what}", "produce", MEGABYTE + 500, run, 1, _ALICE)


# One by one: they share alice's quota.
NAMING: Final = (
    _token("plain", "the token as it is (for comparison)", as_alice(token(_SIGNATURE))),
    _token("equals", "`=` behind its signature", as_alice(token(_SIGNATURE + "="))),
    _token("tilde", "`~` in its signature", as_alice(token("~" + _SIGNATURE))),
    _token("plus", "`+/` in its signature", as_alice(token("+/" + _SIGNATURE))),
    _token("authzid", "an authorization id of its own", as_alice(token(_SIGNATURE), "n,a=alice,")),
)


_RECORDS: Final = bytes(MEGABYTE)
_FRAME_BYTES_MAX: Final = 20 * MEGABYTE
_NAMES_IN_TURN: Final = 40
_UNKNOWN: Final = 1000


def produce(size: int = MEGABYTE, acks: int = 1) -> Callable[[str], bytes]:
    """A Produce with so many bytes of records."""
    return lambda client_id: wire.produce(client_id, bytes(size), acks=acks)


def pipelines(client: Client, request: bytes) -> None:
    """Ten requests before the first response."""
    while True:
        client.send(request * 10)
        for _ in range(10):
            client.skip()


def names_in_turn(client_id: str) -> list[bytes]:
    """One user's 40 client ids: more than a connection keeps apart."""
    return [wire.produce(f"{client_id}/{index}", bytes(200_000)) for index in range(_NAMES_IN_TURN)]


def every_version(client_id: str) -> Iterator[bytes]:
    """Every version in turn."""
    return itertools.cycle([wire.produce(client_id, _RECORDS, version=version) for version in range(14)])


def transactional(client_id: str) -> Iterator[bytes]:
    """Transactional requests, each with an id of its own."""

    def request(number: int) -> bytes:
        name = f"transaction-{number}".ljust(200, "-")
        return wire.produce(client_id, _RECORDS, transactional_id=name)

    return map(request, itertools.count())


def largest(client_id: str) -> bytes:
    """A request of exactly limits.frame_bytes_max."""
    empty = len(wire.produce(client_id, bytes(_FRAME_BYTES_MAX))) - 4 - _FRAME_BYTES_MAX
    request = wire.produce(client_id, bytes(_FRAME_BYTES_MAX - empty))
    assert len(request) == 4 + _FRAME_BYTES_MAX, "the limit is the frame's, without its length"
    return request


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


def behind_unknown_names(client_id: str) -> bytes:
    """A thousand unknown topics, and behind them the one with a quota."""
    names = [f"unknown-{index}" for index in range(_UNKNOWN)]
    return wire.produce(client_id, _RECORDS, version=9, topics=[*names, wire.TOPIC])


def behind_unknown_ids(client_id: str) -> bytes:
    """The same by id."""
    ids = [index.to_bytes(16, "big") for index in range(1, _UNKNOWN + 1)]
    return wire.produce(client_id, _RECORDS, version=13, topic_ids=[*ids, topic_id(wire.TOPIC)])


_TOPICS: Final = Stage(quota_file=f'[[quota]]\ntopic = "{wire.TOPIC}"\nproducer_byte_rate = {QUOTA}\n')
_USER: Final = Stage(user_quotas={"ANONYMOUS": limits(QUOTA)}, client_quotas={})
_SMALL_FRAMES: Final = Stage(sections={"limits": {"frame_bytes_max": _FRAME_BYTES_MAX}})
_TWO: Final = 2 * MEGABYTE
_FIVE: Final = 5 * MEGABYTE + 500


def _producing(
    name: str,
    what: str,
    run: Run,
    at_a_time: int = 1,
    size: int = MEGABYTE + 500,
    stage: Stage = EVERY_CLIENT_ID,
    finding: int = 13,
) -> Evasion:
    return Evasion(name, finding, what, "produce", size, run, at_a_time, stage)


_ANEW: Final = "a new connection for each"
_ANNOUNCED: Final = "20 × 1 MB announced"
_EXACTLY: Final = "requests of exactly frame_bytes_max"
_BEHIND: Final = "1,000 unknown topics before the limited one"
_NAMES: Final = connections(4, names_in_turn, asks_in_turn)
_NO_END: Final = connections(4, lambda name: produce(5 * MEGABYTE)(name)[:4_900_000], sends_and_resets)
_TINY: Final = connections(4, lambda name: produce(1, acks=0)(name) * 1000, sends_on)
_LARGEST: Final = connections(10, largest, asks_once)
_BEHIND_NAMES: Final = connection(behind_unknown_names, asks)
_BEHIND_IDS: Final = connection(behind_unknown_ids, asks)
_STAYS: Final = connection(produce(), asks)
_AT_ONCE: Final = connections(60, produce(5 * MEGABYTE), asks)
_PIPELINED: Final = connections(4, produce(), pipelines)
PRODUCING: Final = (
    _producing("stays", "one connection that stays, 1 MB a request (for comparison)", _STAYS),
    _producing("reconnects", f"{_ANEW} Produce of 1 MB", connections(8, produce(), asks_once), 8),
    _producing("reconnects-acks0", "the same with acks=0", connections(8, produce(acks=0), sends), 8),
    _producing("at-once", "60 connections × 5 MB at once", _AT_ONCE, 60, _FIVE),
    _producing("pipelined", "10 × 1 MB pipelined on each of 4 connections", _PIPELINED, 4),
    _producing("pipelined-acks0", "the same with acks=0", connections(4, produce(acks=0), sends_on), 4),
    _producing("names-in-turn", "one user's 40 client ids in turn", _NAMES, 4, 201_000, _USER),
    _producing("announced-1B", f"{_ANNOUNCED}, 1 byte/s, the rest at once", announced(1), 20, finding=14),
    _producing("announced-16K", "the same, 16 KiB/s", announced(16_384), 20, finding=14),
    _producing("mid-frame", "5 MB, closed 100 kB before its end", _NO_END, 4, _FIVE, finding=14),
    _producing("versions", f"Produce 0-13 in turn, {_ANEW}", connections(4, every_version, asks_next), 4),
    _producing("transactional", f"transactional ids, {_ANEW}", connections(4, transactional, asks_next), 4),
    _producing("tiny", "records of 1 byte, 1,000 requests a write, acks=0", _TINY, 4, 500),
    _producing("largest", f"{_EXACTLY} (20 MB)", _LARGEST, 10, _FRAME_BYTES_MAX, _SMALL_FRAMES),
    _producing("behind-names", f"{_BEHIND}, v9", _BEHIND_NAMES, 1, _TWO, _TOPICS, 12),
    _producing("behind-ids", "the same by id, v13", _BEHIND_IDS, 1, _TWO, _TOPICS, 12),
)


_DEPTH: Final = 50
_HERD: Final = 60
_MAX_BYTES: Final = 5 * MEGABYTE
# What one response may hold: half a second's quota, rounded up to a batch of 100 kB, and the rest of the frame.
_RESPONSE: Final = MEGABYTE + 100_000 + 500

Ask = Callable[[str], bytes]


def fetch(version: int = 12, replica_id: int = -1, max_wait_ms: int = 500) -> Ask:
    """A Fetch that allows 5 MB."""
    return lambda client_id: wire.fetch(
        client_id,
        version=version,
        max_bytes=_MAX_BYTES,
        partition_max_bytes=_MAX_BYTES,
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
    )


def share(client_id: str) -> bytes:
    """A ShareFetch that allows 5 MB."""
    return wire.share_fetch(client_id, max_bytes=_MAX_BYTES)


def sharing(client_id: str) -> bytes:
    """A ShareFetch that acknowledges what was never acquired, and allows 5 MB."""
    return wire.share_fetch(client_id, max_bytes=_MAX_BYTES, acknowledged=(0, 1_000_000))


def pipelines_deep(client: Client, request: bytes) -> None:
    """50 requests before the first response."""
    client.send(request * _DEPTH)
    while True:
        client.skip()
        client.send(request)


def leaves(client: Client, request: bytes) -> None:
    """Ask, wait until the response is on its way, and be gone before it is read."""
    client.send(request)
    client.socket.recv(4)
    client.reset()


def closes_early(client: Client, request: bytes) -> None:
    """Ask and close at once."""
    client.send(request)
    time.sleep(0.01)


def every_fetch(client_id: str) -> "itertools.cycle[bytes]":
    """Every version of Fetch in turn."""
    return itertools.cycle([fetch(version)(client_id) for version in range(4, 19)])


def herd(ask: Ask, every_seconds: float = 1.5) -> Run:
    """Connections whose requests wait at the broker; now and then there are records, for all at once."""

    def run(scene: Scene, client_id: str, until: float) -> None:
        request = ask(client_id)

        def once(index: int) -> None:
            if index == _HERD:  # the one that writes
                time.sleep(min(every_seconds, max(0.0, until - time.monotonic())))
                scene.broker.order(release=client_id)
                return
            with scene.connected(until) as client:
                asks(client, request)

        swarm(_HERD + 1, until, once)

    return run


def _fetching(name: str, what: str, run: Run, at_a_time: int = 1, finding: int = 11) -> Evasion:
    return Evasion(name, finding, what, "fetch", _RESPONSE, run, at_a_time)


_ASKED: Final = connection(fetch(), asks)
_DEEP, _DEEP_REPLICA = (connections(1, fetch(12, replica), pipelines_deep) for replica in (-1, 1))
_DEEP_SHARE, _DEEP_SHARING = (connections(1, ask, pipelines_deep) for ask in (share, sharing))
_AGAIN, _AGAIN_SHARE = (connections(8, ask, asks_once) for ask in (fetch(), share))
_LEAVES, _LEAVES_SHARE = (connections(20, ask, leaves) for ask in (fetch(), share))
_UNREAD: Final = "gone before its response is read"
_PATIENT: Final = fetch(max_wait_ms=10_000)
FETCHING: Final = (
    _fetching("fetch-stays", "one Fetch after the other (for comparison)", _ASKED),
    _fetching("replica-v7", "replica_id = 1, Fetch v7", connection(fetch(7, 1), asks), finding=10),
    _fetching("replica-v12", "replica_id = 1, Fetch v12", connection(fetch(12, 1), asks), finding=10),
    _fetching("replica-v17", "tagged ReplicaState, Fetch v17", connection(fetch(17, 1), asks), finding=10),
    _fetching("debug-v12", "replica_id = -2 (debugging), Fetch v12", connection(fetch(12, -2), asks), 1, 10),
    _fetching("fetch-pipelined", "50 Fetches pipelined on one connection", _DEEP),
    _fetching("replica-pipelined", "the same with replica_id = 1", _DEEP_REPLICA),
    _fetching("share-stays", "one ShareFetch after the other", connection(share, asks)),
    _fetching("share-pipelined", "50 ShareFetches pipelined on one connection", _DEEP_SHARE),
    _fetching("share-acknowledging", "the same, with made-up acknowledgements", _DEEP_SHARING),
    _fetching("fetch-herd", "60 Fetches parked, then records for all", herd(fetch()), _HERD),
    _fetching("fetch-herd-patient", "the same after 4 s, max_wait_ms 10 s", herd(_PATIENT, 4), _HERD),
    _fetching("share-herd", "60 ShareFetches parked, then records for all", herd(share), _HERD),
    _fetching("fetch-reconnects", f"{_ANEW} Fetch", _AGAIN, 8),
    _fetching("share-reconnects", f"{_ANEW} ShareFetch", _AGAIN_SHARE, 8),
    _fetching("fetch-leaves", f"Fetch, {_UNREAD}", _LEAVES, 20),
    _fetching("share-leaves", f"ShareFetch, {_UNREAD}", _LEAVES_SHARE, 20),
    _fetching("fetch-closes", "Fetch, closed 10 ms later", connections(20, fetch(), closes_early), 20),
    _fetching("fetch-versions", f"Fetch 4-18 in turn, {_ANEW}", connections(1, every_fetch, asks_next)),
)
