"""What the quota API costs with many entities: `python -m tests.bench.quota_file [--entities 100000]`.

In one process, as in the proxy: an event loop that relays (a turn is a `send` and a `recv` on a socket pair, which
release Python's lock as the data path does), and the quota service with its thread. Printed are how long each request
took from the loop's asking to its response, and the longest turn of the loop meanwhile, which is what a client's frame
could have waited for beside an idle proxy's. The first rows are a loop with nothing else to do: what this machine
itself makes a turn wait.
"""

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import uvloop

from protocol.header import body_start
from protocol.messages.client_quotas import Alteration, Component
from proxy.channel import Question, SharedResponse
from proxy.config import QuotaSettings
from proxy.control.quotas import FileStore, QuotaService
from proxy.system.stats import Stats
from quotas.engine import Engine
from quotas.options import EngineOptions
from tests.support.quota_frames import alter_request, describe_request

_ROUNDS: Final = 5
_IDLE_SECONDS: Final = 1.0
_EDITOR: Final = """
import json, pathlib, sys
for line in sys.stdin:
    name, old, new, count = json.loads(line)
    path = pathlib.Path(name)
    path.with_suffix(".new").write_text(path.read_text().replace(old, new, count))
    path.with_suffix(".new").replace(path)
    print("written", flush=True)
"""
_KEY: Final = "producer_byte_rate"


class StepQueue:
    """A loop's turns, each with the system calls of a small relay, and the longest of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._near, self._far = socket.socketpair()
        self._last_ns = 0
        self._on = False
        self.longest_ns = 0
        self.count = 0

    def begin(self) -> None:
        """Count from now on."""
        self.longest_ns = self.count = 0
        self._last_ns = time.monotonic_ns()
        self._on = True
        self._turn()

    def end(self) -> None:
        """Count no more."""
        self._on = False

    def _turn(self) -> None:
        self._near.send(b"request")
        self._far.recv(100)
        now_ns = time.monotonic_ns()
        self.longest_ns = max(self.longest_ns, now_ns - self._last_ns)
        self._last_ns = now_ns
        self.count += 1
        if self._on:
            self._loop.call_later(0.0005, self._turn)


def file_text(entities: int) -> str:
    """A quotas file as people keep one."""
    return "# Quotas of all clients.\n\n" + "".join(
        f'# team {n % 100}\n[[quota]]\nclient_id = "client-{n}"\n{_KEY} = {1_000_000 + n}\n'
        f'consumer_byte_rate = "2M"  # agreed\n\n'
        for n in range(entities)
    )


def question(frame: bytes) -> Question:
    """A request as a channel hands it over."""
    key = int.from_bytes(frame[4:6], "big")
    start = body_start(frame, 0, len(frame), key, 0)
    assert start is not None, "the frame is whole"
    return Question(key, 0, 1, frame, start, "ANONYMOUS", trusted=True)


def alteration(client_id: str, rate: float | None) -> Alteration:
    """One client's producer quota."""
    return [("client-id", client_id)], [(_KEY, rate)]


def alter(*alterations: Alteration) -> Question:
    """An AlterClientQuotas."""
    frame = alter_request(alterations, validate_only=False, correlation_id=1, client_id="bench")
    return question(frame)


def describe(*components: Component, strict: bool) -> Question:
    """A DescribeClientQuotas."""
    frame = describe_request(components, strict=strict, correlation_id=1, client_id="bench")
    return question(frame)


