"""DescribeClientQuotas and AlterClientQuotas, versions 0-1 (KIP-546).

Behavior: Sluice responds with its own quotas; the requests are not forwarded. Parsing 10,000 alterations, searching
100,000 entities, and disk access all take longer than a channel may block the loop. So the request goes to the shell,
which parses it, checks permissions, validates it, and responds later. If the brokers' quotas are mirrored, both APIs
are forwarded; with SASL, so is a request before authentication, which a broker refuses by closing.

Version notes: 1 is flexible. A later version was never offered, and its layout is unknown.
"""

from protocol.header import RequestHead
from proxy.channel.direction import Buffer, ChannelDirection, Question, check_version, copied, fields_of
from proxy.channel.errors import REQUEST_BYTES_MAX
from proxy.channel.settings import ANONYMOUS


def request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Handle a request of the quota API: give it to the shell for a response, or forward it to the broker.

    Returns 0 to forward the request, or an `Order`.
    """
    length, key, version, correlation_id, _ = head
    state = direction.state
    settings = state.settings
    if not settings.serves_quota_api or (settings.sasl and state.user == ANONYMOUS):
        state.in_flight.append((correlation_id, version, None))
        return 0
    check_version(head)
    if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
        return direction.verdict.order
    frame_end = pos + 4 + length
    fields_at = fields_of(buf, body, frame_end, head)
    user = state.user
    trusted = settings.trusted and user == ANONYMOUS
    frame = copied(buf, pos, frame_end)
    address = settings.address
    state.respond_later(
        Question(key, version, correlation_id, frame, fields_at - pos, user, trusted, address=address)
    )
    state.stats.requests[key] += 1
    direction.verdict.signal = True
    return direction.replace(length + 4, b"")
