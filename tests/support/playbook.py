"""Dialogues with a channel machine: bytes shown, orders expected, no socket and no clock.

    talk = playbook(producer_default=1000)
    talk.client(0, request, Pass(request), Wait(2000))
    talk.broker(40, response, Insert(with_throttle_time(response, 1960)), Drop(len(response)))
    talk.client(2000, b"")

Each line shows one direction what it kept and what is new, does what the machine orders, as `proxy.net` does, and
compares the orders with those expected. A mismatch prints the whole dialogue. Nothing can be left unasserted: a
line that expects nothing has to get no response.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from protocol.errors import WireError
from protocol.messages.fetch_session import SessionTable
from proxy.channel import (
    MORE,
    REFUSE,
    REPLACE,
    WAIT,
    Channel,
    ChannelSettings,
    Direction,
    Job,
    Machine,
    PeerError,
    Tap,
    Verdict,
)
from proxy.channel.direction import LocalResponse
from proxy.channel.requests import Handled, RequestDirection
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.options import EngineOptions
from quotas.throttles.client import ClientQuota

_BYTES_SHOWN: Final = 24
_ORDERS_MAX: Final = 10_000
FRAME_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True)
class Pass:
    """These bytes go on untouched."""

    data: bytes


@dataclass(frozen=True)
class Passthrough:
    """So many bytes that follow may pass without being looked at."""

    count: int


@dataclass(frozen=True)
class More:
    """The rest is kept until so many bytes are there."""

    need: int


@dataclass(frozen=True)
class Insert:
    """Bytes made by the channel are sent."""

    data: bytes


@dataclass(frozen=True)
class Drop:
    """The next bytes are left out."""

    count: int


@dataclass(frozen=True)
class Wait:
    """Nothing more is read before this time; held tells a hold from a mute."""

    until_ms: int
    held: bool = False


@dataclass(frozen=True)
class Refused:
    """Nothing more is handled, and the connection ends when each response that is owed is sent."""


@dataclass(frozen=True)
class Ends:
    """The connection is ended, for this cause."""

    cause: str


Order = Pass | Passthrough | More | Insert | Drop | Wait | Refused | Ends


def gateway_address(node_id: int, _host: str, _port: int) -> tuple[str, int] | None:
    """The address map of the dialogues: broker N is at port 19100 + N; brokers from 64 on are never named."""
    return ("sluice.example", 19100 + node_id) if node_id < 64 else None


def channel_machine(
    engine: Engine | None = None,
    *,
    gateway: bool = True,
    broker: int = 1,
    producer_default: float | None = None,
    consumer_default: float | None = None,
    options: EngineOptions | None = None,
    sessions: SessionTable | None = None,
    tap: Tap | None = None,
    stats: Stats | None = None,
    **told: Any,
) -> Channel:
    """One channel with a real engine; kip13 and enforcing unless told otherwise.

    Args:
        tap: the destination of captured requests.
        stats: the counters of its process, where it is not the only channel.
        told: further fields of its `ChannelSettings`.
    """
    if engine is None:
        quotas = StaticQuotas(producer_default=producer_default, consumer_default=consumer_default)
        engine = Engine(options or EngineOptions(), Definitions(static=quotas))
    told.setdefault("frame_bytes_max", FRAME_BYTES_MAX)
    settings = ChannelSettings(broker=broker, address_map=gateway_address if gateway else None, **told)
    return Channel(
        settings, engine, SessionTable(100) if sessions is None else sessions, stats or Stats(), tap
    )


def engine_of(channel: Machine) -> Engine:
    """The engine that a channel was made with."""
    return _made(channel).engine


def stats_of(channel: Machine) -> Stats:
    """The counters that a channel was made with."""
    return _made(channel).stats


def _made(channel: Machine) -> Channel:
    """The one place in which tests look into a channel: at what it was made with, and at what it owes."""
    assert isinstance(channel, Channel)
    return channel


def requests_of(channel: Machine, handled: Handled) -> RequestDirection:
    """Another request direction of a channel, which calls `handled` after its requests."""
    return RequestDirection(_made(channel), handled)


def mute_left_ms(channel: Machine, now_ms: int) -> int:
    """What is left of a channel's mute."""
    return max(0, _made(channel).mute_until_ms - now_ms)


def user_of(channel: Machine) -> str:
    """The principal's name, as far as known."""
    return _made(channel).user