class Bench:
    """One service, one loop, one table of results."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, entities: int) -> None:
        self._loop = loop
        self._path = path
        self._entities = entities
        self._settings = QuotaSettings(file=path)
        began = time.perf_counter()
        store = FileStore(self._settings)
        self._row("read at the start (before there is a loop)", [time.perf_counter() - began], 0)
        self._engine = Engine(EngineOptions(), store.definitions)
        self._desk = QuotaService(loop, store, self._settings, Stats(), self._altered)
        self._turns = StepQueue(loop)
        gc.freeze()  # as the proxy does

    async def run(self) -> None:
        """Measure everything."""
        # Made before anything is measured: to start a process takes a loop's turn of its own.
        pipe = asyncio.subprocess.PIPE
        self._editor = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _EDITOR, stdin=pipe, stdout=pipe
        )
        await self._measure("nothing", lambda _: asyncio.sleep(_IDLE_SECONDS))
        await self._measure("one alteration", lambda n: self._ask(alter(alteration("client-77", 5e6 + n))))
        await self._measure("a new entity", lambda n: self._ask(alter(alteration(f"new-{n}", 5e6))))
        await self._measure("an entity removed", lambda n: self._ask(alter(alteration(f"new-{n}", None))))
        count = min(10_000, self._entities)
        many = alter(*(alteration(f"client-{n}", 7e6) for n in range(count)))
        await self._measure(f"{count} alterations in one request", lambda _: self._ask(many), 1)
        await self._measure(
            "one entity described", lambda _: self._ask(describe(("client-id", 0, "client-77"), strict=True))
        )
        await self._measure("all described", lambda _: self._ask(describe(strict=False)), 2)
        await self._measure("file changed by an editor, read again", self._edited, 3)
        await self._measure("file changed whole, read again", self._rewritten, 1)
        self._desk.close()
        self._editor.terminate()
        await self._editor.wait()

    async def _measure(
        self, name: str, work: Callable[[int], Awaitable[object]], rounds: int = _ROUNDS
    ) -> None:
        seconds: list[float] = []
        longest_ns = 0
        for index in range(rounds):
            self._turns.begin()
            began = time.perf_counter()
            await work(index)
            seconds.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
            self._turns.end()
            await asyncio.sleep(0.01)
            longest_ns = max(longest_ns, self._turns.longest_ns)
        self._row(name, seconds, longest_ns)

    async def _ask(self, asked: Question) -> int:
        responded: asyncio.Future[bytes] = self._loop.create_future()

        def take(response: bytes | bytearray | SharedResponse | Exception) -> None:
            assert not isinstance(response, Exception), f"no response: {response!r}"
            responded.set_result(bytes(response))

        self._desk.ask(asked, take)
        return len(await responded)

    async def _edited(self, index: int) -> None:
        await self._replace("# team 5\n", f"# team 5-{index}\n", 20)

    async def _rewritten(self, _index: int) -> None:
        await self._replace('"2M"', '"3M"', -1)

    async def _replace(self, old: str, new: str, count: int) -> None:
        # By another process, so that this one's lock is not held for it.
        assert self._editor.stdin is not None, "the editor listens"
        assert self._editor.stdout is not None, "and says when it has written"
        self._editor.stdin.write(json.dumps([str(self._path), old, new, count]).encode() + b"\n")
        assert await self._editor.stdout.readline(), "the editor writes"
        await self._desk.read(self._settings)

    def _altered(self) -> None:
        self._engine.update(self._engine.options, self._engine.definitions, 0)

    def _row(self, name: str, seconds: list[float], longest_ns: int) -> None:
        slowest_ms = max(seconds) * 1000
        longest = f"{longest_ns / 1e6:8.1f}" if longest_ns else "       –"
        print(f"{name:<45}{min(seconds) * 1000:>10.1f}{slowest_ms:>10.1f}{longest}", flush=True)


async def _main(entities: int) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        path = Path(directory) / "quotas.toml"
        path.write_text(file_text(entities))
        print(f"{entities} entities, a file of {path.stat().st_size / 1e6:.1f} MB")
        print(f"{'':<45}{'best ms':>10}{'worst ms':>10}{'turn ms':>8}")
        await Bench(asyncio.get_running_loop(), path, entities).run()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--entities", type=int, default=100_000)
    uvloop.run(_main(arguments.parse_args().entities))
