"""What one member of a large fleet costs whose keys are in parts: its CPU among 100 members with 10,000 hot keys.

The measured process is a member as `proxy.fleet.fleet` makes it: the holder of one part, with a connection to the
holder of each other part. All others are in one process: 99 members for the part that is measured, and the holders of
all other parts, which divide the keys between the measured member and one that stands for the others. Each member
wants every key; each second a part of its demands changes in weight.
"""

import asyncio
import multiprocessing
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

from rich.console import Console

from proxy.config import Address
from proxy.fleet import FleetClient, HolderPort
from proxy.fleet.facts import part_of_connection
from proxy.fleet.secret import NO_SECRET
from proxy.metrics.fleet import FleetFigures
from proxy.system.clock import now_ms
from quotas.sharing.lease_values import LeaseTerms, LesseeId
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.parts import PARTS_MAX, Leasing, PartLeasing, Parts, part_of
from tests.bench.fleet.holder import CHANGES, LIMIT_PERCENT, Demands, Figures, hot_keys
from tests.bench.process import cpu_seconds
from tests.bench.report import Bar, Outcome, Table

_MEMBERS: Final = 100
_KEYS: Final = 10_000
_SECONDS: Final = 20.0
_WARM_SECONDS: Final = 15.0
_LEASE_MS: Final = 15_000
_PERIOD_MS: Final = 1000
_CROWD: Final = (500, 1500)  # the weight of all other members together
_TERMS: Final = LeaseTerms(_LEASE_MS, _PERIOD_MS, _MEMBERS)


async def _member(keys: int, pipe: Connection) -> None:
    figures = FleetFigures()
    port = HolderPort(_MEMBERS, NO_SECRET, now_ms, figures, None, PARTS_MAX)
    own = await port.start(Address("127.0.0.1", 0))
    port.lead(Lessor(_TERMS, 1, lambda _: 1.0, now_ms(), 0))
    pipe.send(tuple(own))
    addresses = [own, *(Address(*one) for one in await asyncio.to_thread(pipe.recv))]
    name = LesseeId("measured", 1)
    parts = Parts([Lessee(_TERMS, name, now_ms()) for _ in range(PARTS_MAX)])
    hungry = Demands(parts, hot_keys(keys), 0)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(port.run())
        for part, lessee in enumerate(parts.lessees):
            client = FleetClient(
                lessee,
                PartLeasing(parts, hungry, part),
                partial(addresses.__getitem__, part),
                NO_SECRET,
                now_ms,
                partial(part_of_connection, part, PARTS_MAX),
                figures,
                None,
                (part, PARTS_MAX),
            )
            tasks.create_task(client.run())
        while True:
            await asyncio.sleep(0.5)
            pipe.send((sum(lessee.leased(now_ms()) for lessee in parts.lessees), figures.reports["granted"]))


def _process(keys: int, pipe: Connection) -> None:
    asyncio.run(_member(keys, pipe))


def _client(
    lessee: Lessee, leasing: Leasing, holder: Address, part: int, figures: FleetFigures
) -> FleetClient:
    facts = part_of_connection(part, PARTS_MAX)
    return FleetClient(
        lessee, leasing, lambda: holder, NO_SECRET, now_ms, lambda: facts, figures, None, (part, PARTS_MAX)
    )


async def _others(keys: int, pipe: Connection, seconds: float, process: int) -> Figures:
    names = hot_keys(keys)
    own = [key for key in names if part_of(key, PARTS_MAX) == 0]
    address = Address(*await asyncio.to_thread(pipe.recv))
    figures = FleetFigures()
    ports = [HolderPort(_MEMBERS, NO_SECRET, now_ms, figures, None, PARTS_MAX) for _ in range(1, PARTS_MAX)]
    tasks, addresses = [], []
    for part, port in enumerate(ports, 1):
        addresses.append(await port.start(Address("127.0.0.1", 0)))
        port.seats[part].lead(Lessor(_TERMS, part + 1, lambda _: 1.0, now_ms(), 0))
        tasks.append(asyncio.create_task(port.run()))
        crowd = Lessee(_TERMS, LesseeId("crowd", 2), now_ms())
        wanted = Demands(crowd, [key for key in names if part_of(key, PARTS_MAX) == part], part, _CROWD, 1.0)
        tasks.append(asyncio.create_task(_client(crowd, wanted, addresses[-1], part, figures).run()))
    pipe.send([tuple(one) for one in addresses])
    lessees = [Lessee(_TERMS, LesseeId(f"m{number:02}", 3), now_ms()) for number in range(1, _MEMBERS)]
    for number, lessee in enumerate(lessees):
        tasks.append(
            asyncio.create_task(_client(lessee, Demands(lessee, own, number), address, 0, figures).run())
        )
    await asyncio.sleep(_WARM_SECONDS)
    granted = 0
    while pipe.poll():
        _, granted = pipe.recv()
    before, began = cpu_seconds(process), time.monotonic()
    await asyncio.sleep(seconds)
    lasted = time.monotonic() - began
    used = (cpu_seconds(process) - before) / lasted
    leased, after = 0, granted
    while pipe.poll():
        leased, after = pipe.recv()
    all_leased = leased == PARTS_MAX and all(lessee.leased(now_ms()) for lessee in lessees)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return Figures(_MEMBERS, _MEMBERS if all_leased else 0, keys, used, (after - granted) / lasted)


def measure(console: Console, keys: int = _KEYS, seconds: float = _SECONDS) -> Figures:
    """Start a member, and be all others."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_process, args=(keys, there), daemon=True)
    process.start()
    assert process.pid is not None, "it was started"
    try:
        found = asyncio.run(_others(keys, here, seconds, process.pid))
    finally:
        process.kill()
        process.join()
    console.print(
        f"{_MEMBERS} members, {keys:,} keys in {PARTS_MAX} parts: {found.cpu:.1%} of a core at one member"
    )
    return found


def report(found: Figures) -> Outcome:
    """Return the table and the bar; a member without a lease asks for little, so then nothing was measured."""
    name = f"{found.members} members, {found.keys:,} hot keys in {PARTS_MAX} parts: one member's CPU"
    bar = Bar(name, 100 * found.cpu if found.leased else None, LIMIT_PERCENT, "% of a core")
    columns = ("members", "keys", "parts", "changed each second", "CPU of a core", "grants taken/s")
    row = (
        str(found.members),
        f"{found.keys:,}",
        str(PARTS_MAX),
        f"{CHANGES:.0%}",
        f"{found.cpu:.1%}",
        f"{found.grants:.0f}",
    )
    note = (
        "The member is the holder of one part, and has a lease of each; it wants every key, as all others do."
    )
    return Outcome([Table("A member of a large fleet, without clients", columns, (row,), note)], [bar])
