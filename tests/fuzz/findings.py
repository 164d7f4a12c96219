"""Findings: inputs that did what none may, the smallest of each kind, with a text that says what.

Two are of a kind where the same exception came from the same line of ours, or the same call took too long. A run goes
on behind a finding: what is known must not keep it from what is not.
"""

import hashlib
import traceback
from pathlib import Path
from typing import Final

_OURS: Final = ("/protocol/", "/quotas/", "/proxy/", "/offline/", "/tests/fuzz/")


class Findings:
    """A directory of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: dict[str, int] = {}

    def failed(self, data: bytes, error: BaseException) -> None:
        """An exception that is not documented."""
        where = [
            f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
            if any(part in frame.filename for part in _OURS)
        ]
        kind = f"{type(error).__name__} at {where[-1] if where else 'an unknown place'}"
        self._keep("failed", kind, data, "".join(traceback.format_exception(error)))

    def slow(self, data: bytes, label: str, seconds: float) -> None:
        """A call that took long."""
        self._keep("slow", label, data, f"{seconds * 1000:.1f} ms of CPU time with instrumentation\n")

    def _keep(self, what: str, kind: str, data: bytes, text: str) -> None:
        name = f"{what}-{hashlib.sha1(kind.encode(), usedforsecurity=False).hexdigest()[:12]}"
        if self._sizes.get(name, len(data) + 1) <= len(data):
            return
        self._sizes[name] = len(data)
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / f"{name}.bin").write_bytes(data)
        (self._directory / f"{name}.txt").write_text(f"{kind}\n{text}")
