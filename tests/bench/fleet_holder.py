"""What a fleet's holder costs: CPU of one process that leases to many members over TCP.

    python -m tests.bench.fleet_holder [--members 16] [--keys 1000] [--seconds 20] [--changes 0.05]

The holder is a process of its own with nothing else in it; all members are in another. Each of them wants every key;
each second a part of its demands changes in weight (`--changes`), as when connections come and go.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from proxy.clock import now_ms
from proxy.config import Address
from proxy.fleet import FleetClient, HolderPort
from proxy.metrics.fleet import FleetFigures
from quotas.sharing.lease_values import Grants, LeaseTerms, LesseeId, Report, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor

_WARM_SECONDS: Final = 8.0
_LEASE_MS: Final = 15_000
_PERIOD_MS: Final = 1000
_CHANGE_MS: Final = 1000


class Demands:
    """A member that wants all keys."""

    def __init__(self, lessee: Lessee, keys: int, changes: float, seed: int) -> None:
        self._lessee = lessee
        self._random = random.Random(seed)
        self._keys = [f"producer_byte_rate@-1 -=:client-{number:05}" for number in range(keys)]
        self._wishes = {key: Wish(1.0, self._random.randint(1, 20)) for key in self._keys}
        self._changes = round(changes * keys)
        self._changed_ms = now_ms()

    def report(self, at_ms: int) -> Report | None:
        """Return the report that is due, with changed demands each second."""
        if at_ms >= self._changed_ms + _CHANGE_MS:
            self._changed_ms = at_ms
            for key in self._random.sample(self._keys, self._changes):
                self._wishes[key] = Wish(1.0, self._random.randint(1, 20))
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
    port = HolderPort(terms.lessees_max, None, now_ms, FleetFigures())
    pipe.send(tuple(await port.start(Address("127.0.0.1", 0))))
    port.lead(Lessor(terms, 1, lambda _: 1.0, now_ms(), 0), now_ms())
    await port.run()


def _holder(terms: LeaseTerms, pipe: Connection) -> None:
    asyncio.run(_hold(terms, pipe))


async def _members(terms: LeaseTerms, address: Address, arguments: argparse.Namespace, holder: int) -> None:
    figures = FleetFigures()
    lessees = [Lessee(terms, LesseeId(f"m{number:02}", 1), now_ms()) for number in range(arguments.members)]
    running = [
        asyncio.create_task(
            FleetClient(
                lessee,
                Demands(lessee, arguments.keys, arguments.changes, number),
                lambda: address,
                None,
                now_ms,
                lambda: {"version": "1"},
                figures,
            ).run()
        )
        for number, lessee in enumerate(lessees)
    ]
    await asyncio.sleep(_WARM_SECONDS)
    before, began, granted = _cpu(holder), time.monotonic(), figures.reports["granted"]
    await asyncio.sleep(arguments.seconds)
    seconds = time.monotonic() - began
    used = (_cpu(holder) - before) / seconds
    exchanges = (figures.reports["granted"] - granted) / seconds
    leased = sum(lessee.leased(now_ms()) for lessee in lessees)
    print(
        f"{arguments.members} members ({leased} leased), {arguments.keys} keys, {arguments.changes:.0%} of demands"
        f" changed each second: holder {used:.1%} of a core, {exchanges:.0f} grants/s"
    )
    for task in running:
        task.cancel()


def _cpu(process: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure once, and print a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--changes", type=float, default=0.05)
    arguments = parser.parse_args()
    terms = LeaseTerms(_LEASE_MS, _PERIOD_MS, arguments.members)
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_holder, args=(terms, there), daemon=True)
    process.start()
    assert process.pid is not None, "it was started"
    try:
        asyncio.run(_members(terms, Address(*here.recv()), arguments, process.pid))
    finally:
        process.kill()


if __name__ == "__main__":
    main()
