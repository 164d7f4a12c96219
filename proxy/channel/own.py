"""What is Sluice's own in a cluster, and which APIs could do something to it.

Topics, groups and transactional ids that Sluice keeps its quotas, shares and journal in are its own: a client that
writes to them sets the quotas of all clients. Brokers with an authorizer refuse it; for those without one, and for
clients with wide rights, listeners of clients refuse it, with the errors of an authorizer (`proxy.channel.guard`).

`TREATMENTS` places each API of Kafka. A test reads Kafka's message definitions: an API that is not placed, or that has
a name which its place does not expect, fails it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from protocol.api import DELETE_TOPICS, PRODUCE
from protocol.layouts import GROUP, TOPIC, TRANSACTIONAL_ID

# TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
ERRORS: Final = {TOPIC: 29, GROUP: 30, TRANSACTIONAL_ID: 53}

# The newest versions that do not name topics by id, offered where something is Sluice's own.
NEWEST: Final = {PRODUCE: 12, DELETE_TOPICS: 5}

# No topic has such a name. A group or transactional id may have it: only the client that sent ours meets it there.
_ILLEGAL: Final = "#!$%&*+=~^"

OwnRefusal = Callable[[str, str, str, str], None]
"""Is told of a refusal: the user, the client's address, its client id, and the API."""


class Treatment(Enum):
    """How a listener of clients handles the requests of an API that may name Sluice's own topics, groups or ids."""

    PRODUCE = "its own topics are refused, the others written"
    ITEMS = "the items that name something of ours are refused, the others carried out"
    WHOLE = "refused if its group or transactional id is ours"
    CREATES = "read, without creating topics if it names ours"
    CLOSED = "between brokers: the connection is closed if a name of ours is in it"
    READS = "names topics or groups, and only reads"
    NAMES_NOTHING = "names no topic, group or transactional id"
    ACLS = "the brokers' authorizer decides: without one there are no ACLs, with one only its admins may change them"


_ITEMS: Final = (15, 19, 20, 21, 27, 32, 33, 34, 37, 42, 43, 44, 45, 61, 65, 69, 77, 89, 90)
_WHOLE: Final = (8, 11, 12, 13, 14, 22, 24, 25, 26, 28, 47, 68, 76, 78, 79, 88, 91, 92, 93)
# LeaderAndIsr, StopReplica, UpdateMetadata; AlterPartition, Envelope, FetchSnapshot, quorum votes; directories, and the
# states of share groups. ControlledShutdown, registrations and heartbeats of brokers name nothing.
_CLOSED: Final = (4, 5, 6, 52, 53, 54, 56, 58, 59, 73, 83, 84, 85, 86, 87)
# Fetch, ListOffsets, OffsetFetch (of the fleet's group it shows when leases end), FindCoordinator,
# OffsetForLeaderEpoch, DescribeLogDirs, ListPartitionReassignments, DescribeQuorum, ListTransactions,
# DescribeTopicPartitions.
_READS: Final = (1, 2, 9, 10, 23, 35, 46, 55, 66, 75)
_NAMES_NOTHING: Final = (
    7, 16, 17, 18, 36, 38, 39, 40, 41, 48, 49, 50, 51, 57, 60, 62, 63, 64, 67, 70, 71, 72, 74, 80, 81, 82, 94,
)  # fmt: skip

TREATMENTS: Final[dict[int, Treatment]] = {
    0: Treatment.PRODUCE,
    3: Treatment.CREATES,
    **dict.fromkeys(_ITEMS, Treatment.ITEMS),
    **dict.fromkeys(_WHOLE, Treatment.WHOLE),
    **dict.fromkeys(_CLOSED, Treatment.CLOSED),
    **dict.fromkeys(_READS, Treatment.READS),
    **dict.fromkeys(_NAMES_NOTHING, Treatment.NAMES_NOTHING),
    **dict.fromkeys((29, 30, 31), Treatment.ACLS),
}


def _ignore_refusal(_user: str, _address: str, _client_id: str, _api: str) -> None:
    """Do nothing: the default of `refused`."""


class Guarded:
    """Which of Sluice's own names were found, and replaced, in one request.

    Attributes:
        stood_in: the (label, stand-in) of each replaced name, keys of `OwnNames.originals`; empty if none was replaced.
    """

    __slots__ = ("stood_in",)

    def __init__(self) -> None:
        self.stood_in: set[tuple[str, bytes]] = set()


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names of Sluice's own topics, groups and transactional ids, and what is needed to find and replace them.

    `own_names` creates it.

    Attributes:
        wanted: all of them, each with its label (TOPIC, GROUP or TRANSACTIONAL_ID).
        parts: byte strings of which a message contains at least one if it contains any of the names.
        stand_ins: for each name, another one of the same length that does not exist.
        originals: each name by its label and stand-in: the key is (label, stand-in).
        refused: called for each request that is refused because of a name.
    """

    wanted: frozenset[tuple[str, bytes]]
    parts: tuple[bytes, ...]
    stand_ins: dict[bytes, bytes]
    originals: dict[tuple[str, bytes], bytes]
    refused: OwnRefusal = field(default=_ignore_refusal, compare=False)


def own_names(
    topics: frozenset[str],
    groups: frozenset[str] = frozenset(),
    transactional_ids: frozenset[str] = frozenset(),
    refused: OwnRefusal = _ignore_refusal,
) -> OwnNames | None:
    """Return these names, with what is needed to find and replace them; None if there are no names."""
    labelled = ((TOPIC, topics), (GROUP, groups), (TRANSACTIONAL_ID, transactional_ids))
    wanted = frozenset((label, name.encode()) for label, names in labelled for name in names)
    if not wanted:
        return None
    names = sorted({name for _, name in wanted})
    stand_ins: dict[bytes, bytes] = {}
    for name in names:
        taken = {*names, *stand_ins.values()}
        candidates = (_stand_in(name, character) for character in _ILLEGAL.encode())
        stand_ins[name] = next(candidate for candidate in candidates if candidate not in taken)
    return OwnNames(
        wanted=wanted,
        parts=tuple(name for name in names if not any(other != name and other in name for other in names)),
        stand_ins=stand_ins,
        originals={(label, stand_ins[name]): name for label, name in wanted},
        refused=refused,
    )


def _stand_in(name: bytes, character: int) -> bytes:
    """Return another name of this length; a name that is cut in a character would not come back as it was sent."""
    return bytes((character,)) + name[1:] if name.isascii() else bytes((character,)) * len(name)
