"""The lineage of results: the mark of each finished stage names the runs of other stages that it was made from.

If a stage is run again, results made from its previous run are out of date, although they are complete. So each run has
an id, and its mark has the ids of the runs that it has read.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from offline.errors import InputError

__all__ = ["check", "mark", "run_of"]

_STAGES: Final = ("ingest", "demand", "backtest", "recommend", "report")


def mark(stage: str, read: Mapping[str, str]) -> str:
    """Return the text of a new run's mark: its id, and the ids of the runs that it has read."""
    before = _STAGES[: _STAGES.index(stage)]
    made_from = {name: run for name, run in read.items() if name in before}
    return json.dumps({"run": uuid.uuid4().hex, "made_from": made_from}) + "\n"


def run_of(text: str) -> str:
    """Return the id in a mark; "" without one."""
    return str(_parsed(text).get("run", ""))


def check(work: str, stage: str, mark_of: Callable[[str], str | None]) -> None:
    """Check that a stage was made from the current results of earlier stages, and those likewise.

    Args:
        work: the directory, for the message.
        mark_of: returns a stage's mark; None if the stage is not finished here. Such a stage is not checked: it may
            have been read from another directory.

    Raises:
        InputError: the stage is out of date; the message names the stage to run again.
    """
    for before, run in _parsed(mark_of(stage) or "").get("made_from", {}).items():
        text = mark_of(before)
        if text is None:
            continue
        if run_of(text) != run:
            raise InputError(
                f"{work}/{stage} was made from an earlier run of {before}: run `sluice-offline {stage}` again"
            )
        check(work, before, mark_of)


def _parsed(text: str) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
