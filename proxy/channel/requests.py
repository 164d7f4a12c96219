"""The direction client → broker: parses each request's header and calls its API's handler, if any; the rest passes.

For most requests this is one `struct` unpack, one comparison of the client id, one dict look-up and one tuple for the
owed response. Payloads are never read; a Produce is walked around its payload if topics have quotas.

A connection counts against its user's connection rate at its first request other than ApiVersions and SASL requests:
before, its user is unknown. If necessary that request waits.
"""

from abc import ABC
from collections.abc import Callable
from typing import Final, TypeAlias

from protocol.api import API_NAMES, API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from protocol.header import REQUEST_HEAD, RequestHead
from proxy.channel.direction import NS_PER_MS, Buffer, ChannelDirection, ChannelState, charge_produced
from proxy.channel.errors import PeerError, unreadable_length
from proxy.channel.guard import GUARDED_HANDLERS
from proxy.channel.handlers import REQUEST_HANDLERS
from proxy.channel.handlers.sasl import REQUEST_FOLLOWS, bare_token
from proxy.channel.handlers.share import waits_muted
from proxy.channel.settings import ANONYMOUS
from proxy.channel.verdict import BARE_TOKENS_MAX, MORE, PASS, REPLACE, WALK, Intake, Verdict
from proxy.system.stats import API_KEYS_MAX
from quotas.engine import CLIENT_ID_CHARACTERS_MAX
from quotas.limiters.limiter import Flow

# The parsing and validation of a request header, for clients and followers.

HEAD_BYTES: Final = REQUEST_HEAD.size  # 14
_LENGTH_MIN: Final = HEAD_BYTES - 4


class RequestReader(ChannelDirection, ABC):
    """The base class of the directions that read requests: a client's and a follower's.

    Attributes:
        counts: the number of requests by API key, and of all with unknown keys.
        length_max: the longest request, without its length prefix.
    """

    __slots__ = ("counts", "length_max")

    too_long = "frame_length"

    def __init__(self, state: ChannelState) -> None:
        super().__init__(state)
        self.counts = state.stats.requests
        self.length_max = state.settings.frame_bytes_max

    def owe_unchanged(self, key: int, version: int, correlation_id: int) -> None:
        """Register that a response is owed to a request that is forwarded unchanged, and count the request.

        Raises:
            PeerError: the API is unknown, in a gateway, or if Sluice has topics or groups of its own.
        """
        settings = self.state.settings
        if key not in API_NAMES and (settings.address_map is not None or settings.own is not None):
            # Its response may contain addresses that bypass the proxy, or the request a name of Sluice's own; a broker
            # would close the connection too.
            raise PeerError("unknown_api", f"API key {key}, version {version}")
        self.state.in_flight.append((correlation_id, version, None))
        self.counts[key if 0 <= key < API_KEYS_MAX else API_KEYS_MAX] += 1

    def check_header(self, buf: Buffer, pos: int, head: RequestHead) -> None:
        """Validate the header at `pos`.

        Raises:
            PeerError: it is not a valid header.
        """
        length, client_id_length = head[0], head[4]
        self._check_length(buf, pos, length)
        if not -1 <= client_id_length <= length - _LENGTH_MIN:
            raise PeerError("malformed", f"client id of {client_id_length} bytes in a frame of {length}")

    def handle_short_header(self, buf: Buffer, pos: int, end: int) -> None:
        """Set the order if fewer bytes are left than a header has: PASS if none are, otherwise MORE.

        Raises:
            PeerError: the length prefix is invalid.
        """
        if pos == end:
            self.verdict.order = PASS
            return
        if end - pos >= 4:
            self._check_length(buf, pos, int.from_bytes(buf[pos : pos + 4], "big", signed=True))
        self.verdict.need = HEAD_BYTES
        self.verdict.order = MORE

    def _check_length(self, buf: Buffer, pos: int, length: int) -> None:
        if not _LENGTH_MIN <= length <= self.length_max:
            raise unreadable_length(bytes(buf[pos : pos + 4]), length, self.length_max)


_HEAD: Final = REQUEST_HEAD.unpack_from  # length, API key, version, correlation id, length of the client id
Handled: TypeAlias = "Callable[[RequestDirection, Buffer, int, int, int, RequestHead, int], int]"
_BEFORE_USER: Final = frozenset((API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE))


