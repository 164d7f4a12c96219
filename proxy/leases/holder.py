"""The lease holder's port: asyncio streams around `quotas.sharing.book`.

The holder may share the event loop with traffic, so everything is bounded: connections, the bytes of a message, the
time for its arrival, and the rate of responses on one connection. If there are too many connections, the oldest one
without a response is closed, so idle connections keep no peer out. A malformed or refused request gets one sentence
with the reason; the connection is closed and counted. The holder stores nothing on disk: after a restart it waits
until all leases have ended.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proxy.config import Address
from proxy.errors import StartError, system_reason
from proxy.leases.frames import FRAME_BYTES_MAX, read_frame, read_secret, write_frame
from proxy.leases.messages import MessageError, digest, read_request, write_answer, write_refusal
from proxy.logs import event
from proxy.stats import Stats
from quotas.sharing.book import LeaseBook, LeaseRefusedError
from quotas.sharing.terms import LeaseTerms

__all__ = ["LeaseHolder"]

_CONNECTIONS_A_PEER: Final = 2  # a new one, and an old one whose end is not noticed yet
_CONNECTIONS_MORE: Final = 8  # connections without a request yet
_REQUEST_SECONDS_MAX: Final = 5.0
_ANSWER_SECONDS_MAX: Final = 5.0
_GAP_SECONDS: Final = 0.02  # between two requests of one connection

logger = logging.getLogger(__name__)


class LeaseHolder:
    """Serves peers.

    Args:
        quota_of: returns a follower's quota as this process knows it.
        secret_file: the file with the shared secret; None: requests are not signed.
        stats: counts requests by their result.
    """

    def __init__(
        self,
        book: LeaseBook,
        terms: LeaseTerms,
        quota_of: Callable[[int], float | None],
        now_ms: Callable[[], int],
        secret_file: Path | None,
        stats: Stats,
        request_seconds_max: float = _REQUEST_SECONDS_MAX,
    ) -> None:
        self._book = book
        self._terms = terms
        self._quota_of = quota_of
        self._now_ms = now_ms
        self._secret_file = secret_file
        self._stats = stats
        # A peer sends one request in a period.
        self._request_seconds_max = request_seconds_max + terms.period_ms / 1000
        self._connections_max = _CONNECTIONS_A_PEER * len(terms.peers) + _CONNECTIONS_MORE
        # By arrival, with whether the connection has had a response.
        self._writers: dict[asyncio.StreamWriter, bool] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, bind: Address) -> None:
        """Bind the port and serve, in the background, until `close`.

        Raises:
            StartError: the port cannot be bound, or the secret cannot be read.
        """
        try:
            await read_secret(self._secret_file)
            self._server = await asyncio.start_server(
                self._accept, bind.host, bind.port, limit=FRAME_BYTES_MAX
            )
        except OSError as error:
            raise StartError(f"leases.bind: {bind}: {system_reason(error)}") from None

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.gather(*self._serving)  # they meet their ends at once

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= self._connections_max:
            self._stats.lease_requests["connections_max"] += 1
            last = next((one for one, answered in self._writers.items() if not answered), writer)
            self._writers.pop(last, None)
            last.transport.abort()
            if last is writer:
                return
        self._writers[writer] = False
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # its peer falls back by itself
        except Exception:  # the edge of a connection: one peer must not end the holder
            logger.exception("a connection at the lease port failed")
        finally:
            self._writers.pop(writer, None)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        secret = await read_secret(self._secret_file)
        while True:
            async with asyncio.timeout(self._request_seconds_max):
                try:
                    message = await read_frame(reader, secret)
                except MessageError as error:
                    await self._refuse(writer, secret, "malformed", str(error))
                    return
            try:
                answer = self._answer(message)
            except MessageError as error:
                await self._refuse(writer, secret, "malformed", str(error))
                return
            except LeaseRefusedError as error:
                await self._refuse(writer, secret, error.cause, str(error))
                return
            await self._write(writer, write_frame(answer, secret))
            if writer in self._writers:
                self._writers[writer] = True
            await asyncio.sleep(_GAP_SECONDS)

    def _answer(self, message: bytes) -> bytes:
        request, terms = read_request(message)
        if request.name in self._terms.peers and terms != digest(self._terms):
            problem = "leases.peers and leases.seconds must be the same in all processes"
            raise LeaseRefusedError("terms", f"{problem}: those of {request.name!r} differ from the holder's")
        answer = self._book.answer(request, self._quota_of, self._now_ms())
        self._stats.lease_requests["learning" if answer.learning else "granted"] += 1
        return write_answer(answer)

    async def _refuse(self, writer: asyncio.StreamWriter, secret: bytes, cause: str, problem: str) -> None:
        self._stats.lease_requests[cause] += 1
        peer = str(writer.get_extra_info("peername"))
        event(
            logger,
            logging.WARNING,
            "lease request refused",
            peer=peer,
            cause=cause,
            problem=problem,
        )
        await self._write(writer, write_frame(write_refusal(problem), secret))

    async def _write(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        writer.write(frame)
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            await writer.drain()
