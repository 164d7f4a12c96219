"""Incremental fetch sessions, kept in step when a request was answered without the broker (KIP-227).

A client counts its requests of a session in the session epoch, and names in each only the partitions that
changed. When Sluice answers one itself (KIP-219: a throttled fetch), the client counts on and the broker does
not, and the broker never hears of the changes. So each session that was answered locally has a state here: by
how much the client is ahead, and the changes the broker is still to hear of. The next request that is
forwarded takes the broker's epoch and all of them. From then on nothing but the difference is left, until the
session ends.

Where the state cannot be kept, the session is ended instead, by a response with session id 0, or by letting
the broker refuse the epoch: clients then begin a new one with a full fetch. It never guesses.

What is kept counts in bytes. Where there is no room, sessions unused for a while go first, then those of the
address that keeps most, unless that is the one who asks. A partition with a long tag section, a name that no topic can
have, or a request with more partitions than known consumers have is never kept.

Kafka first adds and updates the partitions of a request, then forgets (FetchSession.update). Responses are made in
`protocol.messages.fetch.empty_response`.

Non-obvious:

- A throttled incremental Fetch shifts the session's epoch. The broker never sees that request, so from then on the
  epochs of both sides differ; what the request changed is merged into the next one that is forwarded. Only sessions
  with such a request have state.
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
# Kept for all sessions together, where the table is not given another bound.
BYTES_MAX: Final = 64 * 1024 * 1024
# Kept for one session: the largest known consumers name some 10,000 partitions, 400 bytes each with all objects.
SESSION_BYTES_MAX: Final = 8 * 1024 * 1024
# A request whose topics are longer is not read: 10,000 partitions are 0.4 MB.
REQUEST_BYTES_MAX: Final = 1024 * 1024
# Of one request, and of one session: more are not merged or told, since the loop would be held for it. The largest
# known consumers have 10,000.
PARTITIONS_MAX: Final = 12_000
# A partition's entry has 40 bytes, and tags that no client known fills.
ENTRY_BYTES_MAX: Final = 256
TOPIC_BYTES_MAX: Final = 249
# What a change and a session take in memory beside the bytes of names and entries: tuples, numbers, the objects' heads,
# their places in dicts that have just grown.
CHANGE_BYTES: Final = 352
SESSION_BYTES: Final = 1024
# A session unused for as long is forgotten. Kafka's own cache gives it up after the same time
# (min.incremental.fetch.session.eviction.ms).
IDLE_MS: Final = 120_000
_EXPIRE_AT_ONCE: Final = 256  # looked at in one call

_Key: TypeAlias = tuple[Hashable, int]

_INT32 = Struct(">i")


class _Session:
    """The changes of a session that the client has sent and the broker has not received."""

    __slots__ = ("address", "ahead", "forgotten", "kept_bytes", "partitions", "used_ms", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.address = ""
        self.used_ms = 0
        # By how many epochs the client is ahead of the broker.
        self.ahead = 0
        self.kept_bytes = SESSION_BYTES
        self.partitions: dict[TopicPartition, bytes] = {}
        # A dict for its order; the values mean nothing.
        self.forgotten: dict[TopicPartition, None] = {}

    def merge(self, partitions: dict[TopicPartition, bytes], forgotten: list[TopicPartition]) -> None:
        """Merge a later request's changes: one request must have the effect of both."""
        # Thousands at once, while others wait: whatever can be is done of all of them in one step.
        for key in self.forgotten.keys() & partitions.keys():
            del self.forgotten[key]
        self.partitions.update(partitions)
        if forgotten:
            for key in self.partitions.keys() & set(forgotten):
                del self.partitions[key]
            self.forgotten.update(dict.fromkeys(forgotten))
        self.kept_bytes = SESSION_BYTES + _kept_bytes(self.partitions) + _kept_bytes(self.forgotten)
        self.kept_bytes += sum(map(len, self.partitions.values()))

    def told(self) -> None:
        """Clear the changes: they are sent to the broker now."""
        self.partitions, self.forgotten = {}, {}
        self.kept_bytes = SESSION_BYTES

    def too_large(self) -> bool:
        """Whether the changes exceed the bound of one session, or of one request."""
        return (
            self.kept_bytes > SESSION_BYTES_MAX or len(self.partitions) + len(self.forgotten) > PARTITIONS_MAX
        )

    def changed(self) -> bool:
        return bool(self.partitions or self.forgotten)


