"""How long the event loop is held while 10,000 clients are listed: `python -m tests.bench.lists`.

One process with made-up clients, a real admin port, curl in a process of its own. What is measured is the CPU time of
the loop's thread between two of its turns, so that other processes of the machine count little.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from proxy.admin import AdminServer, Explanations
from proxy.channel import ASKED, Condition
from proxy.config import Address
from proxy.explain.explanation import Origin
from proxy.net import Connections
from proxy.process.watching import Watching
from proxy.system.clock import clock_ns
from proxy.system.stats import Stats
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.cluster import HOST, free_ports

CLIENTS: Final = 10_000
USERS: Final = 1_000
TURNS: Final = 5
HELD_MS_MAX: Final = 5.0
PATHS: Final = ("/v1/clients", "/v1/rules", "/v1/client?client_id=many&user=")


def engine_of_many() -> Engine:
    """Return an engine with defaults, and limits of users."""
    limits = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0, "request_percentage": 5.0}
    entities = {Entity(f"user-{number}"): {"producer_byte_rate": 5000.0} for number in range(USERS)}
    return Engine(EngineOptions(), Definitions({Entity(client_id=DEFAULT): limits, **entities}))


def watching_of_many(engine: Engine) -> Watching:
    """Return the watch of CLIENTS clients with a connection each, and of one with as many connections."""
    watching = Watching(Connections(), engine, Stats())
    now_ms = clock_ns() // 1_000_000
    many = engine.client("", "many", 1)
    for number in range(CLIENTS):
        user = f"user-{number % USERS}" if number % 2 else ""
        quota = engine.client(user, f"client-{number}", 1)
        quota.produce.produce(quota.produce.flow(), 100_000, now_ms - 5000)
        for client, name in ((quota, ("one", number)), (many, ("many", number))):
            for waited_ms, at_ms in ((0, now_ms - 900), (number % 700, now_ms)):
                seen = Condition(client, 1, ASKED, 0, waited_ms, client.produce if waited_ms else None)
                watching.watch.visit(name, seen, f"10.0.0.1:{number}", 100, at_ms)
    return watching


@asynccontextmanager
async def measured_turns() -> AsyncIterator[list[float]]:
    """Collect the CPU time in ms of each turn of the loop."""
    turns: list[float] = []

    async def measure() -> None:
        last_ns = time.thread_time_ns()
        while True:
            await asyncio.sleep(0)
            now_ns = time.thread_time_ns()
            turns.append((now_ns - last_ns) / 1e6)
            last_ns = now_ns

    task = asyncio.create_task(measure())
    try:
        yield turns
    finally:
        task.cancel()


async def measure(port: int, path: str) -> tuple[int, float, float]:
    """Return the bytes of a page, the seconds it took, and the longest turn of the loop in ms."""
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sS", f"http://{HOST}:{port}{path}", stdout=asyncio.subprocess.PIPE
    )
    assert curl.stdout is not None, "a pipe was asked for"
    began = time.monotonic()
    async with measured_turns() as turns:
        body = await curl.stdout.read()
    took = time.monotonic() - began
    await curl.wait()
    return len(body), took, max(turns)


async def main() -> None:
    """Measure all pages, and print a table."""
    engine = engine_of_many()
    seen = watching_of_many(engine).respond
    pages = Explanations(seen, engine, lambda _entity, _key: Origin("ops", ""))
    server = AdminServer(pages.handlers())
    (port,) = free_ports(1)
    await server.start(Address(HOST, port))
    gc.collect()
    gc.freeze()
    print(f"{CLIENTS:,} clients; longest turn of the loop over {TURNS} times, bar {HELD_MS_MAX} ms\n")
    print("| page | bytes | seconds | longest turn, ms | median of the longest |\n|---|--:|--:|--:|--:|")
    for path in PATHS:
        found = [await measure(port, path) for _ in range(TURNS)]
        longest = sorted(turn for _, _, turn in found)
        seconds = sorted(took for _, took, _ in found)[TURNS // 2]
        print(
            f"| `{path}` | {found[0][0]:,} | {seconds:.2f} | {longest[-1]:.1f} | {longest[TURNS // 2]:.1f} |"
        )
    await server.close()


if __name__ == "__main__":
    asyncio.run(main())
