"""Hostile clients: a process that keeps so many connections of some kinds open, and opens them again when they end.

    python -m tests.soak.hostile --port 9092 --kinds idle=100,storm=20

It speaks only to loopback, keeps to the counts that it is given and to a rate of new connections, prints `ready`,
responds to `report` with a line of JSON, and ends with standard input. It measures nothing: honest clients beside it
do (`tests.soak.pinger`).
"""

import argparse
import errno
import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.cluster import HOST
from tests.support.frames import LIST_OFFSETS, api_versions, filler, frame, produce, request

JOIN_GROUP: Final = 11
METADATA: Final = 3
_REQUESTS: Final = 200
_HALF_FRAME_BYTES: Final = 4096
_GARBAGE_BYTES_MAX: Final = 4096
_ANNOUNCED_BYTES: Final = 100_000_000
_LENGTH_MAX: Final = 0x7FFFFFFF
_NAMES: Final = 100
LIMITED: Final = 50
"""So many of the names have a producer's quota."""


def nothing(_: random.Random) -> bytes:
    """Send nothing."""
    return b""


def half_header(chance: random.Random) -> bytes:
    """Send some of a request's first bytes.

    >>> len(half_header(random.Random(1))) < 14
    True
    """
    return api_versions(client_id="half")[: chance.randrange(1, 14)]


def half_join_group(chance: random.Random) -> bytes:
    """Send half of a request that is kept until it is whole."""
    return request(JOIN_GROUP, 5, b"\0\1g", client_id=_name(chance), size=_HALF_FRAME_BYTES)[
        : _HALF_FRAME_BYTES // 2
    ]


def one_request(chance: random.Random) -> bytes:
    """Ask once."""
    return api_versions(client_id=_name(chance))


def many_requests(chance: random.Random) -> bytes:
    """Ask for all topics many times."""
    whole = request(METADATA, 9, b"\0\0\0\0\0", client_id=_name(chance))
    return whole * _REQUESTS


def oversized(chance: random.Random) -> bytes:
    """Send a frame, or a client id, longer than anything allows."""
    if chance.random() < 0.5:
        return struct.pack(">i", _LENGTH_MAX) + filler(100)
    return struct.pack(">ihhih", 30_000, LIST_OFFSETS, 7, 1, 20_000) + filler(20_000)


def garbage(chance: random.Random) -> bytes:
    """Send random bytes, or a frame of them."""
    some = chance.randbytes(chance.randrange(1, _GARBAGE_BYTES_MAX))
    return some if chance.random() < 0.5 else frame(some)


def announced(chance: random.Random) -> bytes:
    """Announce a Produce of 100 MB in a name with a quota, and send its header alone.

    Without a quota the header would pass, and a broker allocates what a header announces: a few such connections leave
    it without memory, and one that is out of memory drops single responses and goes on.
    """
    whole = produce(9, 100, client_id=f"hostile-{chance.randrange(LIMITED)}")
    return struct.pack(">i", _ANNOUNCED_BYTES) + whole[4:40]


