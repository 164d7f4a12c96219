"""Reduces reports to what the fleet's protocol can express, within its bounds; pure."""

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from proxy.fleet.codec import KEY_BYTES_MAX, WEIGHT_MAX
from quotas.sharing.lease_values import KEYS_MAX, Report, Wish

T = TypeVar("T")


def named(key: str) -> bool:
    r"""Whether a key can have a share of its own.

    >>> named("user\x00client"), named("x" * 3000), named("\ud800")
    (True, False, False)
    """
    if len(key) > KEY_BYTES_MAX:
        return False
    try:
        return len(key.encode()) <= KEY_BYTES_MAX
    except UnicodeEncodeError:
        return False


def sendable(report: Report) -> Report:
    """Return the report without the keys that cannot be sent; these have the default share."""
    return report._replace(wishes=dict(islice(_wishes(report), KEYS_MAX)))


def _wishes(report: Report) -> Iterator[tuple[str, Wish | None]]:
    for key, wish in report.wishes.items():
        if not named(key):
            continue
        if wish is None:
            yield key, None
        elif wish.wanted >= 0 and wish.weight >= 0:  # in this form also false for NaN
            yield key, Wish(min(1.0, wish.wanted), min(WEIGHT_MAX, wish.weight))