def owed_of(channel: Machine) -> int:
    """The number of responses owed."""
    return len(_made(channel).in_flight)


def local_response_due(channel: Machine) -> bool:
    """Whether the next response is a local one, and none of the broker's is partly forwarded."""
    in_flight = _made(channel).in_flight
    return (
        bool(in_flight) and isinstance(in_flight[0][2], LocalResponse) and not channel.responses.mid_frame()
    )


def next_owed(channel: Machine) -> tuple[int, int] | None:
    """Correlation id and version of the response owed next, which a broker knows from the request."""
    in_flight = _made(channel).in_flight
    return in_flight[0][:2] if in_flight else None


@dataclass
class Playbook:
    """One dialogue.

    Attributes:
        ended: the cause of its end, once there is one.
        extra_us: what the lines that follow are later than their milliseconds say.
    """

    channel: Machine
    ended: str = ""
    extra_us: int = 0
    _kept: dict[str, bytes] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        """The engine that the channel was made with."""
        return engine_of(self.channel)

    @property
    def stats(self) -> Stats:
        """The counters that the channel was made with."""
        return stats_of(self.channel)

    @property
    def quotas(self) -> ClientQuota:
        """The quotas of the client "a", which most requests of tests name."""
        return self.engine.client("ANONYMOUS", "a", 1)

    @property
    def user(self) -> str:
        """The principal's name, as far as known."""
        return user_of(self.channel)

    @property
    def owed(self) -> int:
        """The number of responses owed."""
        return owed_of(self.channel)

    @property
    def local_response_due(self) -> bool:
        """Whether the next response is a local one, and none of the broker's is partly forwarded."""
        return local_response_due(self.channel)

    def mute_left_ms(self, now_ms: int) -> int:
        """What is left of the channel's mute."""
        return mute_left_ms(self.channel, now_ms)

    def asks(self, now_ms: int, data: bytes) -> None:
        """Expect that what the client sent passes untouched."""
        self.client(now_ms, data, Pass(data))

    def responds(self, now_ms: int, data: bytes) -> None:
        """Expect that what the broker sent passes untouched."""
        self.broker(now_ms, data, Pass(data))

    def client(self, now_ms: int, data: bytes, *expected: Order) -> None:
        """Show the request direction what the client sent; b"": show it again what it kept."""
        self._say("client", now_ms, data, expected)

    def broker(self, now_ms: int, data: bytes, *expected: Order) -> None:
        """Show the response direction what the broker sent; b"": show it again what it kept."""
        self._say("broker", now_ms, data, expected)

    def orders(self, who: str, now_ms: int, data: bytes) -> list[Order]:
        """Show one direction ("client" or "broker") something and give its orders, for the caller to judge."""
        kept = self._kept.get(who, b"")
        orders, self._kept[who] = _carry_out(self._direction(who), kept + data, self._now_ns(now_ms))
        again = f" after {len(kept)} kept" if kept else ""
        self._lines += [f"{now_ms:>6} ms  {who} sends {_shown(data)}{again}", *map(_line, orders)]
        return orders

    def inserted(self, who: str, now_ms: int, data: bytes = b"") -> bytes:
        """Show one direction something and give what it puts in."""
        return b"".join(order.data for order in self.orders(who, now_ms, data) if isinstance(order, Insert))

    @property
    def signalled(self) -> bool:
        """Whether the response direction has something for the request direction."""
        return self.channel.responses.verdict.signal

    def passthrough(self, who: str, now_ms: int, count: int) -> None:
        """Pass so many bytes of the frame under way on, as the shell does without showing them."""
        self._direction(who).passed(count, self._now_ns(now_ms))

    def held(self, now_ms: int, data: bytes) -> int:
        """Show the request direction what the client sent, and expect a hold and nothing else; gives its end."""
        orders = self.orders("client", now_ms, data)
        until = [order.until_ms for order in orders if isinstance(order, Wait) and order.held]
        assert len(until) == len(orders) == 1, "\n".join(["not held", *self._lines])
        return until[0]

    def held_until(self, now_ms: int, data: bytes) -> int:
        """Show what the client sent again and again while it is held; gives when that is over."""
        while (held := _hold(self.orders("client", now_ms, data))) > now_ms:
            now_ms, data = held, b""
        return now_ms

    def _direction(self, who: str) -> Direction:
        return self.channel.requests if who == "client" else self.channel.responses

    def _now_ns(self, now_ms: int) -> int:
        return now_ms * 1_000_000 + self.extra_us * 1000

    def _say(self, who: str, now_ms: int, data: bytes, expected: tuple[Order, ...]) -> None:
        assert not self.ended, f"the dialogue has ended: {self.ended}"
        orders = self.orders(who, now_ms, data)
        if orders and isinstance(orders[-1], Ends):
            self.ended = orders[-1].cause
        if orders != list(expected):
            told = "\n".join([*self._lines, "           but expected were:", *map(_line, expected)])
            told += _difference(orders, list(expected))
            raise AssertionError(f"the dialogue goes otherwise\n{told}")


