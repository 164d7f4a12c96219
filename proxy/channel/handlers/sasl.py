"""SaslHandshake 0-1 and SaslAuthenticate 0-2: learns the client's principal (KIP-43, KIP-152, KIP-368).

Behavior: every frame is forwarded byte for byte in both directions. The principal is valid from the broker's success
response on; a refused exchange has no effect. An exchange proceeds step by step: requests that are pipelined after a
token wait for the broker's response, since the user is unknown until then. A second exchange on the same connection is
handled in the same way: Kafka refuses a changed principal, so the broker's response decides here too. The lifetime of
the session limits mutes, since a broker closes the connection for a request after it.
With an unreadable mechanism, the user is unknown from the first response without an error on. The last response cannot
be recognized, so every later one is read too, for errors and the session's lifetime. `quotas.unknown_users` defines the
quotas of unknown users. A previously known user stays known, since a broker does not let a connection change its user.
Ignored: the broker's list of mechanisms.

Version notes: after SaslHandshake 0 both sides send bare frames (length and token) until the exchange is over. A bare
token has no mark that distinguishes it from a request, only its position: readable mechanisms have a fixed number of
tokens; the others (GSSAPI) may end with a token without a response, so after the first token, a frame that begins like
a request is a request. A token without a handshake (GSSAPI in clients of 0.9) is not supported.

Non-obvious:

- A SASL exchange goes step by step. Requests that a client pipelines after a token wait for the broker's response to
  it; otherwise they would pass without a user and without a quota. `proxy.channel.verdict` has the states; in each but
  one `in_flight_max` is 0, so that the check of every request is one comparison.
- SASL tokens may have no Kafka header (SaslHandshake 0). They are recognized by their place in the exchange; with
  mechanisms that Sluice cannot read, by not looking like a request, and their last response may never come. After
  16 tokens without a response, the next one waits.
"""

from dataclasses import dataclass
from typing import Final

from protocol.api import MAX_VERSION, SASL_AUTHENTICATE
from protocol.header import REQUEST_HEAD, RequestHead
from protocol.messages import sasl
from protocol.messages.sasl_exchange import SaslExchange
from proxy.channel.direction import (
    BARE_TOKEN,
    Buffer,
    ChannelDirection,
    Entry,
    Owed,
    check_version,
    fields_of,
)
from proxy.channel.errors import REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX, PeerError
from proxy.channel.verdict import MORE, PASS, Intake

# The user of a connection with an unreadable principal: only client-id quotas apply to it.
UNKNOWN_USER: Final = ""
# The user instead, if such connections together get the default user's quotas, or those of an entry of their own.
UNREAD_USER: Final = "<unknown>"
REQUEST_FOLLOWS: Final = -1  # in place of a bare token's size: the exchange is over and a request follows

# Requests from clients that are not authenticated yet.
_TOKEN_BYTES_MAX: Final = REQUEST_BYTES_MAX[SASL_AUTHENTICATE]
_RESPONSE_BYTES_MAX: Final = RESPONSE_BYTES_MAX[SASL_AUTHENTICATE]
_HANDSHAKE_RESPONSE_BYTES: Final = 10  # length, correlation id, error code
_BARE_TOKEN_VERSION: Final = 0


@dataclass(slots=True, eq=False)
class _ExchangeStep(Owed):
    """The broker's response to one step of an exchange."""

    exchange: SaslExchange


class _HandshakeResponse(_ExchangeStep):
    """The broker's response to a SaslHandshake."""

    __slots__ = ()

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, _now_ms: int
    ) -> int:
        """Begin the exchange, or end it if the broker does not support the mechanism."""
        if end - pos < _HANDSHAKE_RESPONSE_BYTES:
            return direction.order_more(end - pos, direction.frame_bytes - 4)
        if sasl.handshake_error(buf, pos, end):
            _end_exchange(direction, self.exchange, "failed")
        else:
            _continue_exchange(
                direction, Intake.BARE_TOKENS if entry[1] == _BARE_TOKEN_VERSION else Intake.OPEN
            )
        return 0


