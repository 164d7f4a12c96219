"""What a broker lacks that a test asks for: `@pytest.mark.needs(SHARE_GROUPS)`.

A test of it is skipped, and the reason names the broker and what it lacks.
"""

import os
from typing import Final

from protocol.api import API_NAMES
from tests.cluster.jars import NEWEST, RELEASES, release

CONSUMER_GROUPS: Final = "consumer groups (KIP-848)"
SHARE_GROUPS: Final = "share groups (KIP-932)"
JWT_CLASSES: Final = "validators of JWTs by the names that tests/oracle/Names.java has"
UTF_16_JWTS: Final = "JWTs in UTF-16"
SEVERAL_NODES: Final = "several nodes"

# The line of Kafka with which it came, for production: before, it was a preview that the broker's properties allow.
SINCE: Final = {
    SEVERAL_NODES: "3.9",
    CONSUMER_GROUPS: "4.0",
    JWT_CLASSES: "4.1",
    SHARE_GROUPS: "4.2",
    UTF_16_JWTS: "4.2",
}
# What brokers that are not Apache's lack, by their names in SLUICE_KAFKA (tests/support/foreign_brokers.py).
FOREIGN: Final[dict[str, frozenset[str]]] = {
    "kfake": frozenset(),
    "tansu": frozenset({CONSUMER_GROUPS, SHARE_GROUPS, SEVERAL_NODES}),
}

# The newest version of each API that the broker of the fixture `kafka` has; empty until it has started.
OFFERED: Final[dict[int, int]] = {}


def broker() -> str:
    """Return which broker the tests have: a release of Apache Kafka, or a name of FOREIGN."""
    named = os.environ.get("SLUICE_KAFKA", "")
    return named if named in FOREIGN else release()


def lacks(feature: str, name: str) -> bool:
    """Return whether this broker lacks a feature.

    >>> lacks(SHARE_GROUPS, "4.1.2"), lacks(SHARE_GROUPS, "4.2.2"), lacks(SHARE_GROUPS, "kfake")
    (True, False, False)
    """
    if name in FOREIGN:
        return feature in FOREIGN[name]
    first = next(index for index, known in enumerate(RELEASES) if known.startswith(f"{SINCE[feature]}."))
    return RELEASES.index(name) < first


def lacks_version(api_key: int, version: int) -> str:
    """Return in words that the broker lacks a version of an API; "" if it has it, or if it is the newest Kafka.

    What that lacks is a failure, or what a test is about.
    """
    if broker() == NEWEST or not OFFERED or OFFERED.get(api_key, -1) >= version:
        return ""
    return f"{broker()} has no {API_NAMES[api_key]}" + (
        f" of version {version}" if api_key in OFFERED else ""
    )
