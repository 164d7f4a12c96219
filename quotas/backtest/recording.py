"""The recorded requests of one identity at one broker in one direction, and the closed loop they are repeated in.

A recording holds, for each channel (connection) its requests in the order in which it sent them: size, service time
(how long the broker took) and what the client did until its next request. The closed loop, exactly:

- A channel's first request comes when it was recorded, however the others fare.
- A request is *done* when it has passed and its recorded service time is over, and its channel is *free* when it is
  done and its mute is over (KIP-219: the client obeys, or its next request is not read). A Produce's mute begins when
  it passes, a Fetch's when its response does. The recording's own holds and mutes are taken out in the same way.
- Think time: a client that sent its next request after that had waited for it, and waits as long again: next request
  at free + (recorded next - recorded free). One that had sent it before (pipelining) sends it as long after this one
  as it did, and it is read when the mute is over: max(came + (recorded next - recorded came), passed, mute's end).
- A held Produce asks again when it was told to; its client waits. One that would be refused is sent again until it
  passes, so a hold has no end here. A Fetch with an empty response is sent again when the mute is over, with nothing
  else in between; one whose response was cut (max_bytes, KAFKA-9677) fetches what is left in further requests, which
  the broker responds at once: the data is there. A broker gives at least one batch.
- `schedule` weighs a Fetch before it is forwarded by what the channel's last one brought. What a channel fetched before
  the recording is not known: its first Fetch is weighed by what it brings itself. Taken for unknown, the first Fetches
  of a recording would wait for each other at any quota.
- A Fetch that got an empty response when it was recorded is not demand: it is left out, and its delay with it.

Not modelled: data that accumulates meanwhile and makes the next requests larger; the effect of one direction's mute on
the other direction of the same channel; and retries after clients' timeouts. Quota rules are not in this module.
"""

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from quotas.backtest.compiler import Ints, Numbers

__all__ = ["FETCH_BYTES_REQUESTED", "RESPONSE_BYTES_MIN", "Recording", "RecordingBuilder", "recording_of"]

# What a consumer asks for (fetch.max.bytes); the capture does not say.
FETCH_BYTES_REQUESTED: Final = 52_428_800
# One batch (batch.size): a broker returns the first one whole, however small max_bytes is.
RESPONSE_BYTES_MIN: Final = 16_384
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Recording:
    """Requests by channel; 16 bytes each.

    Attributes:
        offsets: channel c has the requests offsets[c] .. offsets[c + 1] - 1.
        first_us: the arrival of each channel's first request.
        group_ms: each channel's session timeout if it has a group's requests, else 0: bounds mutes.
        sizes: bytes, as the quota counts them.
        service_us: the broker's time.
        gap_us: think time until the next request; of a pipelined one ~g, with g the time between the two.
        consumes: whether these are Fetches.
    """

    offsets: Ints
    first_us: Ints
    group_ms: Ints
    sizes: Numbers
    service_us: Numbers
    gap_us: Ints
    consumes: bool

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def channels(self) -> int:
        """The number of connections."""
        return len(self.first_us)


def recording_of(
    *,
    connection: Ints,
    at_us: Ints,
    sizes: Ints,
    service_us: Ints,
    consumes: bool,
    delay_us: Ints | None = None,
    throttle_us: Ints | None = None,
    group_ms: Ints | None = None,
) -> Recording:
    """Make a recording of rows that are sorted by connection, and within one in the order of sending.

    Args:
        connection: any number that tells connections apart.
        at_us: when the request was handled.
        sizes: bytes that the quota counts.
        service_us: the broker's time; below 0: no broker's response.
        consumes: whether these are Fetches.
        delay_us: how long before `at_us` it had come, when it was recorded.
        throttle_us: the throttle time that it was told then.
        group_ms: the session timeout of the row's connection, 0 for none.

    >>> made = recording_of(connection=np.array([7, 7, 7]), at_us=np.array([0, 500, 2500]), sizes=np.array([9, 9, 9]),
    ...     service_us=np.array([1000, 1000, 1000]), consumes=False)
    >>> made.gap_us.tolist()  # sent 500 us after the first one and before its response; then 1000 us after a response
    [-501, 1000, 0]
    """
    assert len(connection), "a recording has a request"
    nothing = np.zeros(len(connection), dtype=np.int64)
    builder = RecordingBuilder(consumes=consumes)
    builder.add(
        connection,
        at_us,
        sizes,
        service_us,
        nothing if delay_us is None else delay_us,
        nothing if throttle_us is None else throttle_us,
        nothing if group_ms is None else group_ms,
    )
    return builder.build()


