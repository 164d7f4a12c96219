"""Documents of `/v1` as a program that knows nothing of Sluice reads them."""

import json
from typing import Any

from msgspec import Struct

from proxy.explain.documents import encode


def as_json(document: Struct) -> Any:
    """Return what JSON says of a document or row."""
    return json.loads(encode(document))
