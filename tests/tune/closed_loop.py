"""A recording's Produces and Fetches once more, in the closed loop of `quotas.backtest.recording`: as its clients
would send.

`offline.replay` sends at recorded times whatever happens: right for a load test, and no client does so that waits for
its responses. Here each connection sends its next request when the response has come, the throttle time it was told is
over, and the recorded pause too. A Fetch that gets an empty response is sent again. Frames are `offline.replay`'s.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from offline.replay.frames import Encoder
from offline.replay.messages import Broker, outcome
from offline.replay.prepare import prepare
from offline.replay.schedule import Recorded
from offline.replay.target import Placement, requirements_of
from protocol.api import FETCH, PRODUCE

_EMPTY_BYTES_MAX: Final = 128  # of a Fetch's answer without records
_RESPONSE_SECONDS_MAX: Final = 60.0


@dataclass(slots=True)
class Observed:
    """What one client has seen."""

    requests: int = 0
    bytes: int = 0
    throttled: int = 0
    throttle_ms: int = 0
    errors: int = 0
    seconds: float = 0.0  # until its last response


async def send_again(rows: Sequence[Recorded], address: Broker) -> dict[str, Observed]:
    """Send everything; by client id, what came of it."""
    sent = [row for row in rows if row.api_key in (PRODUCE, FETCH) and row.upstream_us >= 0]
    assert sent, "a recording has requests"
    placement = await prepare(address, requirements_of(sent), create=True, replicas=1, say=lambda _: None)
    encoder = Encoder(placement, 1, int(time.time() * 1000))
    sent.sort(key=lambda row: (row.process, row.connection, row.seq))
    begun_us = min(row.mono_us - row.delay_ms * 1000 for row in sent)
    observed: dict[str, Observed] = {row.client_id: Observed() for row in sent}
    now_s = time.monotonic() + 0.2
    async with asyncio.TaskGroup() as group:
        for _, connection in groupby(sent, key=lambda row: (row.process, row.connection)):
            own = list(connection)
            lane = _Lane(own, encoder, placement, observed[own[0].client_id])
            group.create_task(lane.run(now_s, begun_us))
    return observed


class _Lane:
    """One connection."""

    def __init__(
        self, rows: Sequence[Recorded], encoder: Encoder, placement: Placement, observed: Observed
    ) -> None:
        self._rows = rows
        self._encoder = encoder
        self._address = placement.brokers.get(rows[0].broker, placement.brokers[-1])
        self._observed = observed

    async def run(self, begun_s: float, begun_us: int) -> None:
        """Send one request after the other."""
        reader, writer = await asyncio.open_connection(*self._address, limit=1 << 24)
        first = self._rows[0]
        due_s = begun_s + (first.mono_us - first.delay_ms * 1000 - begun_us) / 1e6
        try:
            for number, row in enumerate(self._rows):
                await asyncio.sleep(due_s - time.monotonic())
                # A timer that was late is made up for at the next pause, or the demand would shrink.
                late_s = max(0.0, time.monotonic() - due_s)
                await self._ask(reader, writer, row, number)
                free_s = time.monotonic()
                self._observed.seconds = max(self._observed.seconds, free_s - begun_s)
                if number + 1 < len(self._rows):
                    due_s = free_s + max(0.0, _pause_s(row, self._rows[number + 1]) - late_s)
        finally:
            writer.close()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, row: Recorded, number: int
    ) -> None:
        frame = self._encoder.encode(row, number)
        assert frame is not None, "every partition was placed"
        while True:
            writer.write(frame.data)
            async with asyncio.timeout(_RESPONSE_SECONDS_MAX):
                prefix = await reader.readexactly(4)
                response = prefix + await reader.readexactly(int.from_bytes(prefix, "big"))
            error, throttle_ms = outcome(response, frame.api_key, frame.version)
            self._observed.errors += error != 0
            self._observed.throttle_ms += throttle_ms
            self._observed.throttled += throttle_ms > 0
            await asyncio.sleep(throttle_ms / 1000)
            if frame.api_key == PRODUCE or len(response) > _EMPTY_BYTES_MAX or not throttle_ms:
                break
        self._observed.requests += 1
        self._observed.bytes += len(frame.data) - 4 if frame.api_key == PRODUCE else len(response) - 4


def _pause_s(row: Recorded, following: Recorded) -> float:
    """What the client did between the two, the recording's own throttling taken out."""
    done_us = row.mono_us + max(row.upstream_us, 0)
    muted_us = (row.mono_us if row.api_key == PRODUCE else done_us) + row.throttle_ms * 1000
    came_us = following.mono_us - following.delay_ms * 1000
    return max(0.0, (came_us - max(done_us, muted_us)) / 1e6)
