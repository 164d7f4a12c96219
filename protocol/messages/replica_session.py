"""One follower's fetch session with one leader, when partitions are left out of it (KIP-73, KIP-227, KIP-903).

Two sessions are kept here. The follower's holds what the follower wants: it is told to it, and it names changes to
it. The leader's holds what is asked for now. Each has its own id and its own epoch, so a request may be answered
without the leader, and a session that the leader drops is begun anew without the follower: its next request then
names everything that is wanted. So nothing can be lost between the two: whatever the follower wants and the leader
does not hold is known by comparing each partition's entry with the one that was last told.

    wanted, not told            -> named in the next request, or left out again
    told, wanted otherwise      -> named in the next request
    told, not wanted any more   -> forgotten in the next request
    told, to be left out        -> forgotten in the next request, once

A full request of the follower is answered with every partition it names, or the follower ends the session: so from
those nothing is left out, they are only limited. Versions 12 to 18: brokers name topics by id since 13. Which
partitions are left out is not decided here, and records are not seen.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from protocol.messages.fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchFields,
    ReadRequest,
    TopicPartition,
    encode_request,
    full_topics,
    read_ahead,
    replica_id,
)
from protocol.primitives import Buffer

__all__ = ["OWN_SESSION_ID", "VERSION_MIN", "Replica", "ReplicaSession"]

VERSION_MIN: Final = 12
# Told to the follower where the leader gives no session. Leaders draw theirs at random.
OWN_SESSION_ID: Final = 0x7FFFFFFF
UNKNOWN_SESSION: Final = 70  # FETCH_SESSION_ID_NOT_FOUND
WRONG_EPOCH: Final = 71  # INVALID_FETCH_SESSION_EPOCH

_EPOCH_MAX: Final = 0x7FFFFFFF
_INT32 = Struct(">i")
# A partition's entry since version 12: index, leader epoch, fetch offset, last fetched epoch, log start, limit.
_ENTRY = Struct(">iiqiqi")
_LIMIT_AT: Final = _ENTRY.size - 4


class Replica:
    """One partition as the follower wants it.

    Attributes:
        entry: its entry in the follower's words.
        told: its entry as the leader was last told it; None where the leader does not hold it.
        high_watermark: the last one seen; -1 where none was, or none of this leader epoch.
    """

    __slots__ = ("entry", "fetch_offset", "high_watermark", "leader_epoch", "max_bytes", "told")

    fetch_offset: int
    max_bytes: int

    def __init__(self, entry: bytes, told: bytes | None) -> None:
        self.told = told
        self.high_watermark = -1
        self.leader_epoch = 0
        self.take(entry)

    def take(self, entry: bytes) -> None:
        """Take over what the follower says anew."""
        self.entry = entry
        _, epoch, self.fetch_offset, _, _, self.max_bytes = _ENTRY.unpack_from(entry)
        if epoch != self.leader_epoch:
            self.leader_epoch = epoch
            self.high_watermark = -1

    @property
    def in_sync(self) -> bool:
        """Whether it is not behind the last high watermark seen; not where none was (Kafka: no lag)."""
        return self.fetch_offset >= self.high_watermark >= 0

    def limited(self, max_bytes: int) -> bytes:
        """Its entry, asking for less."""
        entry = self.entry
        return entry[:_LIMIT_AT] + _INT32.pack(max_bytes) + entry[_LIMIT_AT + 4 :]


class FollowerRequest(ReadRequest):
    """A whole request that is read already, with what its follower wants of each partition that it names."""

    replicas: dict[TopicPartition, Replica]


def read_follower(frame: bytes, body_pos: int, version: int) -> tuple[int, FollowerRequest]:
    """Read a follower's whole request, beside the loop if it is a large one: the id that it says in its tags, -1 for
    none, and itself.

    Raises:
        WireError: it is malformed.
    """
    read = FollowerRequest(frame)
    read.topics, read.read_as = read_ahead(frame, body_pos, version).topics, (body_pos, version)
    read.replicas = {key: Replica(entry, None) for key, entry in read.topics.partitions.items()}
    return replica_id(read, body_pos, version), read


class ReplicaSession:
    """Both sessions of one connection between a follower and a leader.

    For each request: `take` it; then either `answer_locally`, or `forward` and, when the answer's head is here,
    `answered`.

    Attributes:
        replicas: what the follower wants, in its order.
        full: whether the request taken last names everything, so that all of it has to be answered.
        added, removed: partitions that the request taken last has added to the follower's session, or removed.
        session_id: the follower's; 0 before its first answer.
    """

    __slots__ = (
        "_asked_id",
        "_asks_for_session",
        "_changed",
        "_deviating",
        "_epoch",
        "_leader_epoch",
        "_leader_id",
        "_leaving",
        "_renewing",
        "_version",
        "added",
        "full",
        "removed",
        "replicas",
        "session_id",
    )

    def __init__(self) -> None:
        self.replicas: dict[TopicPartition, Replica] = {}
        self.full = False
        self.added: list[TopicPartition] = []
        self.removed: list[TopicPartition] = []
        self.session_id = 0
        self._epoch = 0  # of the follower's next request
        self._version = 0
        self._asked_id = 0  # the session id in the request taken last
        self._asks_for_session = False
        self._leader_id = 0
        self._leader_epoch = 0  # of the next request to the leader
        self._renewing = False  # the request with the leader begins a session
        # What changed in the follower's words and was not told; dicts for their order.
        self._changed: dict[TopicPartition, None] = {}
        # Left out, or asked for with a smaller limit.
        self._deviating: dict[TopicPartition, None] = {}
        # Not wanted any more, and the leader holds it.
        self._leaving: dict[TopicPartition, bytes] = {}

    def take(self, fields: FetchFields, frame: Buffer, body_pos: int, version: int) -> int:
        """Take a whole request over into what the follower wants.

        Returns:
            0, or the error to answer it with: the follower then names everything anew.

        Raises:
            WireError: the request is malformed; nothing has changed.
        """
        session_id, epoch = fields.session_id, fields.session_epoch
        partitions, forgotten = full_topics(frame, body_pos, version)
        self.full = session_id == 0 or epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        self._asked_id = session_id
        if self.full:
            made = frame.replicas if isinstance(frame, FollowerRequest) else {}
            self._begin(partitions, session_id, made)
            self._asks_for_session = epoch == INITIAL_EPOCH
            self._version = version
            return 0
        if not self.session_id or session_id != self.session_id:
            return UNKNOWN_SESSION
        if epoch != self._epoch or version != self._version:
            return WRONG_EPOCH
        self._epoch = epoch % _EPOCH_MAX + 1
        self.added, self.removed = [], []
        for key, entry in partitions.items():
            replica = self.replicas.get(key)
            if replica is None:
                self.replicas[key] = Replica(entry, self._leaving.pop(key, None))
                self.added.append(key)
            else:
                replica.take(entry)
            self._changed[key] = None
        for key in forgotten:
            gone = self.replicas.pop(key, None)
            self._changed.pop(key, None)
            self._deviating.pop(key, None)
            self.removed.append(key)
            if gone is not None and gone.told is not None:
                self._leaving[key] = gone.told
        return 0

    def forward(
        self,
        limits: Mapping[TopicPartition, int],
        max_wait_ms: int | None,
        frame: Buffer,
        body_pos: int,
        version: int,
    ) -> bytes | None:
        """The request as the leader is to see it; None where it is the follower's own, to the byte.

        Args:
            limits: most bytes of a partition; 0 leaves it out. The others are asked for as the follower wants.
            max_wait_ms: how long the leader may wait for data, where that is not the follower's to say.
        """
        renew = self.full or not self._leader_id
        if not (limits or self._deviating or self._leaving or max_wait_ms is not None) and (
            self._asked_id == self._leader_id if self.full else self._told_as_wanted()
        ):
            self._untouched()
            return None
        named, forgotten = self._tell_all(limits) if renew else self._tell_changes(limits)
        self._renewing = renew
        session_id, epoch = self._leader_id, self._leader_epoch
        if self.full and not self._asks_for_session:
            epoch = FINAL_EPOCH
        elif renew:
            epoch = INITIAL_EPOCH
        else:
            self._leader_epoch = epoch % _EPOCH_MAX + 1
        out = bytearray(frame)
        session_at, wait_at = (13, 0) if version >= 15 else (17, 4)
        _INT32.pack_into(out, body_pos + session_at, session_id)
        if max_wait_ms is not None:
            _INT32.pack_into(out, body_pos + wait_at, max_wait_ms)
        return encode_request(bytes(out), body_pos, version, epoch, named, forgotten)

    def answered(self, error_code: int, session_id: int) -> tuple[int, int]:
        """Take the head of the leader's answer; gives the error and session id that the follower is to see."""
        if error_code:
            if self.full or error_code not in (UNKNOWN_SESSION, WRONG_EPOCH):
                self._forget_leader()
                return error_code, session_id
            # The leader has dropped its session. The follower's goes on: its next request begins a new one.
            self._forget_leader()
            return 0, self.session_id
        if self._renewing:
            self._leader_id = session_id
            self._leader_epoch = 1
        if not session_id:  # no session could be had, or nothing was left in it
            self._forget_leader()
        if self.full:
            self._epoch = 1
            self.session_id = (session_id or OWN_SESSION_ID) if self._asks_for_session else 0
        return 0, self.session_id

    def answer_locally(self) -> int:
        """The leader is not to see this request; gives the session id of the empty answer.

        What changed stays to be told.
        """
        assert not self.full, "a full request is answered with everything it names"
        return self.session_id

    def _begin(
        self,
        partitions: dict[TopicPartition, bytes],
        session_id: int,
        made: dict[TopicPartition, Replica],
    ) -> None:
        """Everything anew; where a replica stands is still known if its leader is the same.

        Args:
            made: the replicas, where the request was read ahead; what is there of them takes over what was known.
        """
        before = self.replicas
        self.replicas = made or {key: Replica(entry, None) for key, entry in partitions.items()}
        for key in before.keys() & partitions.keys():
            replica = before[key]
            replica.take(partitions[key])
            self.replicas[key] = replica
        self.added = list(self.replicas)
        self.removed = [key for key in before if key not in self.replicas]
        self._changed.clear()
        if not self.session_id and session_id != OWN_SESSION_ID:
            self._leader_id = session_id  # of a connection that is gone: the leader gives its slot free
        self.session_id = 0

    def _told_as_wanted(self) -> bool:
        """Whether the follower's own words name exactly what changed, in the leader's session too."""
        epoch = self._epoch - 1 or _EPOCH_MAX
        return self._leader_id == self.session_id and self._leader_epoch == epoch

    def _untouched(self) -> None:
        if self.full:
            self._deviating.clear()
            self._leaving.clear()
            for replica in self.replicas.values():
                replica.told = replica.entry
            self._renewing = True
        else:
            for key in self._changed:
                replica = self.replicas[key]
                replica.told = replica.entry
            self._renewing = False
            self._leader_epoch = self._epoch
        self._changed.clear()

    def _tell_all(
        self, limits: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, bytes], list[TopicPartition]]:
        named = {}
        self._deviating.clear()
        self._leaving.clear()
        self._changed.clear()
        for key, replica in self.replicas.items():
            replica.told = self._wish(key, replica, limits)
            if replica.told is not None:
                named[key] = replica.told
        return named, []

    def _tell_changes(
        self, limits: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, bytes], list[TopicPartition]]:
        named: dict[TopicPartition, bytes] = {}
        forgotten = list(self._leaving)
        self._leaving.clear()
        touched = {**self._changed, **self._deviating, **dict.fromkeys(limits)}
        self._changed.clear()
        for key in touched:
            replica = self.replicas[key]
            before = replica.told
            replica.told = self._wish(key, replica, limits)
            if replica.told is None:
                if before is not None:
                    forgotten.append(key)
            elif replica.told != before:
                named[key] = replica.told
        return named, forgotten

    def _wish(
        self, key: TopicPartition, replica: Replica, limits: Mapping[TopicPartition, int]
    ) -> bytes | None:
        """What the leader is to hold of a partition."""
        limit = limits.get(key)
        if limit is None or limit >= replica.max_bytes:
            self._deviating.pop(key, None)
            return replica.entry
        self._deviating[key] = None
        assert limit or not self.full, "a full answer names everything that was asked for"
        return replica.limited(limit) if limit else None

    def _forget_leader(self) -> None:
        """The leader holds nothing any more."""
        self._leader_id = 0
        self._leader_epoch = 0
        self._leaving.clear()
