"""Incremental fetch sessions, kept consistent when Sluice responds to a request without the broker (KIP-227).

A client increments the session epoch with each request of a session, and each request names only the partitions that
changed. If Sluice responds to one locally (KIP-219: a throttled Fetch), the client increments the epoch and the broker
does not, and the broker does not receive the changes. So each session with a local response has a state here: the
difference of the epochs, and the changes that the broker has not received. The next forwarded request gets the broker's
epoch and all of these changes. From then on only the difference is kept, until the session ends.

If the state cannot be kept, the session is ended instead: by a response with session id 0, or because the broker
rejects the epoch. The client then begins a new session with a full fetch.

The memory of all sessions is bounded in bytes. Without room, idle sessions are dropped first, then those of the address
that uses most, unless that is the requesting one. A partition with a long tag section, an impossible topic name, or a
request with more partitions than known consumers have is never kept.

Kafka first adds and updates the partitions of a request, then forgets (FetchSession.update). Responses are made in
`protocol.messages.fetch.empty_response`.

Non-obvious:

- A throttled incremental Fetch shifts the session's epoch. The broker never receives that request, so from then on the
  epochs of client and broker differ; the request's changes are merged into the next forwarded one. Only sessions with
  such a request have state.
- FINAL_EPOCH is always forwarded. Otherwise the broker would keep a closed session's slot.
"""

from collections.abc import Hashable, Mapping
from struct import Struct
from typing import Final, TypeAlias

from protocol.messages.fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchFields,
    TopicPartition,
    encode_request,
    epoch_position,
    full_topics,
)
from protocol.primitives import Buffer

# Epochs run from 1 to this, and then from 1 again.
EPOCH_MAX: Final = 0x7FFFFFFF
# The default bound of all sessions together.
BYTES_MAX: Final = 64 * 1024 * 1024
# The bound of one session: the largest known consumers have some 10,000 partitions, 400 bytes each with all objects.
SESSION_BYTES_MAX: Final = 8 * 1024 * 1024
# A request with a longer body is not parsed: 10,000 partitions are 0.4 MB.
REQUEST_BYTES_MAX: Final = 1024 * 1024
# The most partitions of one request, and of one session: merging or writing more would block the loop for too long.
# The largest known consumers have 10,000.
PARTITIONS_MAX: Final = 12_000
# A partition's entry has 40 bytes; no known client adds tags.
ENTRY_BYTES_MAX: Final = 256
TOPIC_BYTES_MAX: Final = 249
# The memory of a change and of a session in addition to the bytes of names and entries: tuples, numbers, object
# headers, and slots of dicts that have just been resized.
CHANGE_BYTES: Final = 352
SESSION_BYTES: Final = 1024
# A session that is idle for this long is dropped. Kafka's own cache evicts it after the same time
# (min.incremental.fetch.session.eviction.ms).
IDLE_MS: Final = 120_000
_EXPIRE_AT_ONCE: Final = 256  # the most sessions dropped in one call

_Key: TypeAlias = tuple[Hashable, int]

_INT32 = Struct(">i")


