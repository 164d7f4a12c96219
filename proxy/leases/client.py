"""Asks the lease holder, and keeps the followers' limits true (`quotas.lease_peer` decides what they are).

One connection, one request at a time, one a period or as soon as more is wanted; an answer that does not come within a
period is given up with its connection, so that it can never be taken later. As long as the holder is away nothing is
done but to ask again: leases end by themselves.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

from proxy.config import Address
from proxy.errors import reason
from proxy.leases.frames import FRAME_BYTES_MAX, read_frame, read_secret, write_frame
from proxy.leases.messages import MessageError, RefusalError, read_answer, write_request
from proxy.logs import event
from proxy.stats import Stats
from quotas.lease_demand import Demands, Followed
from quotas.lease_peer import LeasePeer
from quotas.lease_terms import Wish
from quotas.replication import ReplicationQuotas

__all__ = ["LeaseClient"]

_TICK_SECONDS: Final = 0.1

logger = logging.getLogger(__name__)


class LeaseClient:
    """One process's connection to the holder.

    Args:
        peer: what may be used.
        quotas: whose followers' limits follow from it.
        holder: where the holder is.
        changed: called when any limit differs: whoever waits is to be asked again.
        brokers: those that stand behind this process: it knows their quotas best, and tells them.

    Attributes:
        holder: as above; may be set at any time.
        problem: why there is no lease from the holder now; "" when there is one.
    """

    def __init__(
        self,
        peer: LeasePeer,
        quotas: ReplicationQuotas,
        holder: Address,
        secret_file: Path | None,
        now_ms: Callable[[], int],
        changed: Callable[[], None],
        stats: Stats,
        brokers: frozenset[int] = frozenset(),
    ) -> None:
        self._peer = peer
        self._quotas = quotas
        self.holder = holder
        self._secret_file = secret_file
        self._now_ms = now_ms
        self._changed = changed
        self._stats = stats
        self._brokers = brokers
        self._demands = Demands()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._secret = b""
        self._connected_to: Address | None = None
        self.problem = "the holder has not been asked yet"
        self._leased: bool | None = None  # as was logged last

    async def run(self) -> None:
        """Ask for ever; the application cancels it."""
        try:
            while True:
                await self.step()
                await asyncio.sleep(_TICK_SECONDS)
        finally:
            self.close()

    async def step(self) -> None:
        """Look at what is wanted, ask if it is time, and set the limits."""
        now_ms = self._now_ms()
        wishes = [
            wish
            for wish in self._demands.wishes(self._followed(now_ms), now_ms)
            # Of whom nothing is wanted and nothing is to be said, the least share is meant by saying nothing.
            if wish.wanted or wish.quota == inf or wish.follower in self._brokers
        ]
        if self._peer.due(wishes, now_ms):
            await self._ask(wishes)
        if self._quotas.share(self._now_ms()):
            self._changed()

    def _followed(self, now_ms: int) -> Iterator[Followed]:
        limits = self._quotas.follower_limits
        rates = {broker: rate for side, broker, rate in self._quotas.rates() if side == "follower"}
        for follower in sorted({*rates, *self._brokers}):
            own, rate = limits.limit(follower), rates.get(follower)
            if own is not None or rate is not None:
                quota = self._peer.quota(follower, own, limits.knows(follower), now_ms)
                yield Followed(follower, own, quota, rate)

    async def _ask(self, wishes: Sequence[Wish]) -> None:
        request = self._peer.ask(wishes, self._now_ms())
        problem, result = "", "failed"
        seconds = self._peer.terms.period_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await self._connect()
                writer.write(write_frame(write_request(request, self._peer.terms), self._secret))
                answer = read_answer(await read_frame(reader, self._secret))
            if not self._peer.take(answer, self._now_ms()):
                raise MessageError("a response to another request")
            result = "granted" if self._peer.holding else "learning"
        except RefusalError as error:
            problem, result = str(error), "refused"
        except (OSError, TimeoutError, MessageError, asyncio.IncompleteReadError) as error:
            problem = reason(error, seconds)
        if problem:
            self.close()
        self._stats.lease_asks[result] += 1
        self._report(problem)

    def _report(self, problem: str) -> None:
        """One line when the holder is lost or refuses, and one when there are leases again."""
        self._stats.lease_holder_reachable = not problem
        learning = "" if self._peer.holding else "the holder does not know yet what it may lend"
        self.problem = problem or learning
        if problem and self._leased is not False:
            self._leased = False
            event(
                logger,
                logging.WARNING,
                "no leases received from the holder: within one lease each follower's quota is shared equally",
                holder=str(self.holder),
                detail=problem,
                lease_left_ms=self._peer.left_ms(self._now_ms()),
            )
        elif not self.problem and not self._leased:
            self._leased = True
            event(logger, logging.INFO, "leases received from the holder", holder=str(self.holder))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        streams = self._streams
        # Reset while nobody read: uvloop has an error of its own for writing then.
        if streams is not None and (self._connected_to != self.holder or streams[1].is_closing()):
            self.close()
        if self._streams is None:
            holder = self.holder
            self._secret = await read_secret(self._secret_file)
            self._streams = await asyncio.open_connection(holder.host, holder.port, limit=FRAME_BYTES_MAX)
            self._connected_to = holder
        return self._streams

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        streams, self._streams = self._streams, None
        if streams is not None:
            with suppress(OSError):
                streams[1].transport.abort()
