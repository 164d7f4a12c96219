"""Which machine a connection gets, decided once, so that what only some need costs the others nothing."""

from protocol.messages.fetch_session import SessionTable
from proxy.channel.capture_rows import Tap
from proxy.channel.captured import CapturedChannel
from proxy.channel.channel import Channel
from proxy.channel.contract import Machine
from proxy.channel.replication import ReplicationChannel
from proxy.channel.settings import ChannelSettings
from proxy.stats import Stats
from quotas.engine import Engine

__all__ = ["channel_for"]


def channel_for(
    settings: ChannelSettings, engine: Engine, sessions: SessionTable, stats: Stats, tap: Tap | None = None
) -> Machine:
    """Make the channel of a connection: of a follower, of a client, or of a client whose requests are captured."""
    if settings.replication is not None:
        return ReplicationChannel(settings, engine, sessions, stats)
    if tap is not None:
        return CapturedChannel(settings, engine, sessions, stats, tap)
    return Channel(settings, engine, sessions, stats)
