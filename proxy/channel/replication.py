"""The channel of a follower: throttled partitions are left out of Fetches; all else is forwarded (KIP-73).

    follower ──► ReplicaRequests ──► leader      link: the follower's partitions, the leader's session
                     │   ▲
                    link │
                     ▼   │
    follower ◄── ResponseDirection ◄── leader

    request    Fetch 12-18 of a follower ──► unchanged, or with partitions left out or limited
    request    no partition left ───────────► WAIT (held) ─► decided on again, or an empty local response
    request    Fetch of another version ───► unchanged, and counted; no partition can be left out
    response   Fetch ──► walked: high watermarks and bytes; error and session id may be replaced by the follower's

Brokers know each other's versions by metadata.version and do not negotiate them, so versions cannot be hidden. Clients
have another class of channel, so that replication costs their requests nothing; client quotas do not apply here.
Inter-broker SASL exchanges are forwarded unread: since Kafka 1.0 brokers frame them (KIP-152).
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from protocol.api import FETCH
from protocol.header import REQUEST_HEAD, RequestHead
from protocol.messages import fetch
from protocol.messages.fetch_session import SessionTable
from protocol.messages.replica_session import VERSION_MIN, FollowerRequest, is_full, read_follower
from protocol.primitives import Portions
from protocol.walks.fetch import ReplicaWalk
from protocol.walks.walk import Walk
from proxy.channel.bounds import REPLICA_FETCH_BYTES_MAX
from proxy.channel.channel import Channel, Condition
from proxy.channel.direction import NS_PER_MS, WALK, ChannelDirection, copied, skip_header_tags
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Entry, Owed
from proxy.channel.observer import ObservedDirection, Observer
from proxy.channel.replica_link import ReplicaLink
from proxy.channel.requests import HEAD_BYTES, RequestReader
from proxy.channel.responses import ResponseDirection
from proxy.channel.settings import ANY_BROKER, ChannelSettings
from proxy.channel.state import ChannelState
from proxy.channel.verdict import PASS, Verdict
from proxy.system.stats import Stats
from quotas.engine import Engine

_HEAD: Final = REQUEST_HEAD.unpack_from
# Bytes of a response: length, correlation id and tag count before the throttle time; error and session id after it.
_ERROR_AT: Final = 13
_RESPONSE_HEAD_BYTES: Final = 19
_ERROR_AND_SESSION: Final = Struct(">hi")


class _Fetched(Owed):
    """A leader's response to its follower's Fetch."""

    __slots__ = ("_link",)

    def __init__(self, link: ReplicaLink) -> None:
        self._link = link

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Read the response's head, set the follower's session id, and have the rest walked."""
        length = direction.frame_bytes - 4
        if end - pos < _RESPONSE_HEAD_BYTES:
            return direction.order_more(end - pos, length)
        if buf[pos + 8]:
            raise PeerError(
                "malformed", "a Fetch response with tagged fields in its header, which no broker sends"
            )
        error_code, session_id = _ERROR_AND_SESSION.unpack_from(buf, pos + _ERROR_AT)
        translated = self._link.session.responded(error_code, session_id)
        if translated != (error_code, session_id):
            _ERROR_AND_SESSION.pack_into(buf, pos + _ERROR_AT, *translated)
            direction.verdict.patches += 1
            direction.state.stats.session_translations += 1
        direction.walk = ReplicaWalk(entry[1], length)
        return WALK