class RequestDirection(RequestReader):
    """The direction from the client to the broker: reads requests, and calls the handler of each one's API."""

    __slots__ = ("_client_id", "_client_id_length", "_handled", "_handler_of")

    def __init__(self, state: ChannelState, handled: Handled) -> None:
        """Create the request direction of a client's channel.

        Args:
            handled: called after every handled request, unless requests of this identity are known not to be measured;
                returns 0, or the order MORE to have the request handled again.
        """
        super().__init__(state)
        self._handled = handled
        # Bound once, and not looked up for each request.
        self._handler_of = (REQUEST_HANDLERS if state.settings.own is None else GUARDED_HANDLERS).get
        self._client_id = b""
        self._client_id_length = -1  # no request was seen yet, or the last one had no client id

    def receive(self, buf: Buffer, start: int, end: int, now_ns: int) -> Verdict:  # noqa: C901, PLR0912 - a call a frame costs 5 %
        """Decide what to do with bytes from the client (`Direction.receive`); returns the verdict."""
        verdict, state = self.verdict, self.state
        if verdict.insert:
            verdict.insert = b""
        state.now_ns = now_ns
        now_ms, pos = now_ns // NS_PER_MS, start
        if verdict.passthrough or self.walk is not None:
            pos = self._continue_frame(buf, start, end, now_ms)
            if verdict.passthrough or self.walk is not None:
                verdict.passing = pos - start
                return verdict
        in_flight, version_now, handler_of = state.in_flight, state.engine.version, self._handler_of
        while True:
            if state.mute_until_ms > now_ms and self._wait_muted(buf, pos, end):
                break
            if len(in_flight) >= state.in_flight_max:
                size = self._handle_closed_intake(buf, pos, end)
                if not size:
                    break
                if size != REQUEST_FOLLOWS:
                    pos += size
                    continue
            if end - pos < HEAD_BYTES:
                self.handle_short_header(buf, pos, end)
                break
            head: RequestHead = _HEAD(buf, pos)
            length, key, version, correlation_id, client_id_length = head
            body = pos + HEAD_BYTES + client_id_length
            next_pos = pos + 4 + length
            if not (  # the usual case: a complete header with the same client id as the last one
                client_id_length == self._client_id_length >= 0
                and end >= body <= next_pos
                and length <= self.length_max
                and buf.startswith(self._client_id, pos + HEAD_BYTES)
                and state.identity is not None
            ):
                body = self._identify(buf, pos, end, head, now_ms)
                if not body:
                    break
            handler = handler_of(key)
            if handler is None:
                self.owe_unchanged(key, version, correlation_id)
            else:
                order = handler(self, buf, pos, end, body, head, now_ms)
                if order:
                    if order != WALK:
                        if order == REPLACE and verdict.drop and state.unmeasured_version is not version_now:
                            self._handled(self, buf, pos, end, body, head, now_ms)
                        break
                    next_pos = self._walk_on(buf, pos, end, now_ms)
                    if self.mid_frame():
                        self.counts[key] += 1
                        if state.unmeasured_version is not version_now:
                            self._handled(self, buf, pos, end, body, head, now_ms)
                        pos = next_pos
                        break
                self.counts[key] += 1
            if state.unmeasured_version is not version_now and self._handled(
                self, buf, pos, end, body, head, now_ms
            ):
                self.counts[key] -= 1  # it will be handled again
                break
            pos = next_pos
            if pos > end or (pos == end and state.mute_until_ms <= now_ms):
                verdict.passthrough = pos - end
                verdict.order = PASS
                pos = end
                break
        verdict.passing = pos - start
        return verdict

    def passed(self, count: int, now_ns: int) -> None:
        """Register progress, as `ChannelDirection.passed` does.

        If the request was charged before its bytes arrived, also count these bytes as arrived.
        """
        super().passed(count, now_ns)
        if count and self._charged_flow is not None:
            self._note_arrival(self._charged_flow, count)

    def _continue_frame(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        """Continue the request under way; returns where it stops, and sets the order unless the request is over."""
        flow = self._charged_flow
        if flow is None:
            return self._forward_rest(buf, pos, end, now_ms)
        if self.recharge_due(now_ms) and self._recharge(flow, now_ms):
            return pos
        passed = self._forward_rest(buf, pos, end, now_ms)
        self._note_arrival(flow, passed - pos)
        return passed

    def recharge_due(self, now_ms: int) -> bool:
        """Whether the shell must call `receive` before it forwards more of a partly forwarded request.

        True if its missing bytes are late: their charge was given back, and has to be made again.
        """
        flow, identity = self._charged_flow, self.state.identity
        if flow is None:
            return False
        if identity is not None and identity.produce is flow:
            identity.quota.produce.bytes_arrived(flow, now_ms)
        return flow.lost > 0

    def _forward_rest(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        if self.verdict.passthrough > 0:
            pos = self.skip_passthrough(pos, end)
            if self.verdict.passthrough:
                self.verdict.order = PASS
                return pos
        return pos if self.walk is None else self._walk_on(buf, pos, end, now_ms)

    def _note_arrival(self, flow: Flow, count: int) -> None:
        """Count `count` bytes of a request that was charged at its header as arrived."""
        flow.announced -= count
        if flow.announced <= 0 and not flow.lost:
            self.charge_ahead(None)
            identity = self.state.identity
            if identity is not None:
                identity.quota.produce.request_arrived(flow)

    def _recharge(self, flow: Flow, now_ms: int) -> int:
        """Charge the late rest of a request again; returns 0, or the order that holds it."""
        state = self.state
        identity = state.identity
        if identity is None or identity.produce is not flow:  # the client has another user by now (KIP-368)
            self.charge_ahead(None)
            return 0
        throttle = identity.quota.produce
        decision = throttle.produce_rest(flow, now_ms)
        if decision.hold_until_ms > now_ms:
            return self.wait(decision.hold_until_ms, held=True)
        if decision.refused:
            return self.refuse("late")
        if decision.throttle_ms:
            state.mute(throttle, decision.throttle_ms, now_ms)
        return 0

    def _walk_on(self, buf: Buffer, pos: int, end: int, now_ms: int) -> int:
        """Continue the walk through the request; returns where it stops, and sets the order unless the walk is over."""
        walk = self.walk
        assert walk is not None, "a walk is under way"
        verdict = self.verdict
        self.moved_ns = self.state.now_ns
        pos += walk.feed(buf, pos, end, None)
        verdict.passthrough = walk.passthrough  # of bytes after the buffer's end
        verdict.order = PASS
        if walk.done:
            self.walk = None
            charge_produced(self.state, walk, now_ms, response_owed=self.response_owed)
        elif walk.full:
            charge_produced(self.state, walk, now_ms, response_owed=self.response_owed)
            self.next_turn()
        elif walk.paused:
            self.next_turn()
        elif not walk.passthrough and pos < end:
            verdict.need = end - pos + 1
            verdict.order = MORE
        if self.state.observer is not None:
            self.state.observer.walked(self, walk, now_ms)
        return pos

    def _wait_muted(self, buf: Buffer, pos: int, end: int) -> bool:
        """Whether the next bytes wait until the mute ends (KIP-219); acknowledgements do not (KIP-932)."""
        if self.state.uses_share_fetch:
            return waits_muted(self, buf, pos, end)
        self.wait(self.state.mute_until_ms, held=False)
        return True

    def _handle_closed_intake(self, buf: Buffer, pos: int, end: int) -> int:
        """Handle bytes while no request may be handled: too many responses are owed, or a SASL exchange is under way.

        Returns the size of a bare token that passes, REQUEST_FOLLOWS if a request follows, or 0 with an order.
        """
        state = self.state
        if state.forward is not None:
            self.replace(0, state.forward)
            state.forward = None
            return 0
        if state.intake is Intake.BARE_TOKENS and len(state.in_flight) < BARE_TOKENS_MAX:
            return bare_token(self, buf, pos, end)
        if state.intake.in_exchange and pos == end:
            self.verdict.order = PASS
            return 0
        self.await_responses()
        return 0

    def _identify(self, buf: Buffer, pos: int, end: int, head: RequestHead, now_ms: int) -> int:
        """Make the client id of this header the identity; returns where it ends, 0 with an order if it is incomplete.

        Raises:
            PeerError: it is not a valid header.
        """
        self.check_header(buf, pos, head)
        _, key, _, _, client_id_length = head
        body = pos + HEAD_BYTES + max(client_id_length, 0)
        if body > end:
            self.verdict.need = body - pos
            self.verdict.order = MORE
            return 0
        self._client_id = bytes(buf[pos + HEAD_BYTES : body])
        self._client_id_length = client_id_length
        self.state.identify(self._client_id, now_ms)
        if client_id_length > CLIENT_ID_CHARACTERS_MAX:  # too long to be kept on every connection
            self._client_id = self._client_id[:CLIENT_ID_CHARACTERS_MAX]
            self._client_id_length = -1
        return body if self.state.counted else self._count_connection(key, body, now_ms)

    def _count_connection(self, key: int, body: int, now_ms: int) -> int:
        """Count the connection against its user's rate; returns `body`, or 0 with an order if the request waits.

        Raises:
            PeerError: the client must authenticate first, as in brokers: nothing is charged to a user before.
        """
        state = self.state
        if key in _BEFORE_USER:
            self._client_id_length = -1  # parse the header of the next request in full
            return body
        if state.settings.sasl and state.user == ANONYMOUS:
            raise PeerError("unauthenticated", f"{API_NAMES.get(key, key)} before the SASL exchange")
        state.count_connection(now_ms)
        if state.mute_until_ms <= now_ms:
            return body
        self.wait(state.mute_until_ms, held=False)
        return 0
