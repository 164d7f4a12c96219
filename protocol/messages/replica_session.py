"""One follower's fetch session with one leader, when partitions are left out of it (KIP-73, KIP-227, KIP-903).

There are two sessions. The follower's session, between the follower and Sluice, contains the partitions that the
follower fetches. The leader's session, between Sluice and the leader, contains those that are requested now. Each has
its own id and epoch. So Sluice can respond without the leader; and if the leader drops its session, Sluice begins a new
one with all partitions, without the follower. No partition can be lost, because each partition's entry in the
follower's session is compared with the entry that was last sent to the leader:

    fetched by the follower, not sent     -> in the next request, unless it is left out again
    sent, and changed by the follower     -> in the next request
    sent, and removed by the follower     -> forgotten in the next request
    sent, and now left out                -> forgotten in the next request, once

The response to a follower's full request must contain every partition that it names, or the follower ends the session.
So a full request leaves nothing out; it only limits partitions. Versions 12 to 18: topics have ids since 13. This
module does not decide which partitions are left out.

Non-obvious:

- A throttled replica is never fetched with 0 bytes, and its response is never emptied. A leader returns a batch for
  0 bytes, and a follower asks again at once for what it did not get (measured: 2,122 fetches in 6 s).
- A leader's session must not become empty, since Kafka then closes it. If all partitions are left out, nothing is
  sent to the leader, and its session is unchanged.
- A full response to a follower holds every partition that the request named, or the follower ends the session. So a
  full request leaves nothing out; throttled partitions are limited to one byte, which returns their high watermark,
  and at most one batch in all.
- With fewer bytes than a batch a partition gets nothing, unless it is the first. So the size of a batch is taken
  from the responses, and doubled if a partition that is behind gets nothing.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from struct import Struct
from typing import Final, TypeAlias, TypeVar

from protocol.errors import MalformedFieldError, OversizedError
from protocol.messages.fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchFields,
    ReadRequest,
    TopicArray,
    TopicPartition,
    Topics,
    join_request,
    read_ahead,
    replica_id,
)
from protocol.primitives import Buffer, Portions, clear, count, drain, for_each, int32, skip_tags, string

VERSION_MIN: Final = 12


# A partition's entry since version 12: index, leader epoch, fetch offset, last fetched epoch, log start, limit.
_ENTRY = Struct(">iiqiqi")
_LIMIT_AT: Final = _ENTRY.size - 4

# The most partitions of one message. With three replicas each they take more than 8 MiB of a response; one without
# any has six bytes, of which 4 MiB took 4 s to read and 107 MB to keep.
PARTITIONS_MAX: Final = 250_000

Partition: TypeAlias = tuple[str, int]
T = TypeVar("T")


class Replica:
    """One partition that a follower fetches in its session.

    Attributes:
        entry: the follower's encoded entry for it, as in its Fetch requests.
        sent: the last entry sent to the leader; None if the leader's session does not contain the partition.
        high_watermark: the last one in the leader's responses; -1 if there was none in this leader epoch.
    """

    __slots__ = ("entry", "fetch_offset", "high_watermark", "leader_epoch", "max_bytes", "sent")

    fetch_offset: int
    max_bytes: int

    def __init__(self, entry: bytes, sent: bytes | None) -> None:
        self.sent = sent
        self.high_watermark = -1
        self.leader_epoch = 0
        self.take(entry)

    def take(self, entry: bytes) -> None:
        """Replace the entry by the follower's new one; a new leader epoch clears the high watermark."""
        self.entry = entry
        _, epoch, self.fetch_offset, _, _, self.max_bytes = _ENTRY.unpack_from(entry)
        if epoch != self.leader_epoch:
            self.leader_epoch = epoch
            self.high_watermark = -1

    @property
    def in_sync(self) -> bool:
        """Whether the follower has reached the last known high watermark; False if none is known."""
        return self.fetch_offset >= self.high_watermark >= 0

    def limited(self, max_bytes: int) -> bytes:
        """Return the entry with `max_bytes` in place of the follower's limit for this partition."""
        entry = self.entry
        return entry[:_LIMIT_AT] + _INT32.pack(max_bytes) + entry[_LIMIT_AT + 4 :]


class FollowerRequest(ReadRequest):
    """A complete Fetch request of a follower, already decoded.

    A full request has its partitions in `replicas`, and `topics` has none.
    """

    replicas: dict[TopicPartition, Replica]