class ReplicaRequests(RequestReader):
    """The requests of a follower on their way to its leader."""

    __slots__ = ("_current", "_link", "_reconsidered", "_work")

    def __init__(self, state: ChannelState, link: ReplicaLink) -> None:
        super().__init__(state)
        self._link = link
        # The last Fetch, if it waits.
        self._current: tuple[fetch.FetchFields, FollowerRequest, int] | None = None
        self._work: Portions[int] | None = None  # the work on the current Fetch, while it is incomplete
        self._reconsidered = False

    def reconsider(self) -> None:
        """Decide again on a waiting Fetch after a change of quotas."""
        self._reconsidered = True

    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:
        """Decide on bytes from the follower; see `proxy.channel.channel`."""
        verdict, state = self.verdict, self.state
        verdict.insert = b""
        state.now_ns = now_ns
        now_ms = now_ns // NS_PER_MS
        pos = start
        if verdict.passthrough:
            pos = self.skip_passthrough(start, end)
        verdict.order = PASS
        while not verdict.passthrough:
            if len(state.in_flight) >= state.in_flight_max:
                self.await_responses()
                break
            if end - pos < HEAD_BYTES:
                self.handle_short_header(buf, pos, end)
                break
            head: RequestHead = _HEAD(buf, pos)
            self.check_header(buf, pos, head)
            if head[1] != FETCH or self._link.unthrottled:
                self.owe_unchanged(*head[1:4])
            elif self._fetch(buf, pos, end, head, now_ms):
                break
            pos += 4 + head[0]
            if pos >= end:
                verdict.passthrough = pos - end
                verdict.order = PASS
                pos = end
                break
        verdict.passing = pos - start
        return verdict

    def _fetch(self, buf: Buffer, pos: int, end: int, head: RequestHead, now_ms: int) -> int:
        """Return 0 to forward a Fetch, or an order."""
        length, key, version, correlation_id, _ = head
        link, state = self._link, self.state
        if not VERSION_MIN <= version <= fetch.VERSION_MAX:
            # Unreadable, but not refused: replication continues without a throttle.
            state.stats.replication_unknown_versions[str(version)] += 1
            self.owe_unchanged(key, version, correlation_id)
            return 0
        if not self.whole(end - pos, length, REPLICA_FETCH_BYTES_MAX):
            return self.verdict.order
        if link.fetch_in_flight:  # brokers send one at a time; a second one waits for the response
            return self.await_responses()
        if self._work is None:
            if not link.waits:  # otherwise it was read before, and has waited
                self._current = self._read(buf, pos, head)
            if self._current is None:
                return self.verdict.order
            fields, frame, fields_at = self._current
            if fields.replica_id < 0:
                self.owe_unchanged(key, version, correlation_id)
                return 0
            self._work = self._decide(head, fields, frame, fields_at)
        return self._do_portion(self._work, now_ms)

    def _do_portion(self, work: Portions[int], now_ms: int) -> int:
        """Do one portion; returns the result of `_fetch` after the last one."""
        self._link.now_ms = now_ms
        try:
            next(work)
        except StopIteration as over:
            self._work = None
            order: int = over.value
            return order
        return self.next_turn()

    def _read(
        self, buf: Buffer, pos: int, head: RequestHead
    ) -> tuple[fetch.FetchFields, FollowerRequest, int] | None:
        """Return a complete Fetch's fields, its topics, and the offset of the fields; None with an order."""
        length, _, version, _, client_id_length = head
        frame_end = pos + 4 + length
        fields_at = skip_header_tags(buf, pos + HEAD_BYTES + max(client_id_length, 0), frame_end)
        fields = None if fields_at is None else fetch.read_request(buf, fields_at, frame_end, version)
        if fields is None or fields_at is None:
            raise PeerError(
                "malformed", f"Fetch version {version} of {length} bytes ends before its fields do"
            )
        asked = copied(buf, pos, frame_end)
        read = self.parse(read_follower, asked, fields_at - pos, version, is_full(fields))
        if read is None:
            return None
        replica_id, frame = read
        if version >= fetch.REPLICA_TAG_SINCE:
            fields = fields._replace(replica_id=replica_id)
        return fields, frame, fields_at - pos

    def _decide(
        self, head: RequestHead, fields: fetch.FetchFields, frame: FollowerRequest, fields_at: int
    ) -> Portions[int]:
        """Apply a Fetch to the session; then forward it, hold it, or send an empty local response."""
        length, key, version, correlation_id, _ = head
        link, state = self._link, self.state
        self._reconsidered = False
        if not link.waits:
            error = yield from link.take(fields, frame, fields_at, version)
            if error:
                return self._respond_locally(head, fetch.empty_response(version, correlation_id, 0, 0, error))
            if link.unthrottled:
                self.owe_unchanged(key, version, correlation_id)
                return 0
        limits, ready_ms, empty = yield from link.decide()
        max_wait_ms = None
        if ready_ms is not None:
            if empty and not link.session.full:
                return self._hold_or_respond(head, ready_ms)
            # The leader may as well respond when more may be fetched.
            max_wait_ms = min(fields.max_wait_ms, ready_ms - link.now_ms)
        forwarded = yield from link.session.forward(limits, max_wait_ms, frame, fields_at, version)
        link.forwarded()
        self._current = None
        state.in_flight.append((correlation_id, version, _Fetched(link)))
        if forwarded is None:
            self.counts[key] += 1
            return 0
        state.stats.requests[FETCH] += 1
        return self.replace(length + 4, forwarded)

    def _hold_or_respond(self, head: RequestHead, ready_ms: int) -> int:
        """Hold a Fetch of which every partition is left out, or send an empty local response."""
        _, _, version, correlation_id, _ = head
        link = self._link
        until_ms = link.wait_until(ready_ms, link.now_ms)
        if until_ms:
            return self.next_turn() if self._reconsidered else self.wait(until_ms, held=True)
        self.state.stats.replica_fetches_answered += 1
        link.waits = False
        self._current = None
        session_id = link.session.respond_locally()
        return self._respond_locally(head, fetch.empty_response(version, correlation_id, session_id, 0))

    def _respond_locally(self, head: RequestHead, response: bytes) -> int:
        """Send a local response."""
        length, key, version, correlation_id, _ = head
        self.state.respond_locally(correlation_id, version, response)
        self.counts[key] += 1
        self.verdict.signal = True
        return self.replace(length + 4, b"")


