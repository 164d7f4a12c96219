"""What may stand in a file's place and is none: reading it would never end, or fail oddly."""

import os
from pathlib import Path
from typing import Final

KINDS: Final = {"fifo": "a FIFO", "directory": "a directory", "endless": "a device"}


def put(path: Path, kind: str) -> None:
    """Put one there."""
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
