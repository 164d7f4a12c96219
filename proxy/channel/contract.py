"""What a shell may do with a channel: verbs, and one `Verdict` of each direction to read. Nothing else is the shell's.

`proxy.net` knows these types alone, so mypy finds every look at the machine's inside, and a test
(tests/unit/proxy/channel/test_contract.py) every write. A shell goes by this:

    1. It reads, shows what it has read with `receive`, and acts on the verdict: passes, keeps, replaces, waits.
    2. Unseen bytes it passes on as it likes, and tells so with `passed`; where the verdict says `charged_ahead`, it
       asks `late` before.
    3. When something that waited to be written is written, or the source is connected, it says `moved`.
    4. It takes what is given once: `take_insert` with REPLACE, `take_job` with WAIT, `take_signal` at any time; after
       a signal it asks the channel what is due (`take_question`, `has_local_answer`, `mute_left_ms`).
"""

from collections.abc import Iterator
from typing import Protocol

from proxy.channel.in_flight import Forward, Question, Shared
from proxy.channel.parsing import Job
from proxy.channel.verdict import Verdict

__all__ = ["Direction", "Machine"]


class Direction(Protocol):
    """One direction of a channel."""

    @property
    def verdict(self) -> Verdict:
        """The same object at any time; what it says changes with the verbs."""

    def receive(self, buf: bytearray, start: int, end: int, now_ns: int) -> Verdict:
        """Decide over buf[start:end], read at `now_ns`; bytes that pass may be patched where they stand.

        Raises:
            PeerError, WireError: the peer has broken the protocol, and the connection ends.
        """

    def passed(self, count: int, now_ns: int) -> None:
        """So many of the unseen bytes have been passed on."""

    def moved(self, now_ns: int) -> None:
        """The source is connected, or the destination has taken what waited for it."""

    def late(self, now_ms: int) -> bool:
        """Whether the frame under way has to be decided on again before more of it passes."""

    def mid_frame(self) -> bool:
        """Whether a frame has begun to pass and is not over."""

    def take_signal(self) -> bool:
        """Tell whether something has begun that concerns the other direction, once."""

    def take_insert(self) -> bytes | bytearray | memoryview:
        """Give the bytes that REPLACE puts in, once: from then on they are the shell's to count."""

    def take_job(self) -> Job | None:
        """Give what the shell has to do before it shows the rest again, once."""


class Machine(Protocol):
    """A channel: its two directions, and what concerns both."""

    @property
    def requests(self) -> Direction:
        """From the client to the broker."""

    @property
    def responses(self) -> Direction:
        """From the broker to the client."""

    @property
    def owed(self) -> int:
        """How many responses are owed to the client."""

    @property
    def user(self) -> str:
        """The principal's name, as far as it is known."""

    @property
    def acks_zero(self) -> bool:
        """Whether a Produce without a response was seen: it is delivered though its client has closed."""

    @property
    def kept_bytes(self) -> int:
        """What is kept for the client, beside an entry for each response owed."""

    @property
    def counted_bytes(self) -> int:
        """All that counts against the budget of kept bytes."""

    def mute_left_ms(self, now_ms: int) -> int:
        """How long the channel is still muted; 0 when it is not."""

    def has_local_answer(self) -> bool:
        """Whether the next response owed is one made here, and no broker's response is half passed on."""

    def take_question(self) -> Question | None:
        """Give a request that the shell is to answer with `answered`, once."""

    def answered(self, answer: bytes | bytearray | Shared) -> None:
        """Take the response to a question."""

    def ask_first(self, forward: Forward) -> None:
        """Have a broker asked before a question is answered."""

    def joined(self, broker: int) -> None:
        """Another broker is behind the bootstrap port than was meant to be."""

    def reconsider(self) -> None:
        """Quotas have changed or enforcement was switched."""

    def take_no_more(self) -> None:
        """Handle no further request."""

    def idle(self) -> bool:
        """Whether nothing is owed and no frame is half passed on: the connection may end without a loss."""

    def finished(self) -> bool:
        """Whether no further request is taken and all that were are answered."""

    def all_answered(self) -> bool:
        """Whether all that can be answered is: not the request under way, of which no more passes."""

    def close(self, now_ms: int) -> Iterator[None]:
        """The connection is over; what is given frees the rest, a portion at a time."""
