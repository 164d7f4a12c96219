"""DescribeClientQuotas and AlterClientQuotas, versions 0-1 (KIP-546).

Behavior: answered from Sluice's own quotas, and no broker sees them. Reading 10,000 alterations, finding entities
among 100,000, and a file on a disk all take longer than a channel may hold others up, so the request goes to the
shell as it is, and its answer is owed later. What is asked, who may ask, and what is wrong with it is judged there.
Where the brokers' own quotas are mirrored, both pass on; and where brokers ask for SASL, what comes before it does,
since a broker closes on that.

Version notes: 1 is flexible. A later one was never offered, and would be answered in a layout we do not know.
"""

from protocol.api import API_NAMES, MAX_VERSION, flexible
from protocol.errors import TruncatedError
from protocol.header import RequestHead
from proxy.channel.bounds import REQUEST_BYTES_MAX
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer, Question
from proxy.channel.settings import ANONYMOUS
from proxy.channel.side import Side, copied, skip_header_tags

__all__ = ["request"]


def request(side: Side, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int) -> int:
    """Have the request answered here, or pass it on."""
    length, key, version, correlation_id, _ = head
    state = side.state
    settings = state.settings
    if not settings.answers_quotas or (settings.sasl and state.user == ANONYMOUS):
        state.in_flight.append((correlation_id, version, None))
        return 0
    if not 0 <= version <= MAX_VERSION[key]:
        raise PeerError("unsupported_version", f"{API_NAMES[key]} version {version}")
    if not side.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
        return side.verdict.order
    frame_end = pos + 4 + length
    fields_at = skip_header_tags(buf, body, frame_end, flexible=flexible(key, version))
    if fields_at is None:
        raise TruncatedError(f"{API_NAMES[key]} of {length} bytes ends before its fields do")
    user = state.user
    trusted = settings.trusted and user == ANONYMOUS
    frame = copied(buf, pos, frame_end)
    address = settings.address
    state.answer_later(
        Question(key, version, correlation_id, frame, fields_at - pos, user, trusted, address=address)
    )
    state.stats.requests[key] += 1
    side.verdict.signal = True
    return side.replace(length + 4, b"")
