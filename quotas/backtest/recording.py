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

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from quotas.backtest.compiler import Ints, Numbers

# What a consumer asks for (fetch.max.bytes); the capture does not say.
FETCH_BYTES_REQUESTED: Final = 52_428_800
# One batch (batch.size): a broker returns the first one whole, however small max_bytes is.
RESPONSE_BYTES_MIN: Final = 16_384


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded requests that count against one limiter, as arrays, channel by channel (16 bytes a request).

    Attributes:
        offsets: channel c has the requests offsets[c] .. offsets[c + 1] - 1.
        first_us: by channel, when its first request arrived.
        group_ms: by channel, the session timeout of its consumer group, which bounds mutes; 0 for none.
        sizes: by request, the bytes that the quota counts.
        service_us: by request, how long the broker took to respond.
        gap_us: by request, the client's think time: from the end of the response and its mute to the next request. If
            that was sent before the response (pipelined): ~g, that is -1 - g, with g the time between the two requests.
        consumes: whether the requests are Fetches; otherwise they are Produces.
        end_us: when the last response arrived.
    """

    offsets: Ints
    first_us: Ints
    group_ms: Ints
    sizes: Numbers
    service_us: Numbers
    gap_us: Ints
    consumes: bool
    end_us: int

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def channels(self) -> int:
        """The number of channels, that is client connections."""
        return len(self.first_us)

    def without_empty(self) -> "Recording":
        """Return the recording without the Fetches that got an empty response, which have a service time below 0.

        The client's think time after an omitted Fetch is added to the think time before it. The recording must not
        contain pipelined requests, as one of Fetches does not.
        """
        kept = self.service_us >= 0
        if kept.all():
            return self
        offsets = self.offsets
        thought = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.gap_us)))
        positions = np.flatnonzero(kept)
        counts = np.add.reduceat(kept.astype(np.int64), offsets[:-1])
        alive = counts > 0
        new_offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts[alive])))
        # What was thought before the first Fetch that stays comes before it now, without the delays.
        begins = self.first_us[alive] + thought[positions[new_offsets[:-1]]] - thought[offsets[:-1][alive]]
        until = np.append(positions[1:], len(self))[: len(positions)]
        until[new_offsets[1:] - 1] = offsets[1:][alive]
        return Recording(
            offsets=new_offsets,
            first_us=begins,
            group_ms=self.group_ms[alive],
            sizes=self.sizes[kept],
            service_us=self.service_us[kept],
            gap_us=thought[until] - thought[positions],
            consumes=True,
            end_us=self.end_us,
        )


# ----------------------------------------------------------------------------------------------------
# Recorded rows -> recordings, without a sort of all rows.
#
# Rows of one connection come nearly always in the order of sending, since a proxy wrote them so; rows of many
# connections come mixed. So the rows of one portion are sorted by connection only, and cut into *runs*: successive rows
# of one connection whose numbers ascend. A portion is `pack`ed: 16 bytes for a row, and a line for each run, which says
# what is needed of its ends. `Assembly` puts the runs of all portions in order by these lines. Where runs of one
# connection overlap, rows did not come in order: then there is no recording, and the caller has to sort the rows first.

Flags = npt.NDArray[np.bool_]

_INT32_MAX: Final = 2**31 - 1
_UINT16: Final = 1 << 16

# The fields of a run's line: whose it is, its length, and what its neighbours have to know of its ends.
_CONNECTION, _ROWS, _FIRST_SEQ, _LAST_SEQ = range(4)
_CAME_US, _BEHIND = 4, 5  # of the first row; behind: it had been held
_LAST_CAME_US, _DONE_US, _FREE_US, _THROTTLED = range(6, 10)  # of the last row
_GROUP_MS, _CONSUMES, _END_US = range(10, 13)
RUN_FIELDS: Final = 13


class Rows(NamedTuple):
    """Recorded requests as columns, in any order; times in microseconds.

    Attributes:
        limiter: the number of the limiter, that is of an identity, broker and direction; each has its own recording.
        connection: the number of the client's connection.
        seq: a number that ascends with the requests of a connection.
        at_us: when the request was forwarded or got its response from Sluice.
        sizes: the bytes that the quota counts.
        service_us: how long the broker took to respond; below 0 without a response of a broker.
        delay_us: how long the request had waited since its arrival until `at_us`.
        throttle_us: the throttle time in its response.
        group_ms: the session timeout of the consumer group on the connection, in ms; 0 for none.
        consumes: whether it is a Fetch.
    """

    limiter: Ints
    connection: Ints
    seq: Ints
    at_us: Ints
    sizes: Ints
    service_us: Ints
    delay_us: Ints
    throttle_us: Ints
    group_ms: Ints
    consumes: Flags


class Packed(NamedTuple):
    """A portion of rows, cut into runs: successive requests of one connection, in the order of sending.

    Attributes:
        limiters: by run, the number of its limiter.
        runs: by run, its number of rows and the times of its first and last row, to join runs; [run, RUN_FIELDS].
        sizes: by row, run by run, the bytes that the quota counts.
        service_us: by row, the time of the broker.
        gap_us: by row, the think time until the next row, as in `Recording`; 0 for the last row of a run.
    """

    limiters: Ints
    runs: Ints
    sizes: Numbers
    service_us: Numbers
    gap_us: Ints

    def row_cuts(self, run_cuts: Ints) -> Ints:
        """Return the index of the first row of each of the given runs.

        Args:
            run_cuts: the numbers of runs; the number after the last run stands for the end of all rows.
        """
        cuts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.runs[:, _ROWS])))
        return cuts[run_cuts]


def pack(rows: Rows) -> Packed:
    """Sort rows (at least one) by limiter and connection, cut them into runs, and compute think times."""
    rows = _sorted(rows)
    limiter, connection, seq, at_us = rows[:4]
    done_us = at_us + np.maximum(rows.service_us, 0)
    muted_from_us = np.where(rows.consumes, done_us, at_us)
    free_us = np.maximum(done_us, muted_from_us + rows.throttle_us)
    came_us = at_us - rows.delay_us
    behind, throttled = rows.delay_us > 0, rows.throttle_us > 0
    follows = (limiter[1:] == limiter[:-1]) & (connection[1:] == connection[:-1]) & (seq[1:] > seq[:-1])
    starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=np.bool_), ~follows)))
    ends = np.append(starts[1:], len(seq)) - 1
    gap_us = np.zeros(len(seq), dtype=np.int64)
    gap_us[:-1] = np.where(
        follows,
        _gaps(
            _Row(came_us[:-1], done_us[:-1], free_us[:-1], throttled[:-1]),
            came_us[1:],
            behind[1:],
            rows.consumes[1:],
        ),
        0,
    )
    lines = np.empty((len(starts), RUN_FIELDS), dtype=np.int64)
    first = {_CONNECTION: connection, _FIRST_SEQ: seq, _CAME_US: came_us, _BEHIND: behind}
    first |= {_GROUP_MS: rows.group_ms, _CONSUMES: rows.consumes}
    for field, column in first.items():
        lines[:, field] = column[starts]
    last = {
        _LAST_SEQ: seq,
        _LAST_CAME_US: came_us,
        _DONE_US: done_us,
        _FREE_US: free_us,
        _THROTTLED: throttled,
    }
    for field, column in last.items():
        lines[:, field] = column[ends]
    lines[:, _ROWS] = ends - starts + 1
    lines[:, _END_US] = np.maximum.reduceat(done_us, starts)
    return Packed(limiter[starts], lines, _small(rows.sizes), _small(rows.service_us), gap_us)


class Assembly:
    """Joins packed portions, added in any order, to one recording for each limiter."""

    def __init__(self) -> None:
        self._limiters: list[Ints] = []
        self._runs: list[Ints] = []
        self._sizes: list[Numbers] = []
        self._service_us: list[Numbers] = []
        self._gap_us: list[Ints] = []
        self.runs = 0

    def add(self, packed: Packed) -> None:
        """Add a packed portion; its arrays must not be changed afterwards."""
        self._limiters.append(packed.limiters)
        self._runs.append(packed.runs)
        self._sizes.append(packed.sizes)
        self._service_us.append(packed.service_us)
        self._gap_us.append(packed.gap_us)
        self.runs += len(packed.runs)

    def limiters(self) -> list[int]:
        """Return the numbers of the limiters that have rows in the added portions, ascending."""
        return sorted({limiter for piece in self._limiters for limiter in np.unique(piece).tolist()})

    def recordings(self) -> Iterator[tuple[int, Recording | None]]:
        """Yield the number of each limiter with its recording, and remove all portions.

        None as the recording: rows of a connection were added out of order, so the caller has to sort the rows and
        begin again. A recording is empty if all its Fetches had an empty response.
        """
        if not self.runs:
            return
        limiters, runs = _joined(self._limiters), _joined(self._runs)
        self.runs = 0
        order = np.lexsort((runs[:, _FIRST_SEQ], runs[:, _CONNECTION], limiters))
        ends = np.cumsum(runs[:, _ROWS])
        stretches = _stretches((ends - runs[:, _ROWS])[order], ends[order])
        limiters, runs = limiters[order], runs[order]
        sizes = _gathered(self._sizes, stretches)
        service_us = _gathered(self._service_us, stretches)
        gap_us = _gathered(self._gap_us, stretches)
        before, behind = runs[:-1], runs[1:]
        joins = (limiters[1:] == limiters[:-1]) & (behind[:, _CONNECTION] == before[:, _CONNECTION])
        overlaps = joins & (behind[:, _FIRST_SEQ] <= before[:, _LAST_SEQ])
        last = _Row(
            before[:, _LAST_CAME_US], before[:, _DONE_US], before[:, _FREE_US], before[:, _THROTTLED] > 0
        )
        between = _gaps(last, behind[:, _CAME_US], behind[:, _BEHIND] > 0, behind[:, _CONSUMES] > 0)
        ends = np.cumsum(runs[:, _ROWS])
        gap_us[ends[:-1][joins] - 1] = between[joins]
        cuts = [0, *(np.flatnonzero(np.diff(limiters)) + 1).tolist(), len(limiters)]
        for begin, end in pairwise(cuts):
            if overlaps[begin : end - 1].any():
                yield int(limiters[begin]), None
                continue
            rows = slice(int(ends[begin] - runs[begin, _ROWS]), int(ends[end - 1]))
            lines = runs[begin:end]
            opens = np.concatenate((np.ones(1, dtype=np.bool_), ~joins[begin : end - 1]))
            made = _recording(lines, opens, sizes[rows], service_us[rows], gap_us[rows])
            yield int(limiters[begin]), made


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
    """Return the recording of one limiter's rows; those of each connection must be in the order of sending.

    Arguments are columns as in `Rows`; None: all zeros.

    >>> made = recording_of(connection=np.array([7, 7, 7]), at_us=np.array([0, 500, 2500]), sizes=np.array([9, 9, 9]),
    ...     service_us=np.array([1000, 1000, 1000]), consumes=False)
    >>> made.gap_us.tolist()  # sent 500 us after the first one and before its response; then 1000 us after a response
    [-501, 1000, 0]
    """
    nothing = np.zeros(len(connection), dtype=np.int64)
    assembly = Assembly()
    rows = Rows(
        limiter=nothing,
        connection=connection,
        seq=np.arange(len(connection)),
        at_us=at_us,
        sizes=sizes,
        service_us=service_us,
        delay_us=nothing if delay_us is None else delay_us,
        throttle_us=nothing if throttle_us is None else throttle_us,
        group_ms=nothing if group_ms is None else group_ms,
        consumes=np.full(len(connection), consumes),
    )
    assembly.add(pack(rows))
    [(_, made)] = assembly.recordings()
    assert made is not None, "successive numbers are in order"
    return made


def _sorted(rows: Rows) -> Rows:
    """Return the rows by limiter and connection; those of one connection keep their order."""
    limiter, connection = rows.limiter, rows.connection
    descends = (limiter[1:] < limiter[:-1]) | (
        (limiter[1:] == limiter[:-1]) & (connection[1:] < connection[:-1])
    )
    if not descends.any():
        return rows
    order = _order(connection)
    order = order[_order(limiter[order])]
    return Rows._make(column[order] for column in rows)


def _order(column: Ints) -> Ints:
    """Return the indices that sort a column, stably; near numbers are sorted by their digits in a tenth of the time."""
    above = column - column.min()
    keys = above.astype(np.uint16) if above.max() < _UINT16 else above
    return np.argsort(keys, kind="stable")


class _Row(NamedTuple):
    """The columns from which the pause after a row is computed."""

    came_us: Ints
    done_us: Ints
    free_us: Ints
    throttled: Flags


def _gaps(before: _Row, came_us: Ints, behind: Flags, consumes: Flags) -> Ints:
    """Return the think times before requests, in us; of a pipelined one ~g, with g the time since the last request.

    Args:
        before: the requests before them; behind: whether these were held.
    """
    think_us: Ints = np.maximum(came_us - before.free_us, 0)
    # One Fetch is with a broker at a time: overlaps come from inaccurate clocks. The arrival of a request during a mute
    # is unknown: it counts as one that waited for the response.
    pipelined = ~consumes & (came_us < before.done_us) & ~(behind & before.throttled)
    return np.where(pipelined, ~np.maximum(came_us - before.came_us, 0), think_us)


N = TypeVar("N", np.int64, np.int32)


def _stretches(begins: Ints, ends: Ints) -> list[tuple[int, int]]:
    """Return slices of rows that follow each other in both orders; begins, ends: each run's rows, in the wanted order.

    >>> _stretches(np.array([0, 7, 2]), np.array([2, 9, 7]))
    [(0, 2), (7, 9), (2, 7)]
    >>> _stretches(np.array([0, 2, 7]), np.array([2, 7, 9]))
    [(0, 9)]
    """
    cuts = np.flatnonzero(begins[1:] != ends[:-1])
    firsts = begins[np.concatenate((np.zeros(1, dtype=np.int64), cuts + 1))]
    lasts = ends[np.append(cuts, len(ends) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _gathered(pieces: list[npt.NDArray[N]], stretches: list[tuple[int, int]]) -> npt.NDArray[N]:
    whole = _joined(pieces)
    if len(stretches) == 1:
        return whole
    return np.concatenate([whole[begin:end] for begin, end in stretches])


def _joined(pieces: list[npt.NDArray[N]]) -> npt.NDArray[N]:
    """Return all pieces as one array, and empty the list, so that at most one column is in memory twice."""
    found = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    pieces.clear()
    return found


def _small(values: Ints) -> Numbers:
    """Return sizes or times (us) in 32 bits, where half an hour is the longest time; -1 (no response) stays."""
    return np.clip(values, -1, _INT32_MAX).astype(np.int32)


def _recording(runs: Ints, opens: Flags, sizes: Numbers, service_us: Numbers, gap_us: Ints) -> Recording:
    """Return one limiter's recording from its runs in order; `opens`: whether a run is the first of its connection."""
    begins = np.cumsum(runs[:, _ROWS]) - runs[:, _ROWS]
    consumes = bool(runs[0, _CONSUMES])
    made = Recording(
        offsets=np.append(begins[opens], len(sizes)),
        first_us=runs[opens, _CAME_US],
        group_ms=runs[opens, _GROUP_MS],
        sizes=sizes,
        service_us=service_us if consumes else np.maximum(service_us, 0),
        gap_us=gap_us,
        consumes=consumes,
        end_us=int(runs[:, _END_US].max()),
    )
    return made.without_empty() if consumes else made
