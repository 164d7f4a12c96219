"""The audit log of quotas: a line for each entity that an alteration has changed.

    quota altered entity="client-id reports" change="producer_byte_rate: 2000000 -> 4000000" principal=ops address=…

Lines of one request are bounded; what is left out is counted in a line of its own. Unlike other messages they have no
budget of lines a second (`proxy.system.logs`), since a line that is missing here hides a change.
"""

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Final

from proxy.channel import Question
from proxy.quota_api.cooperative import with_pauses
from proxy.system.logs import AUDIT, event
from quotas.definitions.alterations import Outcome, text_of
from quotas.definitions.toml_file import render_value

LINES_MAX: Final = 1000  # of one request; it may name 100,000 entities

logger = logging.getLogger(AUDIT)


def audit(question: Question, outcome: Outcome, entries: int) -> None:
    """Log the changes of a request.

    Args:
        question: the request, with principal and address.
        outcome: the changes.
        entries: the number of entities with quotas after it.
    """
    who = {"principal": question.user, "address": question.peer}
    for entity, after in with_pauses(islice(outcome.changes.items(), LINES_MAX)):
        change = _change(outcome.before.get(entity, {}), after)
        event(logger, logging.INFO, "quota altered", entity=text_of(entity), change=change, **who)
    entities = len(outcome.changes)
    if entities > LINES_MAX:
        event(logger, logging.INFO, "quotas altered, not listed", entities=entities - LINES_MAX, **who)
    event(logger, logging.INFO, "quotas altered", entities=entities, quota_entries=entries, **who)


def _change(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return the text of all changed limits.

    >>> _change({"producer_byte_rate": 5, "request_percentage": 1}, {"producer_byte_rate": 7})
    'producer_byte_rate: 5 -> 7, request_percentage: 1.0 -> none'
    """
    return ", ".join(
        f"{key}: {_shown(key, before.get(key))} -> {_shown(key, after.get(key))}"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    )


def _shown(key: str, value: float | None) -> str:
    return "none" if value is None else render_value(key, value)
