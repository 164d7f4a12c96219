"""Who a quota is for: user, client id, IP, or the default of one of them (KIP-13, KIP-55; kafka-quotas.md
§1.3).

An absent part is `None`, the default entity of a part is `DEFAULT`; the literal name "<default>" does not
exist here: it is only how the quota file spells `DEFAULT`. This module knows no limits and no order of
precedence: see `definitions`.
"""

import enum
from typing import Final, NamedTuple


class Default(enum.Enum):
    """The type of `DEFAULT`: the entity that stands for every name without an entry of its own."""

    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return self.value


DEFAULT: Final = Default.DEFAULT

Name = str | Default | None


class Entity(NamedTuple):
    """One quota entity; at least one part is present, and `ip` is never combined with the others."""

    user: Name = None
    client_id: Name = None
    ip: Name = None


class BucketKey(NamedTuple):
    """Which budget a request counts against: the parts that the matching entity has; `None` = shared over
    that part.

    The empty client id is a name of its own here ("" and not `None`), so that all clients without an id share
    one bucket (KIP-13); Kafka's tags cannot tell the two apart (KAFKA-13341).
    """

    user: str | None
    client_id: str | None
