"""The field `missing` of the documents of /v1 (docs/api.md): worker processes whose clients they lack. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from proxy.v1.fields import Fields

_WORKERS_MAX: Final = 256
_NAMED_MAX: Final = 4
_PROBLEM_CHARACTERS_MAX: Final = 100


def missing_workers(content: object) -> tuple[str, ...]:
    """Return each worker with its problem; none of a version that does not say it.

    >>> missing_workers({"missing": [{"worker": 2, "problem": "no response within 4 s"}]})
    ('worker 2 (no response within 4 s)',)

    Raises:
        DocumentError: the field is not as it should be.
    """
    found = Fields(content, "document").many("missing", _WORKERS_MAX)
    return tuple(
        f"worker {one.whole('worker')} ({one.text('problem')[:_PROBLEM_CHARACTERS_MAX]})" for one in found
    )


def missing_of_members(documents: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the field as the commands print it: each worker with its member.

    Args:
        documents: of each member, with its admin port as given.

    >>> missing_of_members([("gw-1:19080", {"missing": [{"worker": 2, "problem": "no response"}]})])
    [{'member': 'gw-1:19080', 'worker': 2, 'problem': 'no response'}]

    Raises:
        DocumentError: a field is not as it should be.
    """
    return [
        {"member": admin, **row.content}
        for admin, document in documents
        for row in Fields(document, "document").many("missing", _WORKERS_MAX)
    ]


def lacks(name: str, missing: Iterable[str]) -> str:
    """Return what people are told of a member that lacks workers.

    >>> lacks("gw-1", ("worker 2 (it does not run)",))
    'gw-1 lacks worker 2 (it does not run): clients connected there are not shown'
    """
    found = list(missing)
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return f"{name} lacks {', '.join(found[:_NAMED_MAX])}{more}: clients connected there are not shown"
