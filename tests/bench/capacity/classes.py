"""The capacity of the benches, the clients that share it, and what each of them is to have."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

CAPACITY: Final = 8_000_000
RECORD_BYTES: Final = 50_000
"""One in each request: small beside a second of any rate here."""


class Client(NamedTuple):
    """A class of one client id; its ceiling is the capacity.

    Args:
        rate: what it is promised, in bytes/s.
        connections: with several members half of them are at each.
    """

    name: str
    rate: int
    weight: int
    connections: int


A: Final = Client("a", 4_000_000, 1, 24)
B: Final = Client("b", 2_000_000, 1, 16)
C: Final = Client("c", 1_000_000, 2, 8)
CLIENTS: Final = (A, B, C)


def settings(clients: Sequence[Client] = CLIENTS) -> dict[str, Any]:
    """Return the fields of a gateway's settings that state the capacity and the terms of its classes."""
    terms = {
        each.name: {
            "producer_byte_rate": each.rate,
            "producer_byte_rate_ceiling": CAPACITY,
            "weight": each.weight,
        }
        for each in clients
    }
    return {"client_quotas": terms, "quotas_text": f'[[capacity]]\nscope = "cluster"\nin = {CAPACITY}\n'}


def parts(clients: Sequence[Client], capacity: float = CAPACITY) -> dict[str, float]:
    """Return what each has, in bytes/s, where all want more: its rate, and by its weight of what all rates leave.

    >>> {name: round(part) for name, part in parts(CLIENTS).items()}
    {'a': 4250000, 'b': 2250000, 'c': 1500000}
    >>> {name: round(part) for name, part in parts((B, C)).items()}
    {'b': 3666667, 'c': 4333333}
    """
    left = capacity - sum(each.rate for each in clients)
    weights = sum(each.weight for each in clients)
    return {each.name: each.rate + left * each.weight / weights for each in clients}
