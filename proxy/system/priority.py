"""The scheduling policy of a process that relays (docs/decisions/0018)."""

import logging
import os
from time import monotonic_ns, process_time_ns
from typing import Final

from proxy.system.logs import event

_BUSY_SHARE: Final = 0.1  # of a core

logger = logging.getLogger(__name__)


class Priority:
    """Sets the scheduling policy of a process that relays: SCHED_BATCH while it is busy, else the default.

    Under the default policy a process that is woken takes the core at once, from a client, a broker or another worker
    that is about to send more: it finds a single request, and pays a wake-up for it. A process that has little to do
    keeps the default policy, since its requests should not wait. Another policy, as of `chrt`, is left alone.

    Attributes:
        batch: whether the policy is SCHED_BATCH.
    """

    def __init__(self) -> None:
        self.batch = False
        self._used_ns = process_time_ns()
        self._at_ns = monotonic_ns()
        try:
            self._usable = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER
        except OSError:  # musl has no such call
            self._usable = False

    def adapt(self, used_ns: int, now_ns: int) -> None:
        """Set the policy by the CPU time since the last call; `used_ns` is that of the process in all."""
        share = (used_ns - self._used_ns) / max(1, now_ns - self._at_ns)
        self._used_ns, self._at_ns = used_ns, now_ns
        batch = share > (_BUSY_SHARE / 2 if self.batch else _BUSY_SHARE)
        if batch == self.batch or not self._usable:
            return
        before = os.SCHED_BATCH if self.batch else os.SCHED_OTHER
        try:
            if os.sched_getscheduler(0) != before:  # another one was set meanwhile
                self._usable = False
                return
            os.sched_setscheduler(0, os.SCHED_BATCH if batch else os.SCHED_OTHER, os.sched_param(0))
        except OSError as error:  # a sandbox may refuse it
            self._usable = False
            event(logger, logging.WARNING, "cannot set the scheduling policy", cause=str(error))
        else:
            self.batch = batch
