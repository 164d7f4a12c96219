"""The sentences about a client's waits with enforcement, while quotas are only observed."""

from collections.abc import Mapping
from typing import Any

from commandline.amounts import rate, size
from proxy.explain.amounts import amount, part_text


def would_wait(client_id: str, predicted: Mapping[str, Any]) -> str:
    """Return the sentences; `predicted` is the document of `/v1/client`."""
    name, rule = client_id or "(no client id)", predicted["rule"]
    limit = f"{rule['key']} {amount(rule['kind'], rule['value'])} of {rule['entity']}"
    text = (
        f"If quotas were enforced, {name} would wait {part_text(predicted['throttled_part'])} of its time for {limit}, "
        f"assuming that {predicted['assumed']}."
    )
    if not predicted.get("backlog_bytes"):
        return text
    admitted, left = rate(predicted["admitted_rate"]), size(predicted["backlog_bytes"])
    return f"{text} If it sent at its rate whatever happens, {admitted} would pass, and {left} would be left so far."
