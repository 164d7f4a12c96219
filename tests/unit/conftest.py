"""What all unit tests share, and what they may not do: speak to a socket, start a process, sleep."""

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.support.quiet_logging import logging_stays

__all__ = ["logging_stays"]

_FORBIDDEN: Final = frozenset(
    {"socket.bind", "socket.connect", "subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec"}
)
_WHERE: Final = "a test that needs it belongs into tests/component"
_running: list[str] = []


class NotAUnitTestError(BaseException):
    """No `except Exception` of the tested code may take it for a failed connection."""


def _watch(event: str, _: tuple[Any, ...]) -> None:
    if _running and event in _FORBIDDEN:
        raise NotAUnitTestError(f"{event} in {_running[0]}: {_WHERE}")


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def nothing_outside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse sockets, processes and sleeps while a unit test runs."""
    real = asyncio.sleep

    def sleep(seconds: float) -> None:
        if seconds > 0:
            raise NotAUnitTestError(f"time.sleep: {_WHERE}")

    async def sleep_of_loop(seconds: float, result: Any = None) -> Any:
        if seconds > 0:
            raise NotAUnitTestError(f"asyncio.sleep: {_WHERE}")
        return await real(0, result)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(asyncio, "sleep", sleep_of_loop)
    _running.append(request.node.nodeid)
    yield
    _running.clear()
