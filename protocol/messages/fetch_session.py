"""Incremental fetch sessions, kept in step when a request was answered without the broker (KIP-227).

A client counts its requests of a session in the session epoch, and names in each only the partitions that
changed. When Sluice answers one itself (KIP-219: a throttled fetch), the client counts on and the broker does
not, and the broker never hears of the changes. So each session that was answered locally has a state here: by
how much the client is ahead, and the changes the broker is still to hear of. The next request that is
forwarded takes the broker's epoch and all of them. From then on nothing but the difference is left, until the
session ends.

Where the state cannot be kept, the session is ended instead, by an answer with session id 0, or by letting
the broker refuse the epoch: clients then begin a new one with a full fetch. It never guesses.

Kafka adds and updates what a request names first, then forgets (FetchSession.update). It answers nobody: see
`protocol.messages.fetch.empty_response`.
"""

from collections.abc import Hashable
from struct import Struct
from typing import Final

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
# Changes kept for all sessions together, about 300 bytes each: the largest known consumers name some 10,000
# partitions.
CHANGES_MAX: Final = 200_000
# A session nobody used for as long gives way to a new one when the table is full. Kafka's own cache does so
# after the same time (min.incremental.fetch.session.eviction.ms).
IDLE_MS: Final = 120_000

_INT32 = Struct(">i")


class _Session:
    """What the client has said and the broker not heard."""

    __slots__ = ("ahead", "forgotten", "partitions", "used_ms", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.used_ms = 0
        # By how many epochs the client is ahead of the broker.
        self.ahead = 0
        self.partitions: dict[TopicPartition, bytes] = {}
        # A dict for its order; the values mean nothing.
        self.forgotten: dict[TopicPartition, None] = {}

    def merge(self, partitions: dict[TopicPartition, bytes], forgotten: list[TopicPartition]) -> None:
        """Put a later request's changes on top: one request must do what the two would have done."""
        for key, entry in partitions.items():
            self.forgotten.pop(key, None)
            self.partitions[key] = entry
        for key in forgotten:
            self.partitions.pop(key, None)
            self.forgotten[key] = None

    def changes(self) -> int:
        return len(self.partitions) + len(self.forgotten)


def must_forward(fields: FetchFields) -> bool:
    """Whether only the broker may answer: it has to hear that a session ends, or it keeps a slot for it."""
    return fields.session_epoch == FINAL_EPOCH and fields.session_id != 0


class SessionTable:
    """The sessions that were answered locally, by broker and session id."""

    __slots__ = ("_changes", "_max", "_sessions")

    def __init__(self, sessions_max: int) -> None:
        """Keep the state of at most so many sessions."""
        self._max = sessions_max
        self._changes = 0
        # The longest unused first.
        self._sessions: dict[tuple[Hashable, int], _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def shifted(self) -> bool:
        """Whether any session was answered locally: while none was, no request needs to be looked at for it."""
        return bool(self._sessions)

    def knows(self, broker: Hashable, session_id: int) -> bool:
        """Whether requests of this session have to go through `forward`."""
        return (broker, session_id) in self._sessions

    def answer_locally(
        self,
        broker: Hashable,
        fields: FetchFields,
        frame: Buffer,
        body_pos: int,
        version: int,
        now_ms: int,
    ) -> int:
        """Take note of a whole request that the broker will not see.

        Returns:
            The session id of the empty answer. For an incremental request that is its own; for a full one, or
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
        partitions, forgotten = full_topics(frame, body_pos, version)
        session = self._sessions.pop(key, None)
        if session is None:
            if not self._make_room(now_ms):
                return 0
            session = _Session(version)
        before = session.changes()
        if session.version != version:
            if before:
                # Entries of two versions cannot stand in one request.
                self._changes -= before
                return 0
            session.version = version
        session.merge(partitions, forgotten)
        self._changes += session.changes() - before
        if self._changes > CHANGES_MAX:
            self._changes -= session.changes()
            return 0
        session.ahead += 1
        session.used_ms = now_ms
        self._sessions[key] = session
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
        """The whole request as the broker is to see it, scalars at their places; None to pass it untouched.

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
        changes = session.changes()
        if changes and session.version != version:
            # Untranslated, the epoch is one the broker refuses: both sides start anew.
            self._drop(key)
            return None
        broker_epoch = (epoch - 1 - session.ahead) % EPOCH_MAX + 1
        if changes:
            partitions, forgotten = full_topics(frame, body_pos, version)
            session.merge(partitions, forgotten)
            out = encode_request(
                frame, body_pos, version, broker_epoch, session.partitions, list(session.forgotten)
            )
            session.partitions, session.forgotten = {}, {}
            self._changes -= changes
        else:
            pos = epoch_position(body_pos, version)
            out = bytes(frame[:pos]) + _INT32.pack(broker_epoch) + bytes(frame[pos + 4 :])
        session.used_ms = now_ms
        self._sessions[key] = self._sessions.pop(key)
        return out

    def broker_error(self, broker: Hashable, session_id: int) -> None:
        """The broker refused the session (70, 71, any error of the whole answer) or answered with another id."""
        self._drop((broker, session_id))

    def _drop(self, key: tuple[Hashable, int]) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._changes -= session.changes()

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._max:
            return True
        oldest = next(iter(self._sessions), None)
        if oldest is None or now_ms - self._sessions[oldest].used_ms < IDLE_MS:
            return False
        self._drop(oldest)
        return True
