"""What pages say of worker processes whose figures they lack. Pure.

A page that lacks some says which; where all are missing there is no page, and the response is 503.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from proxy.explain.seen import Missing


class NoWorkersError(Exception):
    """No worker process has responded."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        self.missing = tuple(missing)
        super().__init__("no worker process responds")


def missing_document(missing: Iterable[Missing]) -> list[dict[str, Any]]:
    """Return the field `missing` of a document."""
    return [one._asdict() for one in missing]


def missing_text(missing: Sequence[Missing]) -> str:
    """Return one line for people; "" if none is missing.

    >>> missing_text([Missing(2, "no response within 4 s")])
    'worker 2 is missing (no response within 4 s): clients connected to it are not shown'
    """
    if not missing:
        return ""
    problems = {one.problem for one in missing}
    if len(problems) == 1:
        numbers = ", ".join(str(one.worker) for one in missing)
        named = f"{numbers} {'is' if len(missing) == 1 else 'are'} missing ({problems.pop()})"
    else:
        named = f"{', '.join(f'{one.worker} ({one.problem})' for one in missing)} are missing"
    noun, them = ("worker", "it") if len(missing) == 1 else ("workers", "them")
    return f"{noun} {named}: clients connected to {them} are not shown"
