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
from typing import Final

import numpy as np

from quotas.backtest.compiler import Ints, Numbers

__all__ = ["FETCH_BYTES_REQUESTED", "RESPONSE_BYTES_MIN", "Recording"]

# What a consumer asks for (fetch.max.bytes); the capture does not say.
FETCH_BYTES_REQUESTED: Final = 52_428_800
# One batch (batch.size): a broker returns the first one whole, however small max_bytes is.
RESPONSE_BYTES_MIN: Final = 16_384


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
        end_us: when the last response came.
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
        """The number of connections."""
        return len(self.first_us)

    def without_empty(self) -> "Recording":
        """Leave out Fetches with an empty response (a service time below 0); the client's think time during them stays.

        Pauses must be none of pipelined requests, which Fetches never are.
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
