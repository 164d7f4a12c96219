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

Non-obvious:

- A throttled replica is never fetched with 0 bytes, and its response is never emptied. A leader returns a batch for
  0 bytes, and a follower asks again at once for what it did not get (measured: 2,122 fetches in 6 s).
- A leader's session must not become empty, since Kafka then closes it. If all partitions are left out, nothing is
  sent to the leader, and its session stays as it was.
- A full response to a follower holds every partition that the request named, or the follower ends the session. So a
  full request leaves nothing out; throttled partitions are asked for one byte, which brings their high watermark,
  and at most one batch of all of them.
- With fewer bytes than a batch a partition gets nothing, unless it is the first. So the size of a batch is learned
  from the responses, and doubled if a partition that is behind gets nothing.
"""

from collections.abc import Collection, Mapping
from functools import partial
from struct import Struct
from typing import Final

from protocol.messages.fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchFields,
    TopicArray,
    TopicPartition,
    Topics,
    join_request,
)
from protocol.messages.follower_request import FollowerRequest, Replica, names_all
from protocol.portions import Portions, each, emptied, taken

__all__ = ["OWN_SESSION_ID", "UNKNOWN_SESSION", "WRONG_EPOCH", "ReplicaSession"]

# Told to the follower where the leader gives no session. Leaders draw theirs at random.
OWN_SESSION_ID: Final = 0x7FFFFFFF
UNKNOWN_SESSION: Final = 70  # FETCH_SESSION_ID_NOT_FOUND
WRONG_EPOCH: Final = 71  # INVALID_FETCH_SESSION_EPOCH

_EPOCH_MAX: Final = 0x7FFFFFFF
_SCALARS_BYTES_MAX: Final = 25
_INT32 = Struct(">i")


class ReplicaSession:
    """Both sessions of one connection between a follower and a leader.

    For each request: `take` it; then either `respond_locally`, or `forward` and, when the response's head is here,
    `responded`. A request of thousands of replicas is taken and forwarded in portions (`protocol.portions`); whatever
    ends in the midst of one, the session ends with it.

    Attributes:
        replicas: what the follower wants, in its order.
        full: whether the request taken last names everything, so that all of it has to be answered.
        added, removed: partitions that the request taken last has added to the follower's session, or removed.
        session_id: the follower's; 0 before its first response.
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
        self.added: Collection[TopicPartition] = ()
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

    def take(self, fields: FetchFields, frame: FollowerRequest, body_pos: int, version: int) -> Portions[int]:
        """Take a whole request over into what the follower wants; the partitions' entries are taken out of it.

        Returns:
            0, or the error to answer it with: the follower then names everything anew.
        """
        session_id, epoch = fields.session_id, fields.session_epoch
        assert frame.read_as == (body_pos, version), "it was read as what it is"
        self.full = names_all(fields)
        self._asked_id = session_id
        if self.full:
            yield from self._begin(frame, session_id)
            self._asks_for_session = epoch == INITIAL_EPOCH
            self._version = version
            return 0
        if not self.session_id or session_id != self.session_id:
            return UNKNOWN_SESSION
        if epoch != self._epoch or version != self._version:
            return WRONG_EPOCH
        self._epoch = epoch % _EPOCH_MAX + 1
        yield from self._change(frame.topics)
        return 0

    def forward(
        self,
        limits: Mapping[TopicPartition, int],
        max_wait_ms: int | None,
        frame: FollowerRequest,
        body_pos: int,
        version: int,
    ) -> Portions[bytes | None]:
        """The request as the leader is to see it; None where it is the follower's own, to the byte.

        Args:
            limits: most bytes of a partition; 0 leaves it out. The others are asked for as the follower wants.
            max_wait_ms: how long the leader may wait for data, where that is not the follower's to say.
        """
        renew = self.full or not self._leader_id
        if not (limits or self._deviating or self._leaving or max_wait_ms is not None) and (
            self._asked_id == self._leader_id if self.full else self._told_as_wanted()
        ):
            yield from self._untouched()
            return None
        named, forgotten = TopicArray(version), TopicArray(version)
        if renew:
            yield from self._tell_all(limits, named)
        else:
            yield from self._tell_changes(limits, named, forgotten)
        self._renewing = renew
        session_id, epoch = self._leader_id, self._leader_epoch
        if self.full and not self._asks_for_session:
            epoch = FINAL_EPOCH
        elif renew:
            epoch = INITIAL_EPOCH
        else:
            self._leader_epoch = epoch % _EPOCH_MAX + 1
        session_at, wait_at = (13, 0) if version >= 15 else (17, 4)
        scalars = bytearray(frame[: body_pos + _SCALARS_BYTES_MAX])
        _INT32.pack_into(scalars, body_pos + session_at, session_id)
        if max_wait_ms is not None:
            _INT32.pack_into(scalars, body_pos + wait_at, max_wait_ms)
        return join_request(frame, scalars, body_pos, version, epoch, named, forgotten)

    def responded(self, error_code: int, session_id: int) -> tuple[int, int]:
        """Take the head of the leader's response; gives the error and session id that the follower is to see."""
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

    def respond_locally(self) -> int:
        """The leader is not to see this request; gives the session id of the empty response.

        What changed stays to be told.
        """
        assert not self.full, "a full request is answered with everything it names"
        return self.session_id

    def _begin(self, frame: FollowerRequest, session_id: int) -> Portions[None]:
        """Everything anew; where a replica stands is still known if its leader is the same."""
        before, self.replicas = self.replicas, frame.replicas
        removed: list[TopicPartition] = []
        self.added, self.removed = self.replicas.keys(), removed
        yield from taken(before, partial(self._know_again, removed))
        yield from emptied(self._changed)
        yield from emptied(frame.topics.forgotten)
        if not self.session_id and session_id != OWN_SESSION_ID:
            self._leader_id = session_id  # of a connection that is gone: the leader gives its slot free
        self.session_id = 0

    def _know_again(
        self, removed: list[TopicPartition], before: list[tuple[TopicPartition, Replica]]
    ) -> None:
        for key, was in before:
            replica = self.replicas.get(key)
            if replica is None:
                removed.append(key)
            elif replica.leader_epoch == was.leader_epoch:
                replica.high_watermark = was.high_watermark

    def _change(self, topics: Topics) -> Portions[None]:
        """What the follower wants changes by a request's words, which are taken away."""
        added: list[TopicPartition] = []
        self.added, self.removed = added, topics.forgotten
        yield from each(topics.partitions.items(), partial(self._name, added))
        yield from each(topics.forgotten, self._forget)
        yield from emptied(topics.partitions)

    def _name(self, added: list[TopicPartition], named: list[tuple[TopicPartition, bytes]]) -> None:
        for key, entry in named:
            replica = self.replicas.get(key)
            if replica is None:
                self.replicas[key] = Replica(entry, self._leaving.pop(key, None))
                added.append(key)
            else:
                replica.take(entry)
            self._changed[key] = None

    def _forget(self, forgotten: list[TopicPartition]) -> None:
        for key in forgotten:
            gone = self.replicas.pop(key, None)
            self._changed.pop(key, None)
            self._deviating.pop(key, None)
            if gone is not None and gone.told is not None:
                self._leaving[key] = gone.told

    def _told_as_wanted(self) -> bool:
        """Whether the follower's own words name exactly what changed, in the leader's session too."""
        epoch = self._epoch - 1 or _EPOCH_MAX
        return self._leader_id == self.session_id and self._leader_epoch == epoch

    def _untouched(self) -> Portions[None]:
        if self.full:
            yield from each(self.replicas, self._told_as_it_is)
            self._renewing = True
        else:
            yield from each(self._changed, self._told_as_it_is)
            self._renewing = False
            self._leader_epoch = self._epoch
        yield from emptied(self._changed)

    def _told_as_it_is(self, keys: list[TopicPartition]) -> None:
        for key in keys:
            replica = self.replicas[key]
            replica.told = replica.entry

    def _tell_all(self, limits: Mapping[TopicPartition, int], named: TopicArray) -> Portions[None]:
        """Write everything into `named`, but for what is left out."""
        for last in (self._deviating, self._leaving, self._changed):
            yield from emptied(last)
        yield from each(self.replicas, partial(self._tell_anew, limits, named))

    def _tell_anew(
        self, limits: Mapping[TopicPartition, int], named: TopicArray, keys: list[TopicPartition]
    ) -> None:
        entries = []
        for key in keys:
            replica = self.replicas[key]
            replica.told = self._wish(key, replica, limits)
            if replica.told is not None:
                entries.append((key[0], replica.told))
        named.extend(entries)

    def _tell_changes(
        self, limits: Mapping[TopicPartition, int], named: TopicArray, forgotten: TopicArray
    ) -> Portions[None]:
        """Write what the leader has to hear into `named` and `forgotten`."""
        leaving, self._leaving = self._leaving, {}
        changed, self._changed = self._changed, {}
        deviating, self._deviating = self._deviating, {}
        yield from each(leaving, partial(_write, forgotten))
        for keys in (
            changed,
            deviating,
            limits,
        ):  # one that is in two of them has nothing to tell the second time
            yield from each(keys, partial(self._tell, limits, named, forgotten))
        for told in (leaving, changed, deviating):
            yield from emptied(told)

    def _tell(
        self,
        limits: Mapping[TopicPartition, int],
        named: TopicArray,
        forgotten: TopicArray,
        keys: list[TopicPartition],
    ) -> None:
        entries, gone = [], []
        for key in keys:
            replica = self.replicas[key]
            before = replica.told
            replica.told = self._wish(key, replica, limits)
            if replica.told is None:
                if before is not None:
                    gone.append(key)
            elif replica.told != before:
                entries.append((key[0], replica.told))
        named.extend(entries)
        _write(forgotten, gone)

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


def _write(forgotten: TopicArray, keys: list[TopicPartition]) -> None:
    forgotten.extend((topic, _INT32.pack(partition)) for topic, partition in keys)
