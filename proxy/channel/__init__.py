"""The pure machine of one client connection: bytes shown in, a verdict out. No socket, no clock, no task.

A *channel* is one client connection and the one broker connection that belongs to it. It has two *directions*, each
with one verdict. The shell (`proxy.net`) shows a direction the bytes it has read, and does what the verdict says; what
else it may do stands in `proxy.channel.contract`, and what the verdict's fields mean in `proxy.channel.verdict`.

    receive(buffer, start, end, now_ns)    the first `passing` bytes from start go on; then, by `order`:
        PASS      nothing is left over; `unseen` more bytes belong to the frame and need never be looked at
        MORE      the rest is kept and shown again together with what follows, once `need` bytes are there
        REPLACE   the next `drop` bytes are left out, the insert goes in their place; then call again
        WAIT      nothing more is read before `until_ms`; then the rest is shown again (mute or hold). With a job the
                  shell has that run beside its loop, and shows the rest as soon as it is done
        REFUSE    nothing more is handled; when all that is owed is answered, the connection ends

Bytes that pass are those that were shown, but for fields that were patched where they stand: `patches` counts them.

What a peer does wrong is raised as `proxy.channel.errors.PeerError` or `protocol.errors.WireError`; any other
exception from here is a bug.
"""

from proxy.channel.capture_rows import BATCH_WEIGHT, Head, Place, Recorder, Row, Tap
from proxy.channel.channel import Channel
from proxy.channel.contract import Direction, Machine
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Forward, Question, Shared
from proxy.channel.kept_frames import KEEP, NOT_KEPT, whole
from proxy.channel.kinds import channel_for
from proxy.channel.parsing import AGAIN, Job
from proxy.channel.reassignments import OngoingMoves, Shown
from proxy.channel.settings import ANONYMOUS, ANY_BROKER, ChannelSettings
from proxy.channel.verdict import MORE, PASS, REFUSE, REPLACE, WAIT, Verdict

__all__ = [
    "AGAIN",
    "ANONYMOUS",
    "ANY_BROKER",
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
    "Direction",
    "Forward",
    "Head",
    "Job",
    "Machine",
    "OngoingMoves",
    "PeerError",
    "Place",
    "Question",
    "Recorder",
    "Row",
    "Shared",
    "Shown",
    "Tap",
    "Verdict",
    "channel_for",
    "whole",
]
