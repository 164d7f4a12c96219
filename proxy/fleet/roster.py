"""The roster in a holder's commit: to whom it leases, so that its successor knows for whom to wait; pure.

    roster=OWN:RUN,RUN,…    OWN: the run of the process that has committed; RUN: of each lessee; hexadecimal

A commit without a roster says that the holder does not know all lessees; then its successor learns for the whole time
(`quotas.sharing.lessor`). So does one with more than LESSEES_MAX: brokers accept 4096 bytes of metadata by default.
"""

import re
from typing import Final, NamedTuple

LESSEES_MAX: Final = 200
# After the first word, which is `standing.write_lasting`'s; what follows is free text.
_RUN: Final = "[0-9a-f]{1,16}"
_ROSTER: Final = re.compile(
    rf"leases_ms=[0-9]+ roster=({_RUN}):((?:{_RUN}(?:,{_RUN}){{0,{LESSEES_MAX - 1}}})?) .*", re.DOTALL
)


class Past(NamedTuple):
    """What the last holder has committed.

    Args:
        author: the run of its process; 0 if it is not known.
        lessees: the runs of all lessees with leases that may last; None if they are not known.
    """

    author: int
    lessees: frozenset[int] | None


class Roster(NamedTuple):
    """What a holder commits.

    Args:
        begun: what the holder began with. It identifies the lessor that has numbered the roster: compare by `is`.
        number: counts the changes (`Lessor.roster`).
        lessees: as in `Past`.
    """

    begun: Past
    number: int
    lessees: frozenset[int] | None


def write_roster(author: int, lessees: frozenset[int] | None) -> str:
    """Encode a roster; "" if the lessees are not known, or too many.

    >>> write_roster(26, frozenset((26, 7))), write_roster(26, frozenset()), write_roster(26, None)
    ('roster=1a:7,1a', 'roster=1a:', '')
    """
    if lessees is None or len(lessees) > LESSEES_MAX:
        return ""
    return f"roster={author:x}:{','.join(f'{run:x}' for run in sorted(lessees))}"


def read_roster(committed: str | None) -> Past:
    """Decode the roster of a commit.

    >>> read_roster("leases_ms=20310 roster=1a:7,1a holder=gw-1") == Past(26, frozenset((7, 26)))
    True
    >>> read_roster("leases_ms=20310 holder=gw-1 roster=1a: ")
    Past(author=0, lessees=None)
    """
    found = None if committed is None else _ROSTER.fullmatch(committed)
    if found is None:
        return Past(0, None)
    return Past(int(found[1], 16), frozenset(int(run, 16) for run in found[2].split(",") if run))
