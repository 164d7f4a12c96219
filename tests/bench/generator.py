"""The load generator: a process of its own that sends valid requests and measures; the same for every lane.

It is spoken to by lines (see `main`): it says `ready`, waits for an order, carries it out, and responds with JSON.
So the parent can read a proxy's CPU exactly around the measured part.
Closed loop (ping-pong) for the cost of a request; open loop for latency, timed from the moment a request was *meant*
to leave, so that a stall is not hidden by the requests it kept back; and connections that are only held.
It does not resend: an error code or a closed connection ends it.
"""

import argparse
import gc
import json
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence

from tests.bench import wire
from tests.bench.figures import percentile
from tests.hostile.wire import sasl_handshake, sasl_token

_RECEIVE_BYTES = 1 << 20
_RESPONSE_SECONDS = 30.0
_CONNECTS_PER_PAUSE = 20
"""A broker's listen backlog holds 50: connecting in smaller groups never waits for a SYN to be sent again."""


class Peer:
    """One connection and what has come in of its next response."""

    __slots__ = ("due", "received", "socket", "topic")

    def __init__(self, host: str, port: int, topic: str, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection((host, port), timeout=_RESPONSE_SECONDS)
        if tls is not None:  # a response here fits into one record, so nothing is ever left inside
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.due: deque[float] = deque()
        self.topic = topic

    def responses(self) -> list[bytearray]:
        """Read once and return the whole responses that are there now."""
        chunk = self.socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise ConnectionError("the other side closed the connection")
        buffer = self.received
        buffer += chunk
        frames: list[bytearray] = []
        while len(buffer) >= 4:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                break
            frames.append(buffer[:end])
            del buffer[:end]
        return frames

    def exchange(self, request: bytes) -> bytearray:
        """Send one request and wait for its response."""
        self.socket.sendall(request)
        while True:
            frames = self.responses()
            if frames:
                return frames[0]

    def appended(self, response: bytearray) -> None:
        """Make sure the record was appended."""
        if code := wire.produce_failed(response, self.topic):
            raise ConnectionError(f"Produce got a response with error {code}")

    def fetched(self, response: bytearray) -> None:
        """Make sure the record was read."""
        if code := wire.fetch_failed(response):
            raise ConnectionError(f"Fetch got a response with error {code}")


def connect(options: argparse.Namespace, count: int) -> list[Peer]:
    """Open `count` connections that have each spoken ApiVersions, as every client does first, and said who they are."""
    hello = wire.api_versions(options.client_id)
    peers: list[Peer] = []
    tls = ssl.create_default_context(cafile=options.tls_ca) if options.tls_ca else None
    for number in range(count):
        peer = Peer(options.host, options.port, options.topic, tls)
        peer.exchange(hello)
        if options.sasl_user:
            peer.exchange(sasl_handshake())
            login = sasl_token(f"\0{options.sasl_user}\0{options.sasl_password}".encode())
            if wire.login_failed(peer.exchange(login)):
                raise ConnectionError(f"the broker does not believe {options.sasl_user}")
        peers.append(peer)
        if number % _CONNECTS_PER_PAUSE == 0:
            time.sleep(0.001)
    return peers


def closed_loop(
    peers: Sequence[Peer],
    request: bytes,
    seconds: float,
    check: Callable[[Peer, bytearray], None],
    depth: int = 1,
) -> dict[str, float]:
    """Keep `depth` requests under way on each connection; return the requests, each response checked, and seconds."""
    poller = select.epoll()
    by_descriptor = {peer.socket.fileno(): peer for peer in peers}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.EPOLLIN)
    began = time.monotonic()
    end = began + seconds
    for peer in peers:
        peer.socket.sendall(request * depth)
    under_way = len(peers) * depth
    responded = 0
    while under_way:
        again = time.monotonic() < end
        for descriptor, _ in poller.poll(_RESPONSE_SECONDS) or _nothing_came():
            peer = by_descriptor[descriptor]
            responses = peer.responses()
            for response in responses:
                check(peer, response)
            responded += len(responses)
            if again:
                peer.socket.sendall(request * len(responses))
            else:
                under_way -= len(responses)
    poller.close()
    return {"requests": responded, "seconds": time.monotonic() - began}


def _nothing_came() -> list[tuple[int, int]]:
    raise TimeoutError(f"no response within {_RESPONSE_SECONDS} s")


