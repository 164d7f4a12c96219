"""Times some requests of a connection for `proxy.explain`: the time that their broker takes.

After `Channel.time_requests(True)`, `unmeasured_version` differs from the engine's version, so that
`request_time.measure` is called for each request; at other times requests cost nothing. The time is from the end of the
request to the first bytes of its response, divided by the number of responses owed at its start, since a broker handles
one request of a connection at a time.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.channel.in_flight import Buffer, Entry, Owed

if TYPE_CHECKING:
    from proxy.channel.direction import ChannelDirection


PROBED_MAX: Final = 16  # requests timed between two visits: each costs a third more instructions than others
ANY_WAIT: Final = -1  # as long as it likes: a group's members wait for each other


class Probe(Owed):
    """A timed request: wraps its owed response.

    Attributes:
        key: its API.
        request_bytes: the size of its frame.
        response_bytes: the size of its response's frame, with the length; 0 before it begins.
        sent_ns: when its header was read.
        wait_ns: the time that it asks the broker to wait; or ANY_WAIT.
        took_ns: the time at the broker, with that wait; -1 while the broker has it.
        waited_ns: the part of `took_ns` that may be that wait.
        acks_all: whether it is a Produce whose response waits for followers too.
    """

    __slots__ = (
        "_depth",
        "_no_wait_bytes",
        "_owed",
        "_requests",
        "acks_all",
        "key",
        "request_bytes",
        "response_bytes",
        "sent_ns",
        "took_ns",
        "wait_ns",
        "waited_ns",
    )

    def __init__(
        self,
        requests: "ChannelDirection",
        key: int,
        request_bytes: int,
        owed: Owed | None,
        wait_ns: int = 0,
        no_wait_bytes: int = 0,
        *,
        acks_all: bool = False,
    ) -> None:
        state = requests.state
        self._requests = requests
        self._owed = owed
        self._depth = max(1, len(state.in_flight))
        self._no_wait_bytes = no_wait_bytes
        self.key = key
        self.acks_all = acks_all
        self.request_bytes = request_bytes
        self.response_bytes = 0
        self.sent_ns = state.now_ns
        self.wait_ns = wait_ns
        self.took_ns = -1
        self.waited_ns = 0

    def respond(
        self,
        direction: "ChannelDirection",
        buf: Buffer,
        pos: int,
        end: int,
        entry: Entry,
        now_ms: int,
    ) -> int:
        """Stop the time when the response begins; the API's handler decides on it."""
        if self.took_ns < 0:
            self._stop(direction)
        return 0 if self._owed is None else self._owed.respond(direction, buf, pos, end, entry, now_ms)

    def muted(self, until_ms: int) -> Owed:
        """Return an owed response that also reports a mute until `until_ms`."""
        if self._owed is not None:
            self._owed = self._owed.muted(until_ms)
        return self

    def _stop(self, direction: "ChannelDirection") -> None:
        state = direction.state
        since_ns = self.sent_ns
        self.response_bytes = direction.frame_bytes
        if len(state.in_flight) == 1:  # no later request has moved it
            since_ns = max(since_ns, self._requests.moved_ns)
        took_ns = max(0, state.now_ns - since_ns)
        if self.wait_ns == ANY_WAIT:
            self.waited_ns = took_ns
        elif direction.frame_bytes < self._no_wait_bytes:
            self.waited_ns = min(took_ns, self.wait_ns)
        self.took_ns = took_ns // self._depth
        self.waited_ns //= self._depth
        state.probed.add(self)


class Probed(NamedTuple):
    """Timed requests whose responses have begun.

    Args:
        missed: the estimated number of requests that were not timed although requests were to be timed.
    """

    probes: list[Probe]
    missed: int = 0


NONE_PROBED: Final = Probed([])


class ProbedLog:
    """Keeps the timed requests whose responses have begun, until they are taken; at most PROBED_MAX are timed."""

    __slots__ = ("_asked", "_began_ns", "_probes", "_stopped_ns")

    def __init__(self) -> None:
        self._probes: list[Probe] | None = None  # None for most channels, which are idle
        self._asked = 0
        self._began_ns = self._stopped_ns = 0

    def arm(self) -> None:
        """Begin to time requests."""
        self._asked = self._stopped_ns = 0

    def enough(self, now_ns: int) -> bool:
        """Note that a request was to be timed; return whether it was the last one."""
        if not self._asked:
            self._began_ns = now_ns
        self._asked += 1
        if self._asked < PROBED_MAX:
            return False
        self._stopped_ns = now_ns
        return True

    def add(self, probe: Probe) -> None:
        """Note that a response has begun."""
        if self._probes is None:
            self._probes = [probe]
        elif len(self._probes) < PROBED_MAX:
            self._probes.append(probe)

    def take(self, now_ns: int) -> Probed:
        """Return the timed requests whose responses have begun, and forget them."""
        if not self._probes:
            return NONE_PROBED
        taken = Probed(self._probes, self._missed(now_ns))
        self._probes = None
        return taken

    def _missed(self, now_ns: int) -> int:
        """Return the estimated number of requests after the last timed one, at the same rate as before."""
        stopped_ns, self._stopped_ns = self._stopped_ns, 0
        if not stopped_ns:
            return 0
        return (self._asked - 1) * (now_ns - stopped_ns) // max(1, stopped_ns - self._began_ns)
