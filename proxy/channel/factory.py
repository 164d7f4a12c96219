"""Create the channel for a connection: a client's, a captured client's, or a follower's."""

from protocol.messages.fetch_session import SessionTable
from proxy.channel.capture_rows import Tap
from proxy.channel.captured import capture
from proxy.channel.channel import Channel, Machine
from proxy.channel.replication import ReplicationChannel
from proxy.channel.settings import ChannelSettings
from proxy.system.stats import Stats
from quotas.engine import Engine


def channel_for(
    settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats, tap: Tap | None = None
) -> Machine:
    """Create the channel of a connection, with its observer: decided once, so that a plain client has none.

    Args:
        tap: the destination of captured requests; None without capture.
    """
    if settings.replication is not None:
        return ReplicationChannel(settings, engine, sessions, stats)
    channel = Channel(settings, engine, sessions, stats)
    if tap is not None:
        capture(channel, tap)
    return channel
