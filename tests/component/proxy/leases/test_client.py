"""The client of the lease holder, where its connection ends while nobody reads from it."""

import asyncio
import itertools
import socket
import struct

import uvloop

from proxy.config import Address
from proxy.leases import LeaseClient
from proxy.leases.frames import read_frame, write_frame
from proxy.leases.messages import read_request, write_answer
from proxy.stats import Stats
from quotas.replication.replication_quotas import ReplicationOptions, ReplicationQuotas
from quotas.sharing.book import LeaseBook
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import LeaseTerms

TERMS = LeaseTerms(("a", "b"), 1000)
RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)


async def ask_again_after_a_reset() -> None:
    book = LeaseBook(TERMS, 1)
    accepted: list[asyncio.StreamWriter] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        request, _ = read_request(await read_frame(reader, b""))
        writer.write(write_frame(write_answer(book.answer(request, lambda _: None, 0)), b""))

    holder = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    address = Address("127.0.0.1", holder.sockets[0].getsockname()[1])
    ticks = itertools.count(0, 1000)  # so that every step asks
    client = LeaseClient(
        LeasePeer(TERMS, "a", 1, 0),
        ReplicationQuotas(ReplicationOptions()),
        address,
        None,
        lambda: next(ticks),
        lambda: None,
        Stats(),
    )
    for _ in range(2):
        await client.step()
        assert client.problem == "the holder does not know yet what it may lend"
        accepted[-1].get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED
        )
        accepted[-1].transport.abort()
        await asyncio.sleep(0.05)
    assert len(accepted) == 2
    client.close()
    holder.close()


def test_connection_that_was_reset_while_idle_is_made_anew() -> None:
    """On the loop that Sluice runs on: uvloop raises RuntimeError from writes on a connection that is gone."""
    uvloop.run(ask_again_after_a_reset())
