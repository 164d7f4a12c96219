"""The page of `sluice console` open on a proxy that is measured: the console's process, and a reader of its stream."""

import http.client
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.console_process import ConsoleProcess

REFRESH_SECONDS: Final = 2.0  # the console's default
_PAGE_SECONDS_MAX: Final = 30.0
_READ_BYTES: Final = 65_536


@contextmanager
def open_page(admin: str) -> Iterator[None]:
    """Keep the first page open for the time of a `with` block; raises AssertionError if nothing was sent to it."""
    ended = threading.Event()
    received = [0]
    with ConsoleProcess([admin], refresh=REFRESH_SECONDS) as console:
        reader = threading.Thread(
            target=_read, args=(f"{console.url}stream/overview", ended, received), daemon=True
        )
        reader.start()
        try:
            yield
        finally:
            ended.set()
    reader.join(_PAGE_SECONDS_MAX)
    assert received[0], "the console has sent nothing to its page"


def _read(url: str, ended: threading.Event, received: list[int]) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_PAGE_SECONDS_MAX) as response:
            while not ended.is_set() and (part := response.read1(_READ_BYTES)):
                received[0] += len(part)
    except (OSError, ValueError, http.client.HTTPException):  # the stream ends within a chunk
        if not ended.is_set():
            raise
