"""What `tests/unit/conftest.py` refuses: a unit test that would leave the process, or wait."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest


def connect() -> None:
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", 9))


def bind() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))


def start() -> object:
    return subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.parametrize("act", [connect, bind, start, lambda: time.sleep(0.001)])
def test_unit_test_is_refused_what_leaves_the_process(act: Callable[[], object]) -> None:
    with pytest.raises(BaseException, match="belongs into tests/component"):
        act()


async def test_unit_test_may_give_way_to_the_loop_and_not_sleep() -> None:
    await asyncio.sleep(0)
    with pytest.raises(BaseException, match="belongs into tests/component"):
        await asyncio.sleep(0.001)
