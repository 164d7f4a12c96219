"""Starts and stops capture; the application's interface."""

import asyncio
import logging
import secrets
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from commandline.arguments import not_installed
from proxy.capture.recorder import Recorder
from proxy.capture.tables import Limit, Tables
from proxy.capture.writer import Directory, Writer
from proxy.config import CaptureOptions
from proxy.system.errors import ConfigError
from proxy.system.logs import event
from proxy.system.stats import CaptureStats, Stats
from quotas.throttles.topic_names import TopicNames

# A disk that stands still must not keep a stopping process for ever.
_STOP_SECONDS_MAX: Final = 10.0
_HURRIED_SECONDS_MAX: Final = 1.0
_STEP_SECONDS: Final = 0.05
# So long does the event loop wait for its turn while the writer makes columns; Python's default is 5 ms, too long where
# the loop gives its turn away at every system call. It costs nothing while the writer waits for rows.
_TURN_SECONDS: Final = 0.0001

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Capture:
    """The capture of one process: a recorder on the event loop, and a writer of its batches in a thread."""

    recorder: Recorder
    writer: Writer
    stats: CaptureStats

    def close(self) -> None:
        """Queue the last rows, and tell the writer to end after them. Call it on the loop, then `wait` in a thread."""
        self.recorder.full()
        self.recorder.queue.put(None)

    def wait(self, hurried: Callable[[], bool]) -> None:
        """Wait until all rows are written; blocks. Rows that cannot be written in time are dropped.

        Args:
            hurried: returns True as soon as the process has to end at once.
        """
        thread = self.writer.thread
        began, is_hurried = monotonic(), False
        until = began + _STOP_SECONDS_MAX
        while thread.is_alive() and monotonic() < until:
            thread.join(_STEP_SECONDS)
            if not is_hurried and hurried():
                until = min(until, monotonic() + _HURRIED_SECONDS_MAX)
                is_hurried = True
        if thread.is_alive():
            left = self.writer.unfinished_rows
            while not self.recorder.queue.empty():
                batch = self.recorder.queue.get_nowait()
                left += 0 if batch is None else batch.all_rows
            self.stats.dropped["stopped"] += left
            waited = round(monotonic() - began, 1)
            event(logger, logging.ERROR, "capture is not finished", waited_seconds=waited)
        dropped = sum(self.stats.dropped.values())
        event(logger, logging.INFO, "capture ended", rows=self.stats.rows, dropped=dropped)


def start(
    options: CaptureOptions,
    stats: Stats,
    names: TopicNames,
    loop: asyncio.AbstractEventLoop,
    now_ms: Callable[[], int],
    limit: Limit,
) -> Capture | None:
    """Start the capture, with its thread; return None if it is not configured.

    Args:
        names: the known names of topics, which also looks up others.
        now_ms: the clock of those look-ups.
        limit: returns the bucket that a client counts against; called in the thread.

    Raises:
        ConfigError: pyarrow is missing.
        StartError: the directory cannot be used.
    """
    if options.directory is None:
        return None
    require_pyarrow()
    process = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.{secrets.token_hex(3)}"
    counters = stats.captures["rows"] = CaptureStats()
    directory = Directory(options.directory, options.max_bytes)
    removed = directory.prepare()
    framed = options.frames != "off"
    partitions = 1.0 if framed else options.partition_sample  # a replay wants them all
    recorder = Recorder(process, options.sample, counters, options.frames, partitions)

    def ask(topic_ids: Collection[bytes]) -> None:
        loop.call_soon_threadsafe(_ask, names, topic_ids, now_ms)

    tables = Tables(process, names.known, limit, frames=framed)
    rotate = options.rotate_bytes, options.rotate_seconds
    writer = Writer(recorder, directory, tables, counters, process, *rotate, names.known, ask)
    sys.setswitchinterval(_TURN_SECONDS)
    writer.start()
    fields = {"directory": str(options.directory), "process": process, "frames": options.frames}
    event(logger, logging.INFO, "capturing", **fields, sample=options.sample, unfinished_removed=removed)
    return Capture(recorder, writer, counters)


def require_pyarrow() -> None:
    """Check that pyarrow is installed, which writes the Parquet files.

    Raises:
        ConfigError: it is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise ConfigError("capture.directory", not_installed("pyarrow", "capture")) from error


def _ask(names: TopicNames, topic_ids: Collection[bytes], now_ms: Callable[[], int]) -> None:
    now = now_ms()
    for topic_id in topic_ids:
        names.name(topic_id, now)
