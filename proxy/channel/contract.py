"""The interface between a shell and a channel: the calls of a shell, and one `Verdict` per direction to read.

`proxy.net` knows these types only: mypy finds every access to the channel's internals, and a test
(tests/unit/proxy/channel/test_contract.py) finds every write. The shell's rules:

    1. Read bytes, pass them to `receive`, and carry out the verdict: forward, keep, replace, wait or refuse.
    2. Forward passthrough bytes in portions of any size and report them with `passed`; if the verdict says
       `charged_ahead`, call `recharge_due` before.
    3. Call `moved` when pending output has been written, or the source is connected.
    4. Take each result once: `take_insert` with REPLACE, `take_job` with WAIT, `take_signal` at any time. After a
       signal, check what is due at the channel (`take_question`, `has_local_response`, `mute_left_ms`).
"""

from collections.abc import Iterator
from typing import Protocol

from proxy.channel.direction import Job
from proxy.channel.in_flight import Forward, Question, SharedResponse
from proxy.channel.observer import Muting
from proxy.channel.probe import Probe, Probed
from proxy.channel.replica_link import ReplicaThrottle
from proxy.channel.verdict import Verdict
from quotas.limiters.virtual_time import ConnectionTime
from quotas.throttles.client import ClientQuota


class Direction(Protocol):
    """One direction of a channel."""

    @property
    def verdict(self) -> Verdict:
        """The direction's verdict: always the same object; the calls below change its fields."""

    def receive(self, buf: bytearray, start: int, end: int, now_ns: int) -> Verdict:
        """Decide on buf[start:end], read at `now_ns`; forwarded bytes may be patched in place.

        Raises:
            PeerError, WireError: the peer has broken the protocol, and the connection ends.
        """

    def passed(self, count: int, now_ns: int) -> None:
        """Report that `count` of the passthrough bytes were forwarded."""

    def moved(self, now_ns: int) -> None:
        """Report that the source is connected, or that the destination has taken pending output."""

    def recharge_due(self, now_ms: int) -> bool:
        """Whether the frame under way must be decided on again before more of it is forwarded."""

    def mid_frame(self) -> bool:
        """Whether a frame is partly forwarded."""

    def take_signal(self) -> bool:
        """Return whether an event concerns the other direction, and clear the signal."""

    def take_insert(self) -> bytes | bytearray | memoryview:
        """Return the bytes that REPLACE inserts, once; from then on the shell counts them."""

    def take_job(self) -> Job | None:
        """Return the job that the shell must run before it passes the rest again, once."""


class Machine(Protocol):
    """A channel: its two directions, and the calls that concern both."""

    @property
    def requests(self) -> Direction:
        """The direction from the client to the broker."""

    @property
    def responses(self) -> Direction:
        """The direction from the broker to the client."""

    @property
    def owed(self) -> int:
        """The number of responses owed to the client."""

    @property
    def user(self) -> str:
        """The principal's name, as far as known."""

    @property
    def broker(self) -> int:
        """The id of its broker; -1 if that is unknown."""

    @property
    def quota(self) -> ClientQuota | None:
        """The quotas of its present client; None before the first request."""

    @property
    def library(self) -> str:
        """The name and version of the client's software; "" if it has not sent them."""

    @property
    def muting(self) -> Muting | None:
        """The throttle of the present or last mute."""

    @property
    def follower(self) -> int:
        """The id of the broker that fetches as a follower; -1 for a client."""

    @property
    def leaving_out(self) -> ReplicaThrottle | None:
        """The limit for which the present Fetch of a follower leaves replicas out."""

    @property
    def virtual_time(self) -> ConnectionTime:
        """The waits that the connection would have had with enforcement, while quotas were only observed."""

    @property
    def probe(self) -> Probe | None:
        """The last timed request."""

    @property
    def asked_ns(self) -> int:
        """The time, in ns, of the one request whose response is owed; if several are, when bytes last moved; else 0."""

    def time_requests(self, on: bool) -> None:
        """Begin to time requests, a bounded number of them, or stop."""

    def take_probed(self) -> Probed:
        """Return the timed requests whose responses have begun, once."""

    @property
    def acks_zero(self) -> bool:
        """Whether a Produce with acks=0 was seen: it is delivered even if its client has closed."""

    @property
    def kept_bytes(self) -> int:
        """The bytes kept for the client, without the entries of owed responses."""

    @property
    def counted_bytes(self) -> int:
        """All bytes that count against the budget of kept bytes."""

    def mute_left_ms(self, now_ms: int) -> int:
        """The rest of the channel's mute in ms; 0 if it is not muted."""

    def has_local_response(self) -> bool:
        """Whether the next response is a local one and no broker's response is partly forwarded."""

    def take_question(self) -> Question | None:
        """Return a request that the shell responds to (`responded`), once."""

    def responded(self, response: bytes | bytearray | SharedResponse) -> None:
        """Take the response to a question."""

    def forward_first(self, forward: Forward) -> None:
        """Send a request to the broker before the response to a question."""

    def broker_changed(self, broker: int) -> None:
        """Report that the connection goes to a different broker than intended."""

    def reconsider(self) -> None:
        """Apply changed quotas, or the switch of all enforcement."""

    def end_intake(self) -> None:
        """Handle no further request."""

    def idle(self) -> bool:
        """Whether no response is owed and no frame is partly forwarded: the connection may be closed without loss."""

    def finished(self) -> bool:
        """Whether the channel takes no further requests and owes no response."""

    def all_responses_sent(self) -> bool:
        """Whether all responses that can still come were sent; a request that is partly forwarded gets none."""

    def close(self, now_ms: int) -> Iterator[None]:
        """End the channel; iterate over the result to free its memory in portions."""
