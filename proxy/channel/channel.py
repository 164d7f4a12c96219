"""One client channel: a client's connection and the broker connection that belongs to it.

Rules for changes of this package: a side never reads a clock and never calls the shell; every change of
the mute goes through `ChannelState.mute`, every change of what is taken through `ChannelState.enter`; a response is
owed exactly when an entry stands in `in_flight`.

    client ──► RequestSide ──► broker             in_flight: one entry a response owed, oldest first
                  │   ▲                           mute_until_ms: no further request is handled before (KIP-219)
          in_flight   mute_until_ms
                  ▼   │
    client ◄── ResponseSide ◄── broker

    request    Produce over the quota ──► passed on, mute now ─────► its answer carries the throttle time
    request    Fetch over the quota ────► answered here, in order, mute now; no broker sees it
    request    DescribeClientQuotas ──► asked of the shell, and no further request taken before its answer is here
    request    Produce before its slot ─► WAIT (hold), payload unread ─► asked again ─► passed on
    response   Fetch that used up the quota ─► passed on with the throttle time, mute now

A mute begins at the next frame boundary: a frame that has begun to pass is passed to its end.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from protocol.messages.fetch_session import SessionTable
from proxy.channel.in_flight import ENTRY_BYTES, Forward, Made, Question, Shared
from proxy.channel.intake import Intake
from proxy.channel.request_header import RequestReader
from proxy.channel.requests import RequestSide
from proxy.channel.responses import ResponseSide
from proxy.channel.settings import ChannelSettings
from proxy.channel.state import ChannelState
from proxy.stats import Stats
from quotas.engine import Engine

__all__ = ["Channel"]

_ENTRIES_COUNTED_MIN: Final = 16  # responses owed, from which on their entries count as kept bytes


class Channel:
    """The two sides of one connection and what they share."""

    __slots__ = ("requests", "responses", "state")

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats
    ) -> None:
        self.state = ChannelState(settings, engine, sessions, stats)
        self.requests: RequestReader = RequestSide(self.state)
        self.responses = ResponseSide(self.state)

    def mute_left_ms(self, now_ms: int) -> int:
        """How long the channel is still muted; 0 when it is not."""
        return max(0, self.state.mute_until_ms - now_ms)

    def has_local_answer(self) -> bool:
        """Whether the next answer owed is one made here, and no broker's answer is half passed on."""
        in_flight = self.state.in_flight
        return bool(in_flight) and isinstance(in_flight[0][2], Made) and not self.responses.mid_frame()

    @property
    def owed(self) -> int:
        """How many responses are owed to the client."""
        return len(self.state.in_flight)

    @property
    def user(self) -> str:
        """The principal's name; "" where there is one that cannot be read from its SASL exchange."""
        return self.state.user

    @property
    def acks_zero(self) -> bool:
        """Whether a Produce without a response (acks=0) was seen: it is delivered though its client has closed."""
        return self.state.acks_zero

    @property
    def kept_bytes(self) -> int:
        """What is kept here for the client, beside an entry for each answer owed."""
        return self.state.kept_bytes + self.requests.kept_bytes + self.responses.kept_bytes

    @property
    def counted_bytes(self) -> int:
        """All that counts against the budget of kept bytes: where many responses are owed, their entries too."""
        owed = len(self.state.in_flight)
        if owed < _ENTRIES_COUNTED_MIN:
            return self.kept_bytes
        observer = self.state.observer
        return self.kept_bytes + owed * (ENTRY_BYTES if observer is None else observer.entry_bytes)

    def take_question(self) -> Question | None:
        """Give a request that the shell is to answer with `answered`, once."""
        question, self.state.question = self.state.question, None
        return question

    def answered(self, answer: bytes | bytearray | Shared) -> None:
        """Take the answer to a question; from then on it is one made here."""
        self.state.answered(answer)

    def ask_first(self, forward: Forward) -> None:
        """Have a broker asked before a question is answered; the requests' side puts it in when it is shown."""
        self.state.ask_first(forward)

    def joined(self, broker: int) -> None:
        """Another broker is behind the bootstrap port than was meant to be; the first request's charge stays."""
        self.state.settings = replace(self.state.settings, broker=broker)
        if self.state.observer is not None:
            self.state.observer.joined(broker)

    def idle(self) -> bool:
        """Whether nothing is owed and no frame is half passed on: the connection may end without a loss."""
        return not self.state.in_flight and not self.requests.mid_frame() and not self.responses.mid_frame()

    def reconsider(self) -> None:
        """Quotas have changed or enforcement was switched."""
        self.state.reconsider()

    def finished(self) -> bool:
        """Whether no further request is taken and all that were are answered."""
        return self.state.intake is Intake.ENDED and self.idle()

    def all_answered(self) -> bool:
        """Whether all that can be answered is: not the request under way, of which no more passes."""
        owed = len(self.state.in_flight) - (self.requests.mid_frame() and self.requests.walk_answered)
        return owed <= 0 and not self.responses.mid_frame()

    def take_no_more(self) -> None:
        """Handle no further request: what is under way is ended and answered, and then the channel is idle."""
        self.state.enter(Intake.ENDED)

    def close(self, now_ms: int) -> Iterator[None]:
        """The connection is over: give back its turns. What is given frees the rest, a portion at a time."""
        conversation = self.state.sasl
        if conversation is not None and conversation.readable and conversation.tokens:
            self.state.stats.sasl[conversation.label, "failed"] += 1  # a bare token is refused by closing
            self.state.sasl = None
        self.state.leave(now_ms)
        observer = self.state.observer
        return iter(()) if observer is None else observer.close(now_ms)
