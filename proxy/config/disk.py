"""Configured paths that this process cannot write to: one warning for each.

They are checked at start and by `sluice check`. Nothing is created or written.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from proxy.config.options import Config


def unwritable(config: Config) -> Iterator[str]:
    """Yield a warning for each path that cannot be written to, with the consequence."""
    state = config.state.directory
    if state is not None and (problem := _problem(state)):
        yield (
            f"state.directory: {problem}: the broker map is not kept, so a restarted Sluice serves brokers' ports only "
            "once it has reached the cluster, and enforces quotas even if that was switched off"
        )
    quotas = config.quotas.file
    may_alter = config.quotas.alter_principals or any(map(config.trusts, config.listeners))
    if (
        quotas is not None
        and may_alter
        and not config.fleet.configured
        and (problem := _problem(quotas.parent))
    ):
        yield f"quotas.file: {problem}: kafka-configs cannot alter quotas, since the file is replaced in its directory"
    capture = config.capture.directory
    if capture is not None and (problem := _problem(capture)):
        yield f"capture.directory: {problem}: nothing can be captured"
    journal = config.reassignment.directory if config.reassignment.batches else None
    if journal is not None and (problem := _problem(journal)):
        yield f"reassignment.journal: {problem}: reassignments are refused"


def _problem(directory: Path) -> str:
    """Return why files, or the directory itself, cannot be created; "" if they can."""
    place = directory
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"{place} is no directory"
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        return f"{place} cannot be written by user id {os.geteuid()}"
    return ""
