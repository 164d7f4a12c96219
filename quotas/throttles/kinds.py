"""One word for each kind of quota, for captures and explanations."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quotas.definitions.kinds import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: "produce",
        CONSUMER_BYTE_RATE: "fetch",
        REQUEST_PERCENTAGE: "request",
        CONTROLLER_MUTATION_RATE: "mutation",
    }
)
TOPIC: Final = "topic"
CONNECTION: Final = "connection"
