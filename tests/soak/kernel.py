"""What the kernel says a process has open. Linux only."""

import os
from pathlib import Path


def descriptors(pid: int) -> int:
    """Return how many descriptors the process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - 20,000 of them need no path each


def sockets(pid: int) -> int:
    """Return how many of them are sockets: pipes are kept for later on purpose."""
    found = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(path.readlink()).startswith("socket:")
        except OSError:
            continue  # closed meanwhile
    return found
