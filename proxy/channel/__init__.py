"""The state machine of one client connection: bytes in, a verdict out. Pure: no socket, no clock, no task.

A *channel* is one client connection and the broker connection that belongs to it. It has two *directions*, each with
one verdict. The shell (`proxy.net`) passes the bytes that it has read to a direction and carries out the verdict.
`proxy.channel.channel` lists the shell's other calls; `proxy.channel.verdict` describes the verdict's fields.

    receive(buffer, start, end, now_ns)    forward the first `passing` bytes from start; then, by `order`:
        PASS      all bytes were handled; `passthrough` more bytes of the frame may be forwarded unread
        MORE      keep the rest and pass it again with what follows, once `need` bytes have been read
        REPLACE   drop the next `drop` bytes and send the insert in their place; then call again
        WAIT      read nothing more before `until_ms`; then pass the rest again (mute or hold). If there is a job, run
                  it in a thread and pass the rest again as soon as the job is done
        REFUSE    handle nothing more; close the connection when all owed responses have been sent

Forwarded bytes are unchanged, except for fields that were patched in place: `patches` counts these.

An error of a peer is raised as `proxy.channel.errors.PeerError` or `protocol.errors.WireError`; any other exception
from this package is a bug.

Non-obvious:

- A mute begins at a frame boundary. A frame that has begun to pass is passed completely; otherwise the broker would
  wait for the rest with a buffer allocated.
- A channel uses three times. Decisions use `now_ms`. Measurements use `now_ns` (the time at which the shell has read
  the bytes, an argument of `receive`) and each direction's `moved_ns` (when its last large frame made progress).
- Muted clients that are released early are checked again, so releasing all of them after a quota was raised lets no
  excess pass.
"""

from proxy.channel.capture import (
    BATCH_WEIGHT,
    KEEP,
    NOT_KEPT,
    Head,
    Recorder,
    Row,
    RowOrigin,
    Tap,
    complete_frame,
)
from proxy.channel.channel import (
    ASKED,
    AT_BROKER,
    AT_CLIENT,
    IN_SLUICE,
    UNASKED,
    UNREAD,
    Channel,
    Condition,
    Direction,
    Machine,
)
from proxy.channel.direction import Forward, Muting, Question, SharedResponse, Telemetry
from proxy.channel.errors import PeerError
from proxy.channel.follower import ReplicaThrottle
from proxy.channel.own import OwnNames, own_names
from proxy.channel.request_time import NONE_PROBED, Probe, Probed
from proxy.channel.settings import ANONYMOUS, ANY_BROKER, ChannelSettings, OngoingMoves, ShownMove
from proxy.channel.verdict import AGAIN, MORE, PASS, REFUSE, REPLACE, WAIT, Job, Verdict

__all__ = [
    "AGAIN",
    "ANONYMOUS",
    "ANY_BROKER",
    "ASKED",
    "AT_BROKER",
    "AT_CLIENT",
    "BATCH_WEIGHT",
    "IN_SLUICE",
    "KEEP",
    "MORE",
    "NONE_PROBED",
    "NOT_KEPT",
    "PASS",
    "REFUSE",
    "REPLACE",
    "UNASKED",
    "UNREAD",
    "WAIT",
    "Channel",
    "ChannelSettings",
    "Condition",
    "Direction",
    "Forward",
    "Head",
    "Job",
    "Machine",
    "Muting",
    "OngoingMoves",
    "OwnNames",
    "PeerError",
    "Probe",
    "Probed",
    "Question",
    "Recorder",
    "ReplicaThrottle",
    "Row",
    "RowOrigin",
    "SharedResponse",
    "ShownMove",
    "Tap",
    "Telemetry",
    "Verdict",
    "complete_frame",
    "own_names",
]