class _AuthenticateResponse(_ExchangeStep):
    """The broker's response to a SaslAuthenticate."""

    __slots__ = ()

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, entry: Entry, now_ms: int
    ) -> int:
        """Read the broker's result of a token: the exchange continues, has succeeded, or has failed."""
        length = direction.frame_bytes - 4
        if not direction.whole(end - pos, length, _RESPONSE_BYTES_MAX):
            return direction.verdict.order
        verdict = sasl.verdict(buf, pos, pos + 4 + length, entry[1])
        exchange = self.exchange
        if verdict.error_code:
            _end_exchange(direction, exchange, "failed")
        elif not exchange.readable:
            _accept_unreadable(direction, exchange, now_ms)
            direction.state.begin_session(verdict.session_lifetime_ms, now_ms)
            _continue_exchange(direction, Intake.OPEN)
        elif exchange.succeeded(buf, verdict.start, verdict.stop):
            _authenticate(direction, exchange, now_ms)
            direction.state.begin_session(verdict.session_lifetime_ms, now_ms)
        else:
            _continue_exchange(direction, Intake.OPEN)
        return 0


class _BareTokenResponse(_ExchangeStep):
    """The broker's response to a bare token; a bare token itself."""

    __slots__ = ()

    def respond(
        self, direction: ChannelDirection, buf: Buffer, pos: int, end: int, _entry: Entry, now_ms: int
    ) -> int:
        """Read the broker's token without a Kafka header; a broker that refuses closes the connection instead."""
        length = direction.frame_bytes - 4
        if not direction.whole(end - pos, length, _RESPONSE_BYTES_MAX):
            return direction.verdict.order
        exchange = self.exchange
        if not exchange.readable:
            _accept_unreadable(direction, exchange, now_ms)
        elif exchange.succeeded(buf, pos + 4, pos + 4 + length):
            _authenticate(direction, exchange, now_ms)
        else:
            _continue_exchange(direction, Intake.BARE_TOKENS)
        return 0


def handshake_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle SaslHandshake: begin an exchange with its mechanism, and forward it.

    Returns 0 to forward the request, or an `Order`.
    """
    if not _whole(direction, end - pos, head):
        return direction.verdict.order
    length, _, version, correlation_id, _ = head
    state = direction.state
    state.sasl = SaslExchange(sasl.mechanism(buf, body, pos + 4 + length))
    state.enter(Intake.AWAIT_BROKER)
    state.in_flight.append((correlation_id, version, _HandshakeResponse(state.sasl)))
    return 0


def authenticate_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle SaslAuthenticate: read the user's name from its token, if a handshake came before, and forward it.

    Returns 0 to forward the request, or an `Order`.
    """
    if not _whole(direction, end - pos, head):
        return direction.verdict.order
    length, _, version, correlation_id, _ = head
    state = direction.state
    frame_end = pos + 4 + length
    start, stop = sasl.token_span(buf, fields_of(buf, body, frame_end, head), frame_end, version)
    exchange = state.sasl
    if exchange is None:
        state.in_flight.append((correlation_id, version, None))
        return 0
    exchange.read_token(buf, start, stop, state.settings.oauth_claim)
    state.enter(Intake.AWAIT_BROKER)
    state.in_flight.append((correlation_id, version, _AuthenticateResponse(exchange)))
    return 0


