"""`[capture]`: the recording of requests, one row each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from protocol.capture import FRAMES
from proxy.config import readers
from proxy.config.keys import key
from proxy.errors import ConfigError

DAY_SECONDS: Final = 86400


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """`[capture]`."""

    directory: Path | None = field(
        default=None, metadata=key(readers.optional_file_path, "path", default="none: no capture")
    )
    rotate_bytes: int = field(
        default=128_000_000, metadata=key(readers.count(10_000, 10**12), "number", unit="bytes")
    )
    rotate_seconds: float = field(
        default=300.0, metadata=key(readers.seconds(1, DAY_SECONDS), "number", unit="seconds")
    )
    max_bytes: int = field(
        default=10_000_000_000, metadata=key(readers.count(10_000, 10**15), "number", unit="bytes")
    )
    frames: str = field(default="off", metadata=key(readers.choice(*FRAMES), '"off", "blank" or "keep"'))
    sample: float = field(default=1.0, metadata=key(readers.share, "number", unit="share of connections"))

    partition_sample: float = field(
        default=0.05, metadata=key(readers.share, "number", unit="share of large requests and responses")
    )

    def check(self) -> None:
        """Check that the bounds are consistent.

        Raises:
            ConfigError: they are not.
        """
        if self.max_bytes < self.rotate_bytes:
            problem = f"must be at least rotate_bytes, {self.rotate_bytes}: one file can be that large"
            raise ConfigError("capture.max_bytes", problem, self.max_bytes)

    def warnings(self) -> Iterator[str]:
        """Yield warnings about keys without effect."""
        if self.directory is None and self != CaptureOptions():
            yield "capture: nothing is captured without capture.directory"