class _LinkObserver(Observer):
    """Updates the link from the leader's responses, and releases what it holds at the end."""

    __slots__ = ("_link",)

    def __init__(self, link: ReplicaLink) -> None:
        self._link = link

    def walked(self, direction: ObservedDirection, walk: Walk, now_ms: int) -> None:
        """Update the partitions' state; at the end of the response, note that no more follows."""
        assert isinstance(direction, ResponseDirection), "no request is walked here"
        assert isinstance(walk, ReplicaWalk), "no other response is walked here"
        if walk.statuses:
            self._link.update(walk.statuses, now_ms)
            walk.statuses.clear()
        if direction.walk is None:
            self._link.response_ended(now_ms)
            if direction.state.awaits_responses:  # a second Fetch waits
                direction.resume_requests()

    def close(self, now_ms: int) -> Iterator[None]:
        """End the link; iterate over the result to free its memory in portions."""
        return self._link.close(now_ms)


class ReplicationChannel(Channel):
    """The two directions of a connection between brokers."""

    __slots__ = ("link",)

    def __init__(
        self, settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats
    ) -> None:
        super().__init__(settings, engine, sessions, stats)
        assert settings.replication is not None, "a listener of another kind"
        self.link = ReplicaLink(settings.replication, settings.broker, stats)
        # Behind a port for several brokers, the leader is unknown.
        self.link.unthrottled = settings.broker == ANY_BROKER
        self.requests: ReplicaRequests = ReplicaRequests(self.state, self.link)
        self.state.observer = _LinkObserver(self.link)

    def condition(self, now_ms: int, *, time_requests: bool) -> Condition:
        """Return the channel's part of its condition, with the link's."""
        found = super().condition(now_ms, time_requests=time_requests)
        return found._replace(follower=self.link.follower, leaving_out=self.link.leaving_out())

    def reconsider(self) -> None:
        """Apply changed quotas, or switched enforcement."""
        super().reconsider()
        self.requests.reconsider()