def open_loop(peers: Sequence[Peer], request: bytes, seconds: float, rate: float) -> list[float]:
    """Send `rate` requests a second whatever comes back; return the latency of each in ms, in order of arrival."""
    sockets = [peer.socket for peer in peers]
    by_socket = dict(zip(sockets, peers, strict=True))
    latencies: list[float] = []
    total = int(seconds * rate)
    began = time.monotonic() + 0.01
    sent = 0
    while len(latencies) < total:
        now = time.monotonic()
        while sent < total and began + sent / rate <= now:
            peer = peers[sent % len(peers)]
            peer.due.append(began + sent / rate)
            peer.socket.sendall(request)
            sent += 1
            now = time.monotonic()
        wait = max(0.0, began + sent / rate - now) if sent < total else _RESPONSE_SECONDS
        # select() and not epoll: its timeout is in microseconds, epoll's in milliseconds.
        readable, _, _ = select.select(sockets, [], [], wait)
        if not readable and sent == total:
            _nothing_came()
        for each in readable:
            peer = by_socket[each]
            responses = peer.responses()
            arrived = time.monotonic()
            for response in responses:
                peer.appended(response)
                latencies.append((arrived - peer.due.popleft()) * 1000)
    return latencies


def spread(latencies: Sequence[float]) -> dict[str, float]:
    """Return the percentiles of some latencies."""
    ordered = sorted(latencies)
    names = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
    return {name: percentile(ordered, rank) for name, rank in names.items()} | {"count": len(ordered)}


class Orders:
    """What the generator can be told to do, one method an order; each returns its response, which is sent as JSON."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        now_ms = int(time.time() * 1000)
        self.request = wire.produce(options.client_id, options.topic, options.size, now_ms)
        self.peers = connect(options, options.connections)

    def closed(self, seconds: str) -> dict[str, float]:
        """Ping-pong for some seconds."""
        return closed_loop(self.peers, self.request, float(seconds), Peer.appended, self.options.depth)

    def fetch(self, seconds: str) -> dict[str, float]:
        """Ping-pong with Fetches of the topic's first batch, for some seconds; something must have been produced."""
        request = wire.fetch_first(self.options.client_id, self.options.topic)
        return closed_loop(self.peers, request, float(seconds), Peer.fetched)

    def open(self, seconds: str, rate: str) -> dict[str, float]:
        """Send at a fixed rate for some seconds."""
        return spread(open_loop(self.peers, self.request, float(seconds), float(rate)))

    def hold(self, count: str) -> dict[str, float]:
        """Open more connections that produce one record and then stay idle."""
        began = time.monotonic()
        for peer in connect(self.options, int(count)):
            peer.appended(peer.exchange(self.request))
            self.peers.append(peer)
        return {"held": len(self.peers), "seconds": time.monotonic() - began}

    def lost(self) -> dict[str, float]:
        """Count the idle connections that the other side has closed, or sent something on."""
        poller = select.poll()
        for peer in self.peers:
            poller.register(peer.socket.fileno(), select.POLLIN | select.POLLRDHUP)
        return {"lost": len(poller.poll(0))}

    def metadata(self, seconds: str, pause: str) -> dict[str, float]:
        """Ask for all metadata again and again; the times are in ms, the bytes of one response."""
        request, times, size = wire.metadata_all_topics(self.options.client_id), [], 0
        end = time.monotonic() + float(seconds)
        while (asked := time.monotonic()) < end:
            size = len(self.peers[0].exchange(request))
            times.append((time.monotonic() - asked) * 1000)
            time.sleep(float(pause))
        return spread(times) | {"bytes": size}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return where to connect and what to send."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.generator")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--client-id", default="bench")
    parser.add_argument("--size", type=int, default=100, help="bytes of the one record's value")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--depth", type=int, default=1, help="requests under way on each in a closed loop")
    parser.add_argument("--sasl-user", help="say who it is, by SASL PLAIN")
    parser.add_argument("--sasl-password", default="")
    parser.add_argument("--tls-ca", help="speak TLS, and believe this authority")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Connect, say `ready`, then respond to orders until standard input ends."""
    gc.disable()  # a collection in the middle would be measured as latency
    orders = Orders(parse(arguments))
    print("ready", flush=True)
    for line in sys.stdin:
        order, *parameters = line.split()
        response = getattr(orders, order)(*parameters)
        print(json.dumps(response), flush=True)
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except (OSError, struct.error) as failure:
        sys.exit(f"{type(failure).__name__}: {failure}")
    sys.exit(code)
