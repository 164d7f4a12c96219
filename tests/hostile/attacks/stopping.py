"""Attempts to end the process: by clients, by what brokers say, by files."""

import contextlib
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from protocol.api import LIST_OFFSETS
from tests.hostile import scene as harm
from tests.hostile import wire
from tests.hostile.scene import Harm, Row, Scene, Stage, ended, survivor
from tests.hostile.wire import Client

_HALVES: Final = 450
_POLL_SECONDS: Final = 7.0  # Sluice asks its brokers every five
_REFUSED_SECONDS_MAX: Final = 3.0
_READ_SECONDS_MAX: Final = 8.0
_RESIDENT_BYTES_MAX: Final = 1 << 30  # beyond it the attack has won: stop before the machine suffers
HOSTS: Final = {
    "empty label": "a..b",
    "label of 64 characters": "x" * 64 + ".example",
    "no IDNA": "\u2488.example",
    "zero byte": "a\0b",
    "32 kB": "x." * 16_000,
    "empty": "",
    "surrogate": "xn--\u0130.example",
}


def halves(seconds: float) -> Callable[[], float]:
    """450 connections with half a request each, closed and opened again."""

    def run() -> float:
        half = wire.half(LIST_OFFSETS, 7, 200)
        with survivor(Stage()) as scene:
            until = time.monotonic() + seconds
            clients: list[Client] = []
            while time.monotonic() < until and scene.sluice.alive():
                with contextlib.suppress(OSError):
                    while len(clients) < _HALVES:
                        clients.append(Client(scene.address, until=until))
                        clients[-1].send(half)
                for client in clients:
                    client.reset()
                clients.clear()
            return float(ended(scene))

    return run


def brokers_say(hosts: Sequence[str]) -> Callable[[], float]:
    """The cluster's Metadata names brokers at such hosts."""

    def run() -> float:
        with survivor(Stage()) as scene:
            scene.broker.order(hosts=list(hosts))
            with contextlib.suppress(OSError), scene.connected(time.monotonic() + 2) as client:
                client.ask(wire.metadata("a"))
            time.sleep(_POLL_SECONDS)
            return float(ended(scene))

    return run


def map_file(text: str) -> Callable[[], float]:
    """A broker map on disk that another program has written."""

    def run() -> float:
        with tempfile.TemporaryDirectory(prefix="hostile-state-") as directory:
            (Path(directory) / "brokers.json").write_text(text)
            stage = Stage(sections={"state": {"directory": directory}})
            try:
                with survivor(stage) as scene:
                    time.sleep(1.0)
                    return float(ended(scene))
            except RuntimeError:
                return 1.0

    return run


def reloaded(name: str) -> Callable[[], float]:
    """A file is replaced by something else, and then by a good one: how often the latter is not read."""

    def run() -> float:
        lost = 0
        left = list(_FILES.values())
        while left:
            with survivor(Stage()) as scene:
                while left and not ended(scene):
                    lost += not _survives(scene, scene.sluice.directory / name, left.pop(0))
        return float(lost)

    return run


def _survives(scene: Scene, path: Path, write: Callable[[Path], object]) -> bool:
    """Whether a good file is read behind one that is not."""
    good = path.read_text()
    path.unlink()
    write(path)
    _reload(scene, "refused", _REFUSED_SECONDS_MAX)
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    path.write_text(f"{good}\n# {time.monotonic()}\n")
    return _reload(scene, "ok", _READ_SECONDS_MAX)


def _reload(scene: Scene, result: str, seconds: float) -> bool:
    """Have the files read again, and wait until that has such a result; False where it never has."""
    before = _reloads(scene, result)
    if scene.sluice.alive():
        scene.sluice.signal(signal.SIGHUP)
    until = time.monotonic() + seconds
    while time.monotonic() < until and scene.sluice.alive():
        if scene.resident_bytes() > _RESIDENT_BYTES_MAX:
            os.kill(scene.sluice.process_id, signal.SIGKILL)
            return False
        if _reloads(scene, result) > before >= 0:
            return True
        time.sleep(0.05)
    return False


def _reloads(scene: Scene, result: str) -> float:
    try:
        return scene.sluice.metric("sluice_reloads_total", result=result)
    except OSError:
        return -1.0


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


_FILES: Final[dict[str, Callable[[Path], object]]] = {
    "dotted key of 5,000 parts": _text("[[quota]]\n" + ".".join(["a"] * 5000) + " = 1\n"),
    "table of 5,000 parts": _text("[" + ".".join(["a"] * 5000) + "]\n"),
    "arrays 50,000 deep": _text("x = " + "[" * 50_000 + "]" * 50_000 + "\n"),
    "integer of 5,000 digits": _text(f'[[quota]]\nclient_id = "a"\nproducer_byte_rate = {"9" * 5000}\n'),
    "FIFO": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "socket": _socket,
    "directory": os.mkdir,
    "no UTF-8": lambda path: path.write_bytes(b"\xff\xfe" * 1000),
}
_MAPS: Final = {
    "empty label": json.dumps({"7": ["a..b", 9092]}),
    "integer of 5,000 digits": '{"7": ["a", ' + "9" * 5000 + "]}",
    "arrays 50,000 deep": "[" * 50_000,
    "infinite port": '{"7": ["a", 1e999]}',
    "negative id": '{"-7": ["a", -1]}',
}


def _harm(name: str, finding: int, what: str, run: Callable[[], float], unit: str = "ended") -> Harm:
    return Row(name, finding, what, unit, 0.0), run


_KINDS: Final = ", ".join(_FILES)
_HARMS: Final = (
    _harm("halves", 1, "450 connections, half a request each, closed and opened again", halves(8.0)),
    _harm("hosts", 2, f"brokers' host names: {', '.join(HOSTS)}", brokers_say(list(HOSTS.values()))),
    *(_harm(f"map-{name}", 2, f"`brokers.json`: {name}", map_file(text)) for name, text in _MAPS.items()),
    _harm("quotas", 3, f"quotas file: {_KINDS}", reloaded("quotas.toml"), "lost"),
    _harm("configuration", 3, "configuration: the same", reloaded("sluice.toml"), "lost"),
)
ROWS: Final = tuple(row for row, _ in _HARMS)
measure: Final = partial(harm.measure, _HARMS)
