"""How many workers `[process] workers` stands for: "auto" is one per core that this process may use."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.config import AUTO, WORKERS_MAX, Config

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def workers_of(config: Config) -> int:
    """Return the number of processes that relay. Without a listener for clients there is nothing to divide."""
    if not any(not listener.replicates for listener in config.listeners):
        return 1
    if config.process.workers != AUTO:
        return config.process.workers
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError):
        cores = min(cores, cores_of_quota(_QUOTA.read_text(encoding="ascii")))
    return min(max(1, cores), WORKERS_MAX)


def cores_of_quota(text: str) -> int:
    """Return the whole cores of a container's processor quota, at least one.

    >>> cores_of_quota("200000 100000"), cores_of_quota("50000 100000"), cores_of_quota("max 100000") > 1000
    (2, 1, True)
    """
    quota, _, period = text.strip().partition(" ")
    if not quota.isdigit() or not period.isdigit() or not int(period):
        return 1 << 16
    return max(1, int(quota) // int(period))
