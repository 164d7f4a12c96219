"""The fields of a request's query."""

from collections.abc import Mapping
from urllib.parse import parse_qs

from proxy.admin.http import RefusedError


def fields_of(query: str, known: tuple[str, ...]) -> Mapping[str, str]:
    """Return the fields of a query, each at most once.

    Raises:
        RefusedError: a field is unknown or repeated.
    """
    try:
        found = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=8)
    except ValueError:
        raise RefusedError(400, "invalid query") from None
    for name, values in found.items():
        if name not in known:
            raise RefusedError(400, f"unknown field {name!r}; known fields: {', '.join(known) or 'none'}")
        if len(values) > 1:
            raise RefusedError(400, f"more than one {name}")
    return {name: values[0] for name, values in found.items()}


def number(fields: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    """Return a whole number; None if the field is missing.

    Raises:
        RefusedError: it is none, or not between the bounds.
    """
    text = fields.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= len(str(high)) and low <= int(text) <= high:
        return int(text)
    raise RefusedError(400, f"{name} must be a number between {low} and {high}")
