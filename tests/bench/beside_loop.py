"""`python -m tests.bench.beside_loop`: how long the loop's clients wait while the worker's thread reads large frames.

A child process asks an echo on the loop 500 times a second (open loop: a wait counts from when the question was due);
each echo is one read and one write, as a small frame's way through a pump is, and at each of them the loop gives the
interpreter away. Jobs are the slowest of `loop_table`, one after the other, as a stream of such frames would have them.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import uvloop

from proxy.channel import Job
from proxy.system.threads import Worker
from tests.bench.figures import percentile
from tests.support.worst_frames import cases, run

_SECONDS: Final = 8.0
_INTERVAL_SECONDS: Final = 0.002
_QUESTION: Final = bytes(100)


def ask(port: int) -> None:
    """The child: ask, and print each wait in ms."""
    waits = []
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        due = began
        while due < began + _SECONDS:
            time.sleep(max(0.0, due - time.perf_counter()))
            peer.sendall(_QUESTION)
            got = 0
            while got < len(_QUESTION):
                got += len(peer.recv(len(_QUESTION)))
            waits.append((time.perf_counter() - due) * 1000)
            due += _INTERVAL_SECONDS
    print(json.dumps(waits))


async def _measured(begin: Callable[[asyncio.AbstractEventLoop], None]) -> list[float]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-m", "tests.bench.beside_loop", str(server.getsockname()[1])]
        child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        peer, _ = await asyncio.to_thread(server.accept)
    peer.setblocking(False)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(65536)
    view = memoryview(buffer)

    def echo() -> None:
        with suppress(BlockingIOError):
            count = peer.recv_into(view)
            if not count:
                loop.remove_reader(peer)
            peer.send(view[:count])

    loop.add_reader(peer, echo)
    begin(loop)
    told, _ = await child.communicate()
    loop.remove_reader(peer)
    peer.close()
    return list(json.loads(told))


def _nothing(_loop: asyncio.AbstractEventLoop) -> None:
    """No job."""


def _stream(job: Job, took: list[float]) -> Callable[[asyncio.AbstractEventLoop], None]:
    """The same job one time after the other; `took` gets how long each ran, which is longer than its CPU time."""

    def begin(loop: asyncio.AbstractEventLoop) -> None:
        worker = Worker(loop)

        def run_job() -> None:
            began = time.perf_counter()
            job.run()
            took.append(time.perf_counter() - began)

        def submit(_done: bool = True) -> None:
            worker.submit("192.0.2.1", 1, run_job, submit)

        submit()
        loop.call_later(_SECONDS, worker.close)

    return begin


def _row(name: str, waits: list[float], took: Sequence[float]) -> None:
    waits.sort()
    p50, p99 = percentile(waits, 50), percentile(waits, 99)
    longest = max(took, default=0.0)
    print(
        f"{name:60} {len(took):4} {longest:7.2f} {len(waits):6} {p50:7.2f} {p99:7.2f} {waits[-1]:8.2f}",
        flush=True,
    )


def main(arguments: Sequence[str]) -> None:
    """Print the table; in the child, ask."""
    if arguments and arguments[0].isdigit():
        ask(int(arguments[0]))
        return
    print(
        f"{'in the thread':60} {'jobs':>4} {'each s':>7} {'asked':>6} {'p50 ms':>7} {'p99 ms':>7} {'max ms':>8}"
    )
    _row("nothing", uvloop.run(_measured(_nothing)), ())
    for case, talk in cases():
        if arguments and arguments[0] not in case.name:
            continue
        job = run(talk).job
        if job is not None:
            took: list[float] = []
            waits = uvloop.run(_measured(_stream(job, took)))
            _row(f"{case.name}, {case.what}", waits, took)


if __name__ == "__main__":
    main(sys.argv[1:])
