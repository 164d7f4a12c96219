"""What a fleet's holder costs: CPU of one process that leases to many members over TCP.

The holder is a process of its own with nothing else in it; all members are in another. Each of them wants every key;
each second a part of its demands changes in weight, as when connections come and go.
"""

import asyncio
import multiprocessing
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

from rich.console import Console

from proxy.config import Address
from proxy.fleet import FleetClient, HolderPort
from proxy.fleet.secret import NO_SECRET
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.parts import Parts
from tests.bench.process import cpu_seconds
from tests.bench.report import Bar, Outcome, Table

LIMIT_PERCENT: Final = 25.0
_MEMBERS: Final = 16
_KEYS: Final = 1000
CHANGES: Final = 0.05  # of a member's demands, each second
_SECONDS: Final = 20.0
_WARM_SECONDS: Final = 8.0
_LEASE_MS: Final = 15_000
_PERIOD_MS: Final = 1000
_CHANGE_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured.

    Attributes:
        members: how many there were.
        leased: how many of them had a lease at the end.
        keys: what each of them wanted.
        cpu: of the holder, as a part of one core.
        grants: sent by the holder each second.
    """

    members: int
    leased: int
    keys: int
    cpu: float
    grants: float


def hot_keys(count: int) -> list[str]:
    """Return so many keys."""
    return [f"producer_byte_rate@-1 -=:client-{number:05}" for number in range(count)]


class Demands:
    """A member that wants all keys.

    Args:
        lessee: its leases, of one part of the keys or of all.
        weights: between which its demands change.
        changes: the part of them that changes each second.
    """

    def __init__(
        self,
        lessee: Lessee | Parts,
        keys: Sequence[str],
        seed: int,
        weights: tuple[int, int] = (1, 20),
        changes: float = CHANGES,
    ) -> None:
        self._lessee = lessee
        self._random = random.Random(seed)
        self._keys = keys
        self._weights = weights
        self._wishes = {key: Wish(1.0, self._random.randint(*weights)) for key in keys}
        self._changes = round(changes * len(keys))
        self._changed_ms = now_ms()

    def report(self, at_ms: int) -> Report | None:
        """Return the report that is due, with changed demands each second."""
        if at_ms >= self._changed_ms + _CHANGE_MS:
            self._changed_ms = at_ms
            for key in self._random.sample(self._keys, self._changes):
                self._wishes[key] = Wish(1.0, self._random.randint(*self._weights))
        self._lessee.expire(at_ms)
        self._lessee.wish(self._wishes)
        return self._lessee.report(at_ms) if self._lessee.due(at_ms) else None

    def take(self, grants: Grants, at_ms: int) -> bool:
        """Apply grants."""
        taken = self._lessee.take(grants, at_ms)
        if taken:
            self._lessee.confirm()
        return taken


async def _hold(terms: LeaseTerms, pipe: Connection) -> None:
    port = HolderPort(terms.lessees_max, NO_SECRET, now_ms, FleetFigures())
    pipe.send(tuple(await port.start(Address("127.0.0.1", 0))))
    port.lead(Lessor(terms, 1, lambda _: 1.0, now_ms(), 0))
    await port.run()


def _holder(terms: LeaseTerms, pipe: Connection) -> None:
    asyncio.run(_hold(terms, pipe))


async def _members(terms: LeaseTerms, address: Address, keys: int, seconds: float, holder: int) -> Figures:
    figures = FleetFigures()
    lessees = [Lessee(terms, LesseeId(f"m{number:02}", 1), now_ms()) for number in range(terms.lessees_max)]
    running = [
        asyncio.create_task(
            FleetClient(
                lessee,
                Demands(lessee, hot_keys(keys), number),
                lambda: address,
                NO_SECRET,
                now_ms,
                lambda: {"version": "1"},
                figures,
            ).run()
        )
        for number, lessee in enumerate(lessees)
    ]
    await asyncio.sleep(min(_WARM_SECONDS, seconds))
    before, began, granted = cpu_seconds(holder), time.monotonic(), figures.reports["granted"]
    await asyncio.sleep(seconds)
    lasted = time.monotonic() - began
    used = (cpu_seconds(holder) - before) / lasted
    grants = (figures.reports["granted"] - granted) / lasted
    leased = sum(lessee.leased(now_ms()) for lessee in lessees)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return Figures(len(lessees), leased, keys, used, grants)


def measure(
    console: Console, members: int = _MEMBERS, keys: int = _KEYS, seconds: float = _SECONDS
) -> Figures:
    """Start a holder, and let the members ask it."""
    terms = LeaseTerms(_LEASE_MS, _PERIOD_MS, members)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_holder, args=(terms, there), daemon=True)
    process.start()
    assert process.pid is not None, "it was started"
    try:
        found = asyncio.run(_members(terms, Address(*here.recv()), keys, seconds, process.pid))
    finally:
        process.kill()
        process.join()
    console.print(f"{members} members, {keys:,} keys: {found.cpu:.1%} of a core")
    return found


def report(found: Figures) -> Outcome:
    """Return the table and the bar; a member without a lease asks for little, so then nothing was measured."""
    name = f"{found.members} members, {found.keys:,} hot keys: the holder's CPU"
    complete = found.leased == found.members
    bar = Bar(name, 100 * found.cpu if complete else None, LIMIT_PERCENT, "% of a core")
    columns = ("members", "with a lease", "keys", "changed each second", "CPU of a core", "grants/s")
    row = (
        *(str(found.members), str(found.leased), f"{found.keys:,}", f"{CHANGES:.0%}"),
        *(f"{found.cpu:.1%}", f"{found.grants:.0f}"),
    )
    note = "Every member wants every key; a part of its demands changes in weight each second."
    return Outcome([Table("The holder, a process of its own", columns, (row,), note)], [bar])
