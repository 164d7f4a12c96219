"""A digest of quotas, which is equal where quotas are: the members of a fleet compare it.

It is the sum of a hash of each entity with its limits, so it costs two hashes to follow a change, whatever the number
of entities, and does not depend on the order in which they were defined. It finds differences that happen, not those
that are made on purpose.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

__all__ = ["Digest"]

_BYTES: Final = 8
_SPACE: Final = 1 << (8 * _BYTES)


class Digest:
    """The digest of quotas that change.

    >>> one, other = Digest(), Digest()
    >>> one.replace("-=:a", {}, {"producer_byte_rate": 5.0})
    >>> one.replace("-=:b", {}, {"producer_byte_rate": 6.0})
    >>> other.replace("-=:b", {}, {"producer_byte_rate": 6.0})
    >>> str(one) == str(other)
    False
    >>> one.replace("-=:a", {"producer_byte_rate": 5.0}, {})
    >>> str(one) == str(other)
    True
    """

    __slots__ = ("_entries", "_static")

    def __init__(self) -> None:
        self._entries = 0
        self._static = 0

    def __str__(self) -> str:
        return f"{(self._entries + self._static) % _SPACE:0{2 * _BYTES}x}"

    def replace(self, code: str, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        """Follow a change of an entity's limits; no limits: there is no entity."""
        self._entries = (self._entries - _hash(code, before) + _hash(code, after)) % _SPACE

    def set_static(self, rates: Iterable[tuple[str, str | None, float]]) -> None:
        """Set the static settings: the key, the client id or None for the default, and the rate."""
        self._static = (
            sum(_hash(f"static {client_id!r}", {key: rate}) for key, client_id, rate in rates) % _SPACE
        )


def _hash(code: str, limits: Mapping[str, float]) -> int:
    if not limits:
        return 0
    text = "\0".join((code, *(f"{key}={float(limits[key])!r}" for key in sorted(limits))))
    # Names are any strings that a client may send.
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest())
