"""DescribeConfigs 0-4 and DescribeQuorum 0-2: responses that also contain addresses of brokers and controllers.

Behavior: in a gateway, broker configs that hold addresses are returned like sensitive configs, without a value, and
voters without their listeners; otherwise a client could bypass the proxy. A sidecar's responses and those that are not
about a broker are forwarded unchanged. Ignored: the values of all other configs.
"""

from typing import Final

from protocol.api import API_NAMES, DESCRIBE_CONFIGS, DESCRIBE_QUORUM, MAX_VERSION, flexible
from protocol.header import RequestHead
from protocol.messages import addresses
from proxy.channel.bounds import REQUEST_BYTES_MAX
from proxy.channel.direction import ChannelDirection, copied, skip_header_tags
from proxy.channel.errors import PeerError
from proxy.channel.in_flight import Buffer
from proxy.channel.rewriting import Rewritten

_WITHOUT_ADDRESSES: Final = {
    DESCRIBE_CONFIGS: Rewritten(DESCRIBE_CONFIGS, addresses.configs_without_addresses),
    DESCRIBE_QUORUM: Rewritten(DESCRIBE_QUORUM, addresses.quorum_without_addresses),
}


def configs_request(
    direction: ChannelDirection, buf: Buffer, pos: int, end: int, body: int, head: RequestHead, _now_ms: int
) -> int:
    """Owe a response; a gateway examines it if a broker's configs are requested."""
    length, key, version, correlation_id, _ = head
    owed = None
    if direction.state.settings.address_map is not None:
        _check_version(head)
        if not direction.whole(end - pos, length, REQUEST_BYTES_MAX[key]):
            return direction.verdict.order
        frame_end = pos + 4 + length
        fields_at = skip_header_tags(buf, body, frame_end, flexible=flexible(key, version))
        if fields_at is None:
            raise PeerError(
                "malformed", f"DescribeConfigs version {version} of {length} bytes ends in its header"
            )
        asks = direction.parse(addresses.names_broker, copied(buf, pos, frame_end), fields_at - pos, version)
        if asks is None:
            return direction.verdict.order
        owed = _WITHOUT_ADDRESSES[key] if asks else None
    direction.state.in_flight.append((correlation_id, version, owed))
    return 0


def quorum_request(
    direction: ChannelDirection,
    _buf: Buffer,
    _pos: int,
    _end: int,
    _body: int,
    head: RequestHead,
    _now_ms: int,
) -> int:
    """Owe a response; a gateway removes the addresses from it."""
    _, key, version, correlation_id, _ = head
    owed = None
    if direction.state.settings.address_map is not None:
        _check_version(head)
        owed = _WITHOUT_ADDRESSES[key] if version >= addresses.ENDPOINTS_SINCE else None
    direction.state.in_flight.append((correlation_id, version, owed))
    return 0


def _check_version(head: RequestHead) -> None:
    _, key, version, _, _ = head
    if not 0 <= version <= MAX_VERSION[key]:
        raise PeerError("unsupported_version", f"{API_NAMES[key]} version {version}")
