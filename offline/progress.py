"""Progress bars on standard error: one for each running Spark job, by finished tasks.

A thread polls Spark's status tracker; the rest of the pipeline is not involved. Without a terminal, or with
`--no-progress`, there are none.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from tqdm import tqdm

_EVERY_SECONDS: Final = 0.3


@contextmanager
def shown(context: SparkContext, stage: str, *, wanted: bool) -> Iterator[None]:
    """Show Spark's progress while the block runs."""
    if not wanted:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_watch, args=(context, stage, done), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=5)


def _watch(context: SparkContext, stage: str, done: threading.Event) -> None:
    tracker = context.statusTracker()
    tasks: dict[int, tuple[int, int]] = {}  # by Spark stage: finished, altogether
    with tqdm(desc=stage, unit="task", leave=False, dynamic_ncols=True) as bar:
        while not done.wait(_EVERY_SECONDS):
            for number in tracker.getActiveStageIds():
                info = tracker.getStageInfo(number)
                if info is not None:
                    tasks[number] = (info.numCompletedTasks, info.numTasks)
            active = set(tracker.getActiveStageIds())
            for number, (_, total) in tasks.items():
                if number not in active:
                    tasks[number] = (total, total)
            bar.total = sum(total for _, total in tasks.values()) or None
            bar.n = sum(finished for finished, _ in tasks.values())
            bar.refresh()
        bar.n = bar.total or 0
        bar.refresh()