def _name(chance: random.Random) -> str:
    return f"hostile-{chance.randrange(_NAMES)}"


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to misbehave.

    Args:
        opening: what a connection sends at once, as far as the other side takes it.
        life_seconds: after which it closes and comes again; 0: it stays until it is closed.
        reads: whether it takes what it is sent.
        slow_bytes: of what it is sent it takes so many bytes a second.
        resets: whether it ends with a reset.
    """

    opening: Callable[[random.Random], bytes]
    life_seconds: float = 0.0
    reads: bool = False
    slow_bytes: int = 0
    resets: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "idle": Kind(nothing),
    "half header": Kind(half_header),
    "half frame": Kind(half_join_group, life_seconds=20.0),
    "never reading": Kind(many_requests),
    "storm": Kind(one_request, life_seconds=0.05, resets=True),
    "oversized": Kind(oversized, life_seconds=1.0, reads=True),
    "slow reader": Kind(many_requests, life_seconds=60.0, slow_bytes=64),
    "garbage": Kind(garbage, life_seconds=1.0, reads=True),
    "announced and silent": Kind(announced, life_seconds=30.0),
}
_OPENS_PER_SECOND: Final = 200
_IP_BIND_ADDRESS_NO_PORT: Final = 24  # linux/in.h; the port is chosen at connect, so few addresses serve many
_OPENS_A_TURN: Final = 20
_TURN_SECONDS: Final = 0.02
_NICE: Final = 10
_CLOSED: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_RECEIVE_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Client:
    """One open connection.

    Attributes:
        left: what of its opening was not taken yet.
    """

    kind: str
    socket: socket.socket
    left: bytes


class Crowd:
    """Keeps the wanted number of connections of each kind.

    Attributes:
        opened, ended: connections by kind; `ended` are those that the other side has closed.
    """

    def __init__(
        self, port: int, wanted: Mapping[str, int], opens_per_second: int, seed: int, source: str = HOST
    ) -> None:
        self._port = port
        self._source = source
        self._wanted = dict(wanted)
        self._rate = opens_per_second
        self._random = random.Random(seed)
        self._poller = select.epoll()
        self._clients: dict[int, Client] = {}
        self._ends: list[tuple[float, int, Client]] = []  # a heap: when a connection closes by itself
        self._slow: dict[int, int] = {}  # descriptors that are read slowly, and how slowly
        self._open: Counter[str] = Counter()
        self._may_open = 0.0
        self._at = time.monotonic()
        self._read_at = self._at
        self.opened: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def report(self) -> dict[str, dict[str, int]]:
        """Return the counts by kind."""
        found = {"open": self._open, "opened": self.opened, "ended": self.ended, "failed": self.failed}
        return {name: dict(+counts) for name, counts in found.items()}

    def turn(self) -> None:
        """Do what is due now, and wait a moment."""
        now = time.monotonic()
        self._may_open = min(_OPENS_A_TURN * 2.0, self._may_open + (now - self._at) * self._rate)
        self._at = now
        for descriptor, events in self._poller.poll(_TURN_SECONDS, 1024):
            self._happened(descriptor, events)
        while self._ends and self._ends[0][0] <= now:
            _, descriptor, client = heapq.heappop(self._ends)
            if (
                self._clients.get(descriptor) is client
            ):  # it may have been closed, and its descriptor used again
                self._close(descriptor)
        if now - self._read_at >= 1.0:
            self._read_at = now
            self._read_slowly()
        self._open_missing(now)

    def _open_missing(self, now: float) -> None:
        missing = [kind for kind, count in self._wanted.items() if self._open[kind] < count]
        for _ in range(_OPENS_A_TURN):
            if self._may_open < 1.0 or not missing:
                return
            self._may_open -= 1.0
            kind = self._random.choice(missing)
            self._begin(kind, now)
            missing = [name for name in missing if self._open[name] < self._wanted[name]]

    def _begin(self, name: str, now: float) -> None:
        kind = KINDS[name]
        sock = socket.socket()
        sock.setblocking(False)
        if self._source != HOST:
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((self._source, 0))
        code = sock.connect_ex((HOST, self._port))
        if code not in (0, errno.EINPROGRESS):
            self.failed[name] += 1
            sock.close()
            return
        client = Client(name, sock, kind.opening(self._random))
        self._clients[sock.fileno()] = client
        if kind.life_seconds:
            ends = now + kind.life_seconds * self._random.uniform(0.5, 1.5)
            heapq.heappush(self._ends, (ends, sock.fileno(), client))
        if kind.slow_bytes:
            self._slow[sock.fileno()] = kind.slow_bytes
        self._open[name] += 1
        self.opened[name] += 1
        self._poller.register(sock.fileno(), select.EPOLLOUT | _CLOSED)

    def _happened(self, descriptor: int, events: int) -> None:
        client = self._clients[descriptor]
        try:
            if events & select.EPOLLOUT and not events & select.EPOLLHUP:
                self._send(descriptor, client)
            if events & select.EPOLLIN:
                client.socket.recv(_RECEIVE_BYTES)
        except OSError:
            events |= select.EPOLLERR
        if events & _CLOSED:
            self.ended[client.kind] += 1
            self._close(descriptor)

    def _send(self, descriptor: int, client: Client) -> None:
        if client.left:
            client.left = client.left[client.socket.send(client.left) :]
        if not client.left:
            self._poller.modify(descriptor, _CLOSED | (select.EPOLLIN if KINDS[client.kind].reads else 0))

    def _read_slowly(self) -> None:
        for descriptor, amount in list(self._slow.items()):
            client = self._clients[descriptor]
            try:
                if not client.left:
                    client.socket.recv(amount)
            except BlockingIOError:
                continue
            except OSError:
                self.ended[client.kind] += 1
                self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        client = self._clients.pop(descriptor)
        self._slow.pop(descriptor, None)
        self._open[client.kind] -= 1
        self._poller.unregister(descriptor)
        if KINDS[client.kind].resets:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()


def counts(text: str) -> dict[str, int]:
    """Return the numbers of connections in `kind=number,...`.

    >>> counts("idle=3,half frame=1")
    {'idle': 3, 'half frame': 1}
    """
    pairs = (each.partition("=") for each in text.split(","))
    wanted = {kind.strip(): int(count) for kind, _, count in pairs}
    for kind in wanted:
        if kind not in KINDS:
            raise argparse.ArgumentTypeError(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    return wanted


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep the connections until standard input ends; politely, so that the machine's cores are left to the others."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.hostile", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kinds", type=counts, required=True)
    parser.add_argument("--opens-per-second", type=int, default=_OPENS_PER_SECOND)
    parser.add_argument(
        "--source", default=HOST, help="an address of loopback that the connections come from"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    os.nice(_NICE)
    crowd = Crowd(given.port, given.kinds, given.opens_per_second, given.seed, given.source)
    print("ready", flush=True)
    while True:
        crowd.turn()
        if select.select([sys.stdin], [], [], 0)[0]:
            line = os.read(sys.stdin.fileno(), 4096)  # not buffered: `select` has to see what is left
            if not line:
                return 0
            print(json.dumps(crowd.report()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