class _Session:
    """A session's changes that the client has sent and the broker has not received.

    Attributes:
        ahead: by how many epochs the client is ahead of the broker.
        used_ms: when the session was last used.
    """

    __slots__ = ("address", "ahead", "forgotten", "kept_bytes", "partitions", "used_ms", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.address = ""
        self.used_ms = 0
        self.ahead = 0
        self.kept_bytes = SESSION_BYTES
        self.partitions: dict[TopicPartition, bytes] = {}
        # A dict, to keep the order; the values are not used.
        self.forgotten: dict[TopicPartition, None] = {}

    def merge(self, partitions: dict[TopicPartition, bytes], forgotten: list[TopicPartition]) -> None:
        """Add the changes of a later request, so that one request with all changes has the effect of both."""
        # There may be thousands, and this blocks the loop: set operations instead of one step per partition.
        for key in self.forgotten.keys() & partitions.keys():
            del self.forgotten[key]
        self.partitions.update(partitions)
        if forgotten:
            for key in self.partitions.keys() & set(forgotten):
                del self.partitions[key]
            self.forgotten.update(dict.fromkeys(forgotten))
        self.kept_bytes = SESSION_BYTES + _kept_bytes(self.partitions) + _kept_bytes(self.forgotten)
        self.kept_bytes += sum(map(len, self.partitions.values()))

    def clear_changes(self) -> None:
        """Remove all changes, since the request that is now sent to the broker contains them."""
        self.partitions, self.forgotten = {}, {}
        self.kept_bytes = SESSION_BYTES

    def too_large(self) -> bool:
        """Whether the changes are too large to be kept: more bytes than a session may have, or too many partitions."""
        return (
            self.kept_bytes > SESSION_BYTES_MAX or len(self.partitions) + len(self.forgotten) > PARTITIONS_MAX
        )

    def changed(self) -> bool:
        """Whether there are changes that the broker has not received."""
        return bool(self.partitions or self.forgotten)


def _kept_bytes(changes: Mapping[TopicPartition, object]) -> int:
    """Return the memory of changes in bytes, without the partitions' entries."""
    return CHANGE_BYTES * len(changes) + sum([len(topic) for topic, _ in changes])


class _AddressSessions:
    """The sessions of one client address, and their memory."""

    __slots__ = ("kept_bytes", "sessions")

    def __init__(self) -> None:
        self.kept_bytes = 0
        self.sessions: dict[_Key, None] = {}  # the least recently used first


def must_forward(fields: FetchFields) -> bool:
    """Whether the request must reach the broker, since it ends its fetch session, which the broker has in memory."""
    return fields.session_epoch == FINAL_EPOCH and fields.session_id != 0


def _within_limits(partitions: dict[TopicPartition, bytes], forgotten: list[TopicPartition]) -> bool:
    """Whether the changes of one request are within the limits for partitions, names and entries."""
    if len(partitions) + len(forgotten) > PARTITIONS_MAX:
        return False
    topics = {topic for topic, _ in partitions} | {topic for topic, _ in forgotten}
    return (
        max(map(len, topics), default=0) <= TOPIC_BYTES_MAX
        and max(map(len, partitions.values()), default=0) <= ENTRY_BYTES_MAX
    )


class SessionTable:
    """The fetch sessions in which Sluice has responded to requests itself, by broker and session id.

    For each it keeps how far the client's epoch is ahead of the broker's, and the changes that the broker has not
    received.

    Attributes:
        kept_bytes: the memory of all sessions in bytes, at most `bytes_max`.
    """

    __slots__ = ("_by_address", "_bytes_max", "_sessions", "_sessions_max", "kept_bytes")

    def __init__(self, sessions_max: int, bytes_max: int = BYTES_MAX) -> None:
        """Create a table of at most `sessions_max` sessions and `bytes_max` bytes."""
        self._sessions_max = sessions_max
        self._bytes_max = bytes_max
        self.kept_bytes = 0
        # The least recently used first.
        self._sessions: dict[_Key, _Session] = {}
        self._by_address: dict[str, _AddressSessions] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def has_shifted(self) -> bool:
        """Whether there is any such session; if not, no Fetch needs to be translated (`forward`)."""
        return bool(self._sessions)

    def is_shifted(self, broker: Hashable, session_id: int) -> bool:
        """Whether requests of this session must be translated by `forward`: the client's and broker's epochs differ."""
        return (broker, session_id) in self._sessions

    def respond_locally(
        self,
        broker: Hashable,
        fields: FetchFields,
        frame: Buffer,
        body_pos: int,
        version: int,
        now_ms: int,
        address: str = "",
    ) -> int:
        """Register that Sluice responds to a complete Fetch itself; its changes go to the broker with the next one.

        Args:
            address: the client's address, to which the memory is attributed.

        Returns:
            The session id of the empty response. For an incremental request this is its own; for a full one, or
            one without a session, 0, as in Kafka's responses to throttled ones. It is also 0 if the session cannot
            be kept; the client then begins a new one.

        Raises:
            WireError: the request is malformed; its session is unchanged.
        """
        assert not must_forward(fields), "a broker must receive the end of a session"
        session_id, epoch = fields.session_id, fields.session_epoch
        key = (broker, session_id)
        if epoch <= INITIAL_EPOCH or session_id == 0:
            if epoch == INITIAL_EPOCH:
                self._pop(key)
            return 0
        if len(frame) - body_pos > REQUEST_BYTES_MAX:
            self._pop(key)
            return 0
        partitions, forgotten = full_topics(frame, body_pos, version)
        session = self._pop(key) or _Session(version)
        if session.version != version:
            if session.changed():
                # Entries of two versions cannot be in one request.
                return 0
            session.version = version
        if not _within_limits(partitions, forgotten):
            return 0
        session.merge(partitions, forgotten)
        if session.too_large() or not self._make_room(session.kept_bytes, address, now_ms):
            return 0
        session.ahead += 1
        session.address = address
        self._put(key, session, now_ms)
        return session_id

    def forward(
        self, broker: Hashable, fields: FetchFields, frame: Buffer, body_pos: int, version: int, now_ms: int
    ) -> bytes | None:
        """Return a complete Fetch with the broker's epoch and all pending changes; None to forward it unchanged.

        Raises:
            WireError: the request is malformed; its session is unchanged.
        """
        key = (broker, fields.session_id)
        session = self._sessions.get(key)
        if session is None:
            return None
        epoch = fields.session_epoch
        if epoch <= INITIAL_EPOCH:
            # The client ends the session, or the broker will reject an invalid epoch.
            if epoch >= FINAL_EPOCH:
                self._pop(key)
            return None
        changed = session.changed()
        if changed and (session.version != version or len(frame) - body_pos > REQUEST_BYTES_MAX):
            # Without translation the broker rejects the epoch, and the client begins a new session.
            self._pop(key)
            return None
        broker_epoch = (epoch - 1 - session.ahead) % EPOCH_MAX + 1
        if changed:
            partitions, forgotten = full_topics(frame, body_pos, version)
            self._pop(key)
            if not _within_limits(partitions, forgotten):
                return None  # as above
            session.merge(partitions, forgotten)
            out = encode_request(
                frame, body_pos, version, broker_epoch, session.partitions, list(session.forgotten)
            )
            session.clear_changes()
        else:
            pos = epoch_position(body_pos, version)
            out = bytes(frame[:pos]) + _INT32.pack(broker_epoch) + bytes(frame[pos + 4 :])
            self._pop(key)
        self._put(key, session, now_ms)
        return out

    def drop(self, broker: Hashable, session_id: int) -> None:
        """Remove a session that the broker has ended, by an error of the whole response or by another session id."""
        self._pop((broker, session_id))

    def expire(self, now_ms: int) -> int:
        """Remove sessions unused for IDLE_MS; returns how many. Call it about once a second."""
        forgotten = 0
        while forgotten < _EXPIRE_AT_ONCE and self._drop_idle(now_ms):
            forgotten += 1
        return forgotten

    def _put(self, key: _Key, session: _Session, now_ms: int) -> None:
        """Store a session as the most recently used one."""
        session.used_ms = now_ms
        self._sessions[key] = session
        self.kept_bytes += session.kept_bytes
        share = self._by_address.get(session.address)
        if share is None:
            share = self._by_address[session.address] = _AddressSessions()
        share.sessions[key] = None
        share.kept_bytes += session.kept_bytes

    def _pop(self, key: _Key) -> _Session | None:
        """Remove a session and return it; None if there is none."""
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self.kept_bytes -= session.kept_bytes
        share = self._by_address[session.address]
        share.kept_bytes -= session.kept_bytes
        del share.sessions[key]
        if not share.sessions:
            del self._by_address[session.address]
        return session

    def _drop_idle(self, now_ms: int) -> bool:
        """Remove the least recently used session if it is idle for long enough; returns whether it was."""
        oldest = next(iter(self._sessions), None)
        if oldest is None or now_ms - self._sessions[oldest].used_ms < IDLE_MS:
            return False
        self._pop(oldest)
        return True

    def _has_room(self, size: int) -> bool:
        return len(self._sessions) < self._sessions_max and self.kept_bytes + size <= self._bytes_max

    def _make_room(self, size: int, address: str, now_ms: int) -> bool:
        """Make room for a session of this size by removing others; returns False if the address already uses most."""
        while not self._has_room(size) and self._drop_idle(now_ms):
            pass
        while not self._has_room(size):
            own = self._by_address.get(address)
            share = max(self._by_address.values(), key=_total_bytes, default=own)
            fair = size if own is None else own.kept_bytes + size
            if share is None or share is own or share.kept_bytes <= fair:
                return False
            while share.sessions and share.kept_bytes > fair and not self._has_room(size):
                self._pop(next(iter(share.sessions)))
        return True


def _total_bytes(share: _AddressSessions) -> int:
    return share.kept_bytes