def is_full(fields: FetchFields) -> bool:
    """Whether a Fetch request is a full one, which names every partition of its session (KIP-227)."""
    return fields.session_id == 0 or fields.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


def read_follower(frame: bytes, body_pos: int, version: int, full: bool) -> tuple[int, FollowerRequest]:
    """Decode a follower's complete Fetch request; returns its replica id, -1 for none, and the decoded request.

    Call it in a thread if the request is large.

    Args:
        full: whether the request is a full one (`is_full`).

    Raises:
        WireError: it is malformed.
    """
    read = FollowerRequest(frame)
    read.topics, read.read_as = read_ahead(frame, body_pos, version).topics, (body_pos, version)
    read.replicas = {}
    if full:
        named, forgotten, end = read.topics
        read.replicas = {key: Replica(entry, None) for key, entry in named.items()}
        read.topics = Topics({}, forgotten, end)
    return replica_id(read, body_pos, version), read


# The follower's session id if the leader returns none. Leaders choose theirs at random.
OWN_SESSION_ID: Final = 0x7FFFFFFF
UNKNOWN_SESSION: Final = 70  # FETCH_SESSION_ID_NOT_FOUND
WRONG_EPOCH: Final = 71  # INVALID_FETCH_SESSION_EPOCH

_EPOCH_MAX: Final = 0x7FFFFFFF
_SCALARS_BYTES_MAX: Final = 25
_INT32 = Struct(">i")