def playbook(engine: Engine | None = None, **told: Any) -> Playbook:
    """A dialogue with `channel_machine(engine, **told)`."""
    return Playbook(channel_machine(engine, **told))


def _carry_out(direction: Direction, shown: bytes, now_ns: int) -> tuple[list[Order], bytes]:
    """The orders for these bytes, and what of them is kept."""
    buf = bytearray(shown)  # writable, as the shell's own buffer is
    orders: list[Order] = []
    start = 0
    for _ in range(_ORDERS_MAX):
        try:
            patches = direction.verdict.patches
            verdict = direction.receive(buf, start, len(buf), now_ns)
        except PeerError as error:
            return [*orders, Ends(error.cause)], b""
        except WireError:
            return [*orders, Ends("malformed")], b""
        count = verdict.passing
        if count:
            passed = bytes(buf[start : start + count])
            assert verdict.patches > patches or passed == shown[start : start + count], (
                "patched bytes are told"
            )
            orders.append(Pass(passed))
        start += count
        if verdict.order == REPLACE:
            orders += [Insert(bytes(verdict.insert))] if verdict.insert else []
            orders += [Drop(verdict.drop)] if verdict.drop else []
            start += verdict.drop
            continue
        if (job := ordered_job(direction)) is not None:  # what follows is what would have come at once
            job.run()
            continue
        return [*orders, *_last(verdict, len(buf) - start)], bytes(buf[start:])
    raise AssertionError("a direction orders for ever")


def _last(verdict: Verdict, left: int) -> list[Order]:
    """What ends one showing, with `left` bytes kept."""
    if verdict.order == MORE:
        return [More(verdict.need)]
    if verdict.order == WAIT:
        return [Wait(verdict.until_ms, verdict.held)]
    if verdict.order == REFUSE:
        return [Refused()]
    assert not left, "PASS leaves nothing over"
    return [Passthrough(verdict.passthrough)] if verdict.passthrough > 0 else []


def ordered_job(direction: Direction) -> Job | None:
    """The job that a direction has ordered; None without one."""
    return direction.verdict.job if direction.verdict.order == WAIT else None


def _hold(orders: list[Order]) -> int:
    """Until when the request at hand is held; 0 where it is not."""
    return next((order.until_ms for order in orders if isinstance(order, Wait) and order.held), 0)


def _line(order: Order) -> str:
    said = type(order).__name__.lower()
    if isinstance(order, Pass | Insert):
        said += f" {_shown(order.data)}"
    elif isinstance(order, Wait):
        said = f"{'hold' if order.held else 'mute'} until {order.until_ms} ms"
    elif isinstance(order, Refused):
        ...
    elif isinstance(order, Ends):
        said += f": {order.cause}"
    else:
        said += f" {order.need if isinstance(order, More) else order.count}"
    return f"           -> {said}"


def _difference(orders: list[Order], expected: list[Order]) -> str:
    """Where the first bytes differ that should be the same."""
    for got, wanted in zip(orders, expected, strict=False):
        if isinstance(got, Pass | Insert) and isinstance(wanted, Pass | Insert) and got.data != wanted.data:
            pairs = zip(got.data, wanted.data, strict=False)
            at = next((index for index, (one, other) in enumerate(pairs) if one != other), 0)
            part = slice(at, at + 16)
            return f"\n           byte {at}: {got.data[part].hex(' ')}, not {wanted.data[part].hex(' ')}"
    return ""


def _shown(data: bytes) -> str:
    rest = "…" if len(data) > _BYTES_SHOWN else ""
    return f"{len(data)} bytes {data[:_BYTES_SHOWN].hex(' ')}{rest}" if data else "nothing"
