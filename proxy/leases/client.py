"""The client of the lease holder: asks for leases and updates the followers' limits (`quotas.sharing.peer` computes
them).

It has one connection and one request at a time, one in each period or as soon as more is wanted. If no response arrives
within a period, the connection is closed, so that a late response can never be taken. While the holder is unreachable
the client only retries: leases end by themselves.
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
from quotas.replication.replication_quotas import ReplicationQuotas
from quotas.sharing.demand import Demands, Followed
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import Wish

__all__ = ["LeaseClient"]

_TICK_SECONDS: Final = 0.1

logger = logging.getLogger(__name__)


class LeaseClient:
    """One process's connection to the holder.

    Args:
        peer: this process's leases.
        quotas: the quotas whose followers' limits are updated.
        holder: the holder's address.
        changed: called when a limit has changed, so that waiting requests are decided again.
        brokers: the brokers behind this process, whose quotas it reports to the holder.

    Attributes:
        holder: as above; may be set at any time.
        problem: why there is no lease now; "" with a lease.
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
        self._leased: bool | None = None  # the state that was logged last

    async def run(self) -> None:
        """Run until the application cancels it."""
        try:
            while True:
                await self.step()
                await asyncio.sleep(_TICK_SECONDS)
        finally:
            self.close()

    async def step(self) -> None:
        """Compute the wishes, send a request if it is due, and set the limits."""
        now_ms = self._now_ms()
        wishes = [
            wish
            for wish in self._demands.wishes(self._followed(now_ms), now_ms)
            # A follower without a wish and without a quota to report is left out, which means the least share.
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
        """Log one line when the holder is lost or refuses, and one when there are leases again."""
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
        # Reset between two reads: uvloop raises its own error for a write then.
        if streams is not None and (self._connected_to != self.holder or streams[1].is_closing()):
            self.close()
        if self._streams is None:
            holder = self.holder
            self._secret = await read_secret(self._secret_file)
            self._streams = await asyncio.open_connection(holder.host, holder.port, limit=FRAME_BYTES_MAX)
            self._connected_to = holder
        return self._streams

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        streams, self._streams = self._streams, None
        if streams is not None:
            with suppress(OSError):
                streams[1].transport.abort()
