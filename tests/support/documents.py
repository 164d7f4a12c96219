"""Documents of `/v1`: as a program that knows nothing of Sluice reads them, and as Sluice reads such a program's."""

import json
from typing import Any, TypeVar

from msgspec import Struct

from console.merging import bound
from proxy.explain.documents import Document, decode, encode

_Document = TypeVar("_Document", bound=Document)


def as_json(document: Struct) -> Any:
    """Return what JSON says of a document or row."""
    return json.loads(encode(document))


def read(kind: type[_Document], content: object, member: str = "gw-1") -> _Document:
    """Return a member's document as the console reads it.

    Raises:
        DocumentError: it is not such a document.
    """
    document = decode(json.dumps(content).encode(), kind)
    bound(document, member)
    return document
