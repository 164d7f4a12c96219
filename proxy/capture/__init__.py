"""Capture: one row for each request, as Parquet files in a directory (docs/capture.md).

    channels ──► Recorder (the loop's), whose Records are numbers in a buffer
                     │ batches
                     ▼
                   queue ──► Writer (a thread of its own) ──► Tables ──► files in a Directory

Traffic never waits for capture: the queue is bounded, and rows that do not fit, or cannot be written, are dropped and
counted. Of a finished row only its record of fixed size remains (`recorder`). Rows are made in `proxy.channel.capture`;
their columns are in `protocol.capture`. pyarrow is imported by `tables` only, and only if capture is configured.

Non-obvious:

- Capture shortens Python's switch interval, because the event loop releases Python's lock at every system call, and
  would wait 5 ms to get it back from the thread that makes columns.
"""

from proxy.capture.capture import Capture, require_pyarrow, start
from proxy.capture.recorder import Recorder

__all__ = ["Capture", "Recorder", "require_pyarrow", "start"]