def _kept_bytes(changes: Mapping[TopicPartition, object]) -> int:
    """The memory of changes in bytes, without the partitions' entries."""
    return CHANGE_BYTES * len(changes) + sum([len(topic) for topic, _ in changes])


class _Share:
    """The sessions of one address."""

    __slots__ = ("kept_bytes", "sessions")

    def __init__(self) -> None:
        self.kept_bytes = 0
        self.sessions: dict[_Key, None] = {}  # the longest unused first


def must_forward(fields: FetchFields) -> bool:
    """Whether the request must be forwarded: the broker must learn that a session ends, or it keeps a slot for it."""
    return fields.session_epoch == FINAL_EPOCH and fields.session_id != 0


def _may_be_kept(partitions: dict[TopicPartition, bytes], forgotten: list[TopicPartition]) -> bool:
    """Whether all of this is as small as a consumer's."""
    if len(partitions) + len(forgotten) > PARTITIONS_MAX:
        return False
    topics = {topic for topic, _ in partitions} | {topic for topic, _ in forgotten}
    return (
        max(map(len, topics), default=0) <= TOPIC_BYTES_MAX
        and max(map(len, partitions.values()), default=0) <= ENTRY_BYTES_MAX
    )


class SessionTable:
    """The sessions with local responses, by broker and session id.

    Attributes:
        kept_bytes: the memory of all sessions in bytes, at most `bytes_max`.
    """

    __slots__ = ("_bytes_max", "_max", "_sessions", "_shares", "kept_bytes")

    def __init__(self, sessions_max: int, bytes_max: int = BYTES_MAX) -> None:
        """Keep the state of at most so many sessions, in at most so many bytes."""
        self._max = sessions_max
        self._bytes_max = bytes_max
        self.kept_bytes = 0
        # The longest unused first.
        self._sessions: dict[_Key, _Session] = {}
        self._shares: dict[str, _Share] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def shifted(self) -> bool:
        """Whether any session was answered locally: while none was, no request needs to be looked at for it."""
        return bool(self._sessions)

    def knows(self, broker: Hashable, session_id: int) -> bool:
        """Whether requests of this session have to go through `forward`."""
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
        """Register a complete request that the broker will not see.

        Args:
            address: the client's address, to which the memory is attributed.

        Returns:
            The session id of the empty response. For an incremental request that is its own; for a full one, or
            one without a session, 0, as Kafka answers when it throttles them. It is 0 as well when no more
            can be kept; the client then begins a new session.

        Raises:
            WireError: the request is malformed; its session is left as it was.
        """
        assert not must_forward(fields), "a broker has to hear that a session ends"
        session_id, epoch = fields.session_id, fields.session_epoch
        key = (broker, session_id)
        if epoch <= INITIAL_EPOCH or session_id == 0:
            if epoch == INITIAL_EPOCH:
                self._drop(key)
            return 0
        if len(frame) - body_pos > REQUEST_BYTES_MAX:
            self._drop(key)
            return 0
        partitions, forgotten = full_topics(frame, body_pos, version)
        session = self._drop(key) or _Session(version)
        if session.version != version:
            if session.changed():
                # Entries of two versions cannot stand in one request.
                return 0
            session.version = version
        if not _may_be_kept(partitions, forgotten):
            return 0
        session.merge(partitions, forgotten)
        if session.too_large() or not self._make_room(session.kept_bytes, address, now_ms):
            return 0
        session.ahead += 1
        session.address = address
        self._keep(key, session, now_ms)
        return session_id

    def forward(
        self,
        broker: Hashable,
        fields: FetchFields,
        frame: Buffer,
        body_pos: int,
        version: int,
        now_ms: int,
    ) -> bytes | None:
        """Return the complete request to send to the broker; None to forward it unchanged.

        Raises:
            WireError: the request is malformed; its session is left as it was.
        """
        key = (broker, fields.session_id)
        session = self._sessions.get(key)
        if session is None:
            return None
        epoch = fields.session_epoch
        if epoch <= INITIAL_EPOCH:
            # The client ends the session, or the broker will refuse an epoch that cannot be.
            if epoch >= FINAL_EPOCH:
                self._drop(key)
            return None
        changed = session.changed()
        if changed and (session.version != version or len(frame) - body_pos > REQUEST_BYTES_MAX):
            # Untranslated, the epoch is one the broker refuses: both sides start anew.
            self._drop(key)
            return None
        broker_epoch = (epoch - 1 - session.ahead) % EPOCH_MAX + 1
        if changed:
            partitions, forgotten = full_topics(frame, body_pos, version)
            self._drop(key)
            if not _may_be_kept(partitions, forgotten):
                return None  # as above
            session.merge(partitions, forgotten)
            out = encode_request(
                frame, body_pos, version, broker_epoch, session.partitions, list(session.forgotten)
            )
            session.told()
        else:
            pos = epoch_position(body_pos, version)
            out = bytes(frame[:pos]) + _INT32.pack(broker_epoch) + bytes(frame[pos + 4 :])
            self._drop(key)
        self._keep(key, session, now_ms)
        return out

    def broker_error(self, broker: Hashable, session_id: int) -> None:
        """The broker refused the session (70, 71, any error of the whole response) or answered with another id."""
        self._drop((broker, session_id))

    def expire(self, now_ms: int) -> int:
        """Remove sessions that were not used for a while; returns their number. Call it about once a second."""
        forgotten = 0
        while forgotten < _EXPIRE_AT_ONCE and self._forget_idle(now_ms):
            forgotten += 1
        return forgotten

    def _keep(self, key: _Key, session: _Session, now_ms: int) -> None:
        """Put a session behind all others: it is the one that was used last."""
        session.used_ms = now_ms
        self._sessions[key] = session
        self.kept_bytes += session.kept_bytes
        share = self._shares.get(session.address)
        if share is None:
            share = self._shares[session.address] = _Share()
        share.sessions[key] = None
        share.kept_bytes += session.kept_bytes

    def _drop(self, key: _Key) -> _Session | None:
        """Take a session out; what it was, if it was there."""
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self.kept_bytes -= session.kept_bytes
        share = self._shares[session.address]
        share.kept_bytes -= session.kept_bytes
        del share.sessions[key]
        if not share.sessions:
            del self._shares[session.address]
        return session

    def _forget_idle(self, now_ms: int) -> bool:
        """Drop the session that was not used for longest, if that is long enough."""
        oldest = next(iter(self._sessions), None)
        if oldest is None or now_ms - self._sessions[oldest].used_ms < IDLE_MS:
            return False
        self._drop(oldest)
        return True

    def _has_room(self, size: int) -> bool:
        return len(self._sessions) < self._max and self.kept_bytes + size <= self._bytes_max

    def _make_room(self, size: int, address: str, now_ms: int) -> bool:
        """Whether a session of this size may be kept for this address; others make room for it where that is fair."""
        while not self._has_room(size) and self._forget_idle(now_ms):
            pass
        while not self._has_room(size):
            own = self._shares.get(address)
            share = max(self._shares.values(), key=_share_bytes, default=own)
            fair = size if own is None else own.kept_bytes + size
            if share is None or share is own or share.kept_bytes <= fair:
                return False
            while share.sessions and share.kept_bytes > fair and not self._has_room(size):
                self._drop(next(iter(share.sessions)))
        return True


def _share_bytes(share: _Share) -> int:
    return share.kept_bytes