class RecordingBuilder:
    """Makes a recording of rows that arrive in portions, in order; keeps 16 bytes of each.

    The last pause of a portion is known with the next row, so pauses are one row behind.
    """

    def __init__(self, *, consumes: bool) -> None:
        self._consumes = consumes
        self._rows = 0
        self._sizes: list[Numbers] = []
        self._service_us: list[Numbers] = []
        self._gap_us: list[Ints] = []
        self._starts: list[Ints] = []
        self._first_us: list[Ints] = []
        self._group_ms: list[Ints] = []
        self._last: Ints | None = None  # connection, came, done, free, and whether it was throttled
        self.end_us = 0  # when the last response came

    def __len__(self) -> int:
        return self._rows

    def add(
        self,
        connection: Ints,
        at_us: Ints,
        sizes: Ints,
        service_us: Ints,
        delay_us: Ints,
        throttle_us: Ints,
        group_ms: Ints,
    ) -> None:
        """Append rows; the arguments are those of `recording_of`."""
        done_us = at_us + np.maximum(service_us, 0)
        free_us = done_us + throttle_us if self._consumes else np.maximum(done_us, at_us + throttle_us)
        rows = np.stack((connection, at_us - delay_us, done_us, free_us, throttle_us > 0))
        behind = delay_us > 0
        if self._last is not None:
            rows = np.concatenate((self._last, rows), axis=1)
            behind = np.concatenate((np.zeros(1, dtype=bool), behind))
        self._gap_us.append(self._gaps(rows, behind))
        starts = np.flatnonzero(rows[0, 1:] != rows[0, :-1]) + 1
        if self._last is None:
            starts = np.concatenate((np.zeros(1, dtype=np.int64), starts))
        else:
            starts -= 1  # the row of the portion before is no row of this one
        self._first_us.append((at_us - delay_us)[starts])
        self._group_ms.append(group_ms[starts].astype(np.int64))
        self._starts.append(starts + self._rows)
        self._sizes.append(_small(sizes))
        self._service_us.append(_small(service_us))
        self._rows += len(connection)
        self._last = rows[:, -1:].copy()
        self.end_us = max(self.end_us, int(done_us.max()))

    def build(self) -> Recording:
        """Return the recording and empty the builder."""
        offsets = np.append(_joined(self._starts), self._rows)
        self._gap_us.append(np.zeros(1, dtype=np.int64))
        gap_us = _joined(self._gap_us)
        gap_us[offsets[1:] - 1] = 0
        service_us = _joined(self._service_us)
        made = Recording(
            offsets=offsets,
            first_us=_joined(self._first_us),
            group_ms=_joined(self._group_ms),
            sizes=_joined(self._sizes),
            service_us=service_us,
            gap_us=gap_us,
            consumes=self._consumes,
        )
        if self._consumes:
            kept = service_us >= 0
            return made if kept.all() else _without_empty(made, kept)
        np.maximum(service_us, 0, out=service_us)
        return made

    def _gaps(self, rows: Ints, behind: npt.NDArray[np.bool_]) -> Ints:
        _, came_us, done_us, free_us, throttled = rows
        think_us: Ints = np.maximum(came_us[1:] - free_us[:-1], 0)
        if self._consumes:  # one Fetch is with a broker at a time: overlaps come from inaccurate clocks
            return think_us
        # The arrival of a request during a mute is unknown: it counts as one that waited for the response.
        pipelined = (came_us[1:] < done_us[:-1]) & ~(behind[1:] & (throttled[:-1] > 0))
        return np.where(pipelined, ~np.maximum(came_us[1:] - came_us[:-1], 0), think_us)


def _without_empty(whole: Recording, kept: npt.NDArray[np.bool_]) -> Recording:
    """Leave out Fetches with an empty response; the client's think time during them stays."""
    offsets = whole.offsets
    thought = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(whole.gap_us)))
    positions = np.flatnonzero(kept)
    counts = np.add.reduceat(kept.astype(np.int64), offsets[:-1])
    alive = counts > 0
    new_offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts[alive])))
    # What was thought before the first Fetch that stays comes before it now, without the delays.
    begins = whole.first_us[alive] + thought[positions[new_offsets[:-1]]] - thought[offsets[:-1][alive]]
    until = np.append(positions[1:], len(whole))[: len(positions)]
    until[new_offsets[1:] - 1] = offsets[1:][alive]
    return Recording(
        offsets=new_offsets,
        first_us=begins,
        group_ms=whole.group_ms[alive],
        sizes=whole.sizes[kept],
        service_us=whole.service_us[kept],
        gap_us=thought[until] - thought[positions],
        consumes=True,
    )


N = TypeVar("N", np.int64, np.int32)


def _joined(pieces: list[npt.NDArray[N]]) -> npt.NDArray[N]:
    """All pieces as one array; the list is empty then, so that at most one column is there twice."""
    found = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    pieces.clear()
    return found


def _small(values: Ints) -> Numbers:
    """Frames and service times fit into 32 bits: half an hour is longer than any request. -1 stays: no response."""
    return np.clip(values, -1, _INT32_MAX).astype(np.int32)
