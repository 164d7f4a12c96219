"""A holder's port and members of a fleet, on sockets of this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config import Address
from proxy.fleet import FleetClient, HolderPort
from proxy.fleet.messages import Facts, Frames
from proxy.fleet.secret import FleetSecret
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from proxy.system.files import SECRET_BYTES_MIN
from proxy.system.hosts import PLAINTEXT, Context, FleetContexts
from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.parts import Parts

TERMS = LeaseTerms(15_000, 1000, 4)
KEY = "user:ann"
LEASED = "this member leases shares in the fleet"
CUT_OFF = "this member is cut off from the fleet: it uses the same share of every quota"
LOCAL = Address("127.0.0.1", 0)
# Of each budget, 0.5 % is never lent.
WHOLE = 0.995
SECONDS_MAX = 20.0  # how fast it is, is shown in virtual time


class Budgets:
    """The demands of one member."""

    def __init__(self, lessee: Lessee | Parts) -> None:
        self._lessee = lessee
        self.wanted: dict[str, Wish] = {}

    def report(self, now_ms: int) -> Report | None:
        self._lessee.expire(now_ms)
        self._lessee.wish(self.wanted)
        return self._lessee.report(now_ms) if self._lessee.due(now_ms) else None

    def take(self, grants: Grants, now_ms: int) -> bool:
        taken = self._lessee.take(grants, now_ms)
        if taken:
            self._lessee.confirm()
        return taken


@dataclass
class Member:
    """A member that is connected, or tries to be."""

    name: str
    holder: Address | None
    secret_file: Path | None = None
    facts: Facts = field(default_factory=dict)
    terms: LeaseTerms = TERMS
    run: int = 1
    tls: Context | None = None

    def __post_init__(self) -> None:
        self.lessee = Lessee(self.terms, LesseeId(self.name, self.run), now_ms())
        self.budgets = Budgets(self.lessee)
        self.figures = FleetFigures()
        self.client = FleetClient(
            self.lessee,
            self.budgets,
            lambda: self.holder,
            FleetSecret(self.secret_file),
            now_ms,
            lambda: self.facts,
            self.figures,
            self.tls,
        )
        self.task = asyncio.create_task(self.client.run())

    def share(self, key: str = KEY) -> float:
        return self.lessee.share(key, now_ms())

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


class Fleet:
    """A holder's port, and members."""

    def __init__(
        self, port: HolderPort, address: Address, figures: FleetFigures, tls: FleetContexts = PLAINTEXT
    ) -> None:
        self.port = port
        self.tls = tls
        self.address = address
        self.figures = figures
        self.members: list[Member] = []

    def join(self, name: str, secret_file: Path | None = None, run: int = 1, **facts: str) -> Member:
        self.members.append(Member(name, self.address, secret_file, facts, run=run, tls=self.tls.client))
        return self.members[-1]


@asynccontextmanager
async def fleet(
    secret_file: Path | None = None, terms: LeaseTerms = TERMS, tls: FleetContexts = PLAINTEXT, parts: int = 1
) -> AsyncIterator[Fleet]:
    figures = FleetFigures()
    secret = FleetSecret(secret_file)
    port = HolderPort(terms.lessees_max, secret, now_ms, figures, tls.port, parts)
    found = Fleet(port, await port.start(LOCAL), figures, tls)
    port.lead(Lessor(terms, 7, lambda _: 1.0, now_ms(), 0))
    ticking = asyncio.create_task(port.run())
    try:
        yield found
    finally:
        for member in found.members:
            await member.end()
        ticking.cancel()
        await port.close()


async def until(holds: Callable[[], object], seconds: float = SECONDS_MAX) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def secret(tmp_path: Path, word: str) -> Path:
    """Write a secret that is long enough, and begins with a word."""
    path = tmp_path / word
    path.write_text(word.ljust(SECRET_BYTES_MIN, "."))
    return path


async def proven(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes = b"") -> Frames:
    """The frames of a member's connection, after hello and proof."""
    frames = Frames(secret, holder=False)
    writer.write(frames.hello())
    await frames.receive(reader)
    writer.write(frames.proof())
    await frames.receive(reader)
    return frames