def bare_token(direction: ChannelDirection, buf: Buffer, pos: int, end: int) -> int:
    """Handle a SASL token without a Kafka header at `pos` (after SaslHandshake version 0).

    Returns:
        The token's size with its length prefix; 0 with an order if it is incomplete; REQUEST_FOLLOWS if a Kafka request
        is there instead.
    """
    have = end - pos
    if have < 4:
        return _await_bytes(direction, have, 4)
    length = int.from_bytes(buf[pos : pos + 4], "big", signed=True)
    state = direction.state
    exchange = state.sasl
    assert exchange is not None, "a token without a header belongs to an exchange"
    if exchange.tokens and not exchange.readable and length + 4 >= REQUEST_HEAD.size:
        if have < REQUEST_HEAD.size:
            return _await_bytes(direction, have, REQUEST_HEAD.size)
        if _begins_request(buf, pos, length):
            state.sasl = None
            _continue_exchange(direction, Intake.OPEN)
            return REQUEST_FOLLOWS
    if not 0 <= length <= _TOKEN_BYTES_MAX:
        raise PeerError("frame_length", f"SASL token of {length} bytes, at most {_TOKEN_BYTES_MAX} are kept")
    if not direction.whole(have, length, _TOKEN_BYTES_MAX):
        return 0
    exchange.read_token(buf, pos + 4, pos + 4 + length, state.settings.oauth_claim)
    if exchange.readable:
        state.enter(Intake.AWAIT_BROKER)
    state.in_flight.append((BARE_TOKEN, _BARE_TOKEN_VERSION, _BareTokenResponse(exchange)))
    state.stats.requests[SASL_AUTHENTICATE] += 1
    return length + 4


def _whole(direction: ChannelDirection, have: int, head: RequestHead) -> bool:
    """Whether the request is complete and in a known version; if not, the order is MORE."""
    check_version(head)
    return direction.whole(have, head[0], REQUEST_BYTES_MAX[head[1]])


def _await_bytes(direction: ChannelDirection, have: int, need: int) -> int:
    """Order MORE (PASS without any bytes) until `need` bytes of a bare token have arrived; returns 0."""
    direction.verdict.need = need
    direction.verdict.order = MORE if have else PASS
    return 0


def _begins_request(buf: Buffer, pos: int, length: int) -> bool:
    """Whether a Kafka request begins here: GSSAPI tokens begin with 0x60 or 0x05, or are empty."""
    head: RequestHead = REQUEST_HEAD.unpack_from(buf, pos)
    _, key, version, _, client_id_length = head
    return (
        0 <= version <= MAX_VERSION.get(key, -1) and -1 <= client_id_length <= length + 4 - REQUEST_HEAD.size
    )


def _accept_unreadable(direction: ChannelDirection, exchange: SaslExchange, now_ms: int) -> None:
    """Accept an unknown user after any response without an error; the exchange stays open, as its end is unknown."""
    if exchange.tokens == 1:
        direction.state.stats.sasl[exchange.label, "unknown"] += 1
    _set_unknown_user(direction, exchange, now_ms)


def _authenticate(direction: ChannelDirection, exchange: SaslExchange, now_ms: int) -> None:
    """Set the principal that the broker has authenticated, if its name could be read."""
    name = exchange.name
    _end_exchange(direction, exchange, "unknown" if name is None else "known")
    if name is None:
        _set_unknown_user(direction, exchange, now_ms)
    else:
        direction.state.set_user(name, now_ms)


def _set_unknown_user(direction: ChannelDirection, exchange: SaslExchange, now_ms: int) -> None:
    """Apply `quotas.unknown_users` to an authenticated but unreadable principal, unless one was known before."""
    state = direction.state
    if state.authenticated:
        return
    rule = state.engine.options.unknown_users
    if rule == "refuse":
        raise PeerError("unknown_user", f"{exchange.label}: its principal cannot be read from the exchange")
    state.set_user(UNREAD_USER if rule == "default" else UNKNOWN_USER, now_ms)


def _end_exchange(direction: ChannelDirection, exchange: SaslExchange, result: str) -> None:
    """End the exchange and forget its state."""
    direction.state.stats.sasl[exchange.label, result] += 1
    direction.state.sasl = None
    _continue_exchange(direction, Intake.OPEN)


def _continue_exchange(direction: ChannelDirection, intake: Intake) -> None:
    """Continue with the next bytes, which may be in the buffer already, unless the intake has ended."""
    state = direction.state
    if state.intake.in_exchange:
        state.enter(intake)
        if state.awaits_responses:
            state.awaits_responses = False
            direction.verdict.signal = True
