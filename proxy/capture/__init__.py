"""Capture: what passes, one row a request, as Parquet files in a directory (issue 7); docs/capture.md tells users.

    channels ──► Recorder (the loop's) ──► queue ──► Writer (a thread of its own) ──► Table ──► files in a Directory

Traffic never waits for any of it: the queue is bounded, and what does not fit, or cannot be written, is dropped and
counted. The rows are made in `proxy.channel.captured`; what a row is, is `protocol.capture`. pyarrow is imported by
`tables` alone, and only where capture is configured.
"""

from proxy.capture.capture import Capture, require_pyarrow, start
from proxy.capture.recorder import Recorder

__all__ = ["Capture", "Recorder", "require_pyarrow", "start"]