class ReplicaSession:
    """The fetch sessions of a follower's connection: that of the follower with Sluice, and Sluice's with the leader.

    For each request: `take` it; then either `respond_locally`, or `forward` and, when the head of the response has
    arrived, `responded`. A request with thousands of replicas is taken and forwarded in portions
    (`protocol.primitives`); if one of these is interrupted, the session must not be used any more.

    Attributes:
        replicas: the partitions of the follower's session, in its order.
        full: whether the last request was a full one, so that the response must contain all its partitions.
        added, removed: the partitions that the last request has added to the follower's session, or removed.
        session_id: the id of the follower's session; 0 before its first response.
    """

    __slots__ = (
        "_beginning_session",
        "_changed",
        "_epoch",
        "_leader_epoch",
        "_leader_id",
        "_limited",
        "_request_session_id",
        "_to_forget",
        "_version",
        "_wants_session",
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
        self._epoch = 0  # the epoch of the follower's next request
        self._version = 0
        self._request_session_id = 0  # in the last request
        self._wants_session = False
        self._leader_id = 0
        self._leader_epoch = 0  # the epoch of the next request to the leader
        self._beginning_session = False  # the forwarded request begins a session
        # Changed by the follower, and not sent yet. These are dicts to keep the order.
        self._changed: dict[TopicPartition, None] = {}
        # Left out, or requested with a smaller limit than the follower's.
        self._limited: dict[TopicPartition, None] = {}
        # Removed by the follower, and still in the leader's session.
        self._to_forget: dict[TopicPartition, bytes] = {}

    def take(self, fields: FetchFields, frame: FollowerRequest, body_pos: int, version: int) -> Portions[int]:
        """Apply a complete request to the follower's session; its partitions are moved out of `frame`.

        Returns:
            0, or the error code with which to respond; the follower then sends a full request.
        """
        session_id, epoch = fields.session_id, fields.session_epoch
        assert frame.read_as == (body_pos, version), "parsed with other arguments"
        self.full = is_full(fields)
        self._request_session_id = session_id
        if self.full:
            yield from self._replace_all(frame, session_id)
            self._wants_session = epoch == INITIAL_EPOCH
            self._version = version
            return 0
        if not self.session_id or session_id != self.session_id:
            return UNKNOWN_SESSION
        if epoch != self._epoch or version != self._version:
            return WRONG_EPOCH
        self._epoch = epoch % _EPOCH_MAX + 1
        yield from self._apply_changes(frame.topics)
        return 0

    def forward(
        self,
        limits: Mapping[TopicPartition, int],
        max_wait_ms: int | None,
        frame: FollowerRequest,
        body_pos: int,
        version: int,
    ) -> Portions[bytes | None]:
        """Return the request to the leader; None to forward the follower's own unchanged.

        Args:
            limits: the max_bytes of partitions; 0 leaves a partition out. All others keep the follower's limit.
            max_wait_ms: how long the leader may wait for data; None for the follower's value.
        """
        renew = self.full or not self._leader_id
        if not (limits or self._limited or self._to_forget or max_wait_ms is not None) and (
            self._request_session_id == self._leader_id if self.full else self._sessions_agree()
        ):
            yield from self._note_unchanged()
            return None
        named, forgotten = TopicArray(version), TopicArray(version)
        if renew:
            yield from self._write_all(limits, named)
        else:
            yield from self._write_changes(limits, named, forgotten)
        self._beginning_session = renew
        session_id, epoch = self._leader_id, self._leader_epoch
        if self.full and not self._wants_session:
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
        """Apply error code and session id of the leader's response; returns those to send to the follower."""
        if error_code:
            if self.full or error_code not in (UNKNOWN_SESSION, WRONG_EPOCH):
                self._drop_leader_session()
                return error_code, session_id
            # The leader has dropped its session. The follower's continues: its next request begins a new one.
            self._drop_leader_session()
            return 0, self.session_id
        if self._beginning_session:
            self._leader_id = session_id
            self._leader_epoch = 1
        if not session_id:  # the leader has created none, or its session has become empty
            self._drop_leader_session()
        if self.full:
            self._epoch = 1
            self.session_id = (session_id or OWN_SESSION_ID) if self._wants_session else 0
        return 0, self.session_id

    def respond_locally(self) -> int:
        """Return the session id for an empty response made by Sluice; the next forwarded request has the changes."""
        assert not self.full, "the response to a full request contains all its partitions"
        return self.session_id

    def _replace_all(self, frame: FollowerRequest, session_id: int) -> Portions[None]:
        """Replace the follower's session by a full request; high watermarks are kept within the same leader epoch."""
        before, self.replicas = self.replicas, frame.replicas
        removed: list[TopicPartition] = []
        self.added, self.removed = self.replicas.keys(), removed
        yield from drain(before, partial(self._carry_over, removed))
        yield from clear(self._changed)
        yield from clear(frame.topics.forgotten)
        if not self.session_id and session_id != OWN_SESSION_ID:
            self._leader_id = session_id  # of an earlier connection: the leader frees its slot
        self.session_id = 0

    def _carry_over(
        self, removed: list[TopicPartition], before: list[tuple[TopicPartition, Replica]]
    ) -> None:
        for key, old in before:
            replica = self.replicas.get(key)
            if replica is None:
                removed.append(key)
            elif replica.leader_epoch == old.leader_epoch:
                replica.high_watermark = old.high_watermark

    def _apply_changes(self, topics: Topics) -> Portions[None]:
        """Apply an incremental request's changes, which are moved out of `topics`."""
        added: list[TopicPartition] = []
        self.added, self.removed = added, topics.forgotten
        yield from for_each(topics.partitions.items(), partial(self._apply_named, added))
        yield from for_each(topics.forgotten, self._apply_forgotten)
        yield from clear(topics.partitions)

    def _apply_named(self, added: list[TopicPartition], named: list[tuple[TopicPartition, bytes]]) -> None:
        for key, entry in named:
            replica = self.replicas.get(key)
            if replica is None:
                self.replicas[key] = Replica(entry, self._to_forget.pop(key, None))
                added.append(key)
            else:
                replica.take(entry)
            self._changed[key] = None

    def _apply_forgotten(self, forgotten: list[TopicPartition]) -> None:
        for key in forgotten:
            replica = self.replicas.pop(key, None)
            self._changed.pop(key, None)
            self._limited.pop(key, None)
            if replica is not None and replica.sent is not None:
                self._to_forget[key] = replica.sent

    def _sessions_agree(self) -> bool:
        """Whether both sessions have the same id and epoch: then an incremental request can be forwarded unchanged."""
        epoch = self._epoch - 1 or _EPOCH_MAX
        return self._leader_id == self.session_id and self._leader_epoch == epoch

    def _note_unchanged(self) -> Portions[None]:
        """Register that the follower's request is forwarded unchanged: the leader then knows all its partitions.
        In an incremental session, the leader's epoch is then the follower's.
        """
        if self.full:
            yield from for_each(self.replicas, self._mark_sent)
            self._beginning_session = True
        else:
            yield from for_each(self._changed, self._mark_sent)
            self._beginning_session = False
            self._leader_epoch = self._epoch
        yield from clear(self._changed)

    def _mark_sent(self, keys: list[TopicPartition]) -> None:
        for key in keys:
            replica = self.replicas[key]
            replica.sent = replica.entry

    def _write_all(self, limits: Mapping[TopicPartition, int], named: TopicArray) -> Portions[None]:
        """Write all partitions that are not left out into `named`."""
        for last in (self._limited, self._to_forget, self._changed):
            yield from clear(last)
        yield from for_each(self.replicas, partial(self._write_entries, limits, named))

    def _write_entries(
        self, limits: Mapping[TopicPartition, int], named: TopicArray, keys: list[TopicPartition]
    ) -> None:
        entries = []
        for key in keys:
            replica = self.replicas[key]
            replica.sent = self._leader_entry(key, replica, limits)
            if replica.sent is not None:
                entries.append((key[0], replica.sent))
        named.extend(entries)

    def _write_changes(
        self, limits: Mapping[TopicPartition, int], named: TopicArray, forgotten: TopicArray
    ) -> Portions[None]:
        """Write the differences to the leader's session into `named` and `forgotten`."""
        to_forget, self._to_forget = self._to_forget, {}
        changed, self._changed = self._changed, {}
        limited_before, self._limited = self._limited, {}
        yield from for_each(to_forget, partial(_extend_forgotten, forgotten))
        # A partition that is in two of them has no difference the second time.
        for keys in (changed, limited_before, limits):
            yield from for_each(keys, partial(self._write_changed, limits, named, forgotten))
        for written in (to_forget, changed, limited_before):
            yield from clear(written)

    def _write_changed(
        self,
        limits: Mapping[TopicPartition, int],
        named: TopicArray,
        forgotten: TopicArray,
        keys: list[TopicPartition],
    ) -> None:
        entries, removed_keys = [], []
        for key in keys:
            replica = self.replicas[key]
            before = replica.sent
            replica.sent = self._leader_entry(key, replica, limits)
            if replica.sent is None:
                if before is not None:
                    removed_keys.append(key)
            elif replica.sent != before:
                entries.append((key[0], replica.sent))
        named.extend(entries)
        _extend_forgotten(forgotten, removed_keys)

    def _leader_entry(
        self, key: TopicPartition, replica: Replica, limits: Mapping[TopicPartition, int]
    ) -> bytes | None:
        """Return the entry of a partition for the leader; None to leave it out."""
        limit = limits.get(key)
        if limit is None or limit >= replica.max_bytes:
            self._limited.pop(key, None)
            return replica.entry
        self._limited[key] = None
        assert limit or not self.full, "a full request leaves nothing out"
        return replica.limited(limit) if limit else None

    def _drop_leader_session(self) -> None:
        """Register that the leader has no session: the next request to it begins one with all partitions."""
        self._leader_id = 0
        self._leader_epoch = 0
        self._to_forget.clear()


def _extend_forgotten(forgotten: TopicArray, keys: list[TopicPartition]) -> None:
    forgotten.extend((topic, _INT32.pack(partition)) for topic, partition in keys)


# Topics with their partitions, in compact requests and responses; tags are skipped.


def read_partitions(
    frame: Buffer, pos: int, end: int, read: Callable[[Buffer, int, int], tuple[T, int]]
) -> tuple[list[tuple[Partition, T]], int]:
    """Decode an array of topics with partitions; returns the partitions in order, and the position after the array.

    Args:
        read: decodes the fields of one partition after its index; returns them with the position after them.

    Raises:
        WireError: the array is malformed, or has more partitions than PARTITIONS_MAX.
    """
    topics, pos = count(frame, pos, end, True)
    found: list[tuple[Partition, T]] = []
    for _ in range(topics):
        name, pos = string(frame, pos, end, True)
        partitions, pos = count(frame, pos, end, True)
        if len(found) + partitions > PARTITIONS_MAX:
            raise OversizedError(f"more than {PARTITIONS_MAX} partitions, at byte {pos}")
        for _ in range(partitions):
            index = int32(frame, pos, end)
            one, pos = read(frame, pos + 4, end)
            pos = skip_tags(frame, pos, end)
            found.append(((name or "", index), one))
        pos = skip_tags(frame, pos, end)
    return found, pos


def check_ended(pos: int, end: int) -> None:
    """Check that no bytes follow the fields, which end at `pos`.

    Raises:
        MalformedFieldError: there are further bytes before `end`.
    """
    if pos != end:
        raise MalformedFieldError(f"{end - pos} bytes follow the fields, which end at byte {pos}")
