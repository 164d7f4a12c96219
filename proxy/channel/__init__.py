"""The pure machine of one client connection: bytes shown in, orders out. No socket, no clock, no task.

A *channel* is one client connection and the one broker connection that belongs to it. It has two *sides*, one
for each direction. The shell (`proxy.net`) shows a side the bytes it has read and does what the side's
*order* says:

    receive(buffer, start, end, now_ns) -> n     the first n bytes from start go on untouched, then `side.order` says:
        PASS      all of them did; `side.unseen` more bytes belong to the frame and need never be looked at
        MORE      the rest is kept and shown again together with what follows, once `side.need` bytes are there
        REPLACE   the next `side.drop` bytes are left out, `side.insert` goes in their place; then call again
        WAIT      nothing more is read before `side.wait_until_ms`; then the rest is shown again (mute or hold). With a
                  `side.job` the shell has that run beside its loop, and shows the rest as soon as it is done
        REFUSE    nothing more is handled; when all that is owed is answered, the connection ends

What a peer does wrong is raised as `proxy.channel.errors.PeerError` or `protocol.errors.WireError`; any other
exception from here is a bug.
"""

from proxy.channel.capture_rows import BATCH_WEIGHT, Head, Place, Recorder, Row, Tap
from proxy.channel.channel import Channel
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Forward, Question, Shared
from proxy.channel.kept_frames import KEEP, NOT_KEPT, whole
from proxy.channel.kinds import channel_for
from proxy.channel.parsing import AGAIN, Job
from proxy.channel.reassignments import OngoingMoves, Shown
from proxy.channel.settings import ANONYMOUS, ChannelSettings
from proxy.channel.side import MORE, PASS, REFUSE, REPLACE, WAIT, Side

__all__ = [
    "AGAIN",
    "ANONYMOUS",
    "BATCH_WEIGHT",
    "KEEP",
    "MORE",
    "NOT_KEPT",
    "PASS",
    "REFUSE",
    "REPLACE",
    "WAIT",
    "Channel",
    "ChannelSettings",
    "Forward",
    "Head",
    "Job",
    "OngoingMoves",
    "PeerError",
    "Place",
    "Question",
    "Recorder",
    "Row",
    "Shared",
    "Shown",
    "Side",
    "Tap",
    "channel_for",
    "whole",
]
