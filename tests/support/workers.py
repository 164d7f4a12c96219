"""Proxies with several workers.

How many the tests' proxies have is SLUICE_PROCESS__WORKERS, which every `SluiceProcess` inherits.
"""

import os
import re
from collections.abc import Callable
from typing import Final

import pytest

from tests.support.proxy_process import SluiceProcess
from tests.support.waiting import until

_SECONDS_MAX: Final = 20.0

WORKERS: Final = int(os.environ.get("SLUICE_PROCESS__WORKERS", "1"))
# What a worker may use of a quota for which no client has waited yet; half a percent is never lent.
FIRST_SHARE: Final = 1.0 if WORKERS == 1 else 0.995 / WORKERS
PROCESSES: Final = 1 if WORKERS == 1 else WORKERS + 1  # with the control process


def one_process(reason: str) -> pytest.MarkDecorator:
    """Skip a test with several workers, for a reason that lies in them."""
    return pytest.mark.skipif(WORKERS > 1, reason=f"with several workers {reason}")


# What workers make no difference to: the data path of each is that of one process, and is tested with it.
ALIKE: Final = one_process("nothing in it is different")


def worker_ids(sluice: SluiceProcess) -> dict[int, int]:
    """The process ids of the workers that run now, by number."""
    text = sluice.log(1 << 20)
    return {int(number): int(pid) for number, pid in re.findall(r"worker ready worker=(\d+) pid=(\d+)", text)}


def until_of(holds: Callable[[], object], sluice: SluiceProcess) -> None:
    """Wait until something holds; what is logged is shown if it does not."""
    until(holds, sluice.log, _SECONDS_MAX)


def is_ready(sluice: SluiceProcess) -> bool:
    return sluice.get("/readyz")[0] == 200
