"""Sockets: what carries out a channel's orders. The only package that reads, writes and waits on behalf of
clients.
"""

from proxy.net.connection import Connection
from proxy.net.connections import Connections, end_owner
from proxy.net.listener import Listener
from proxy.net.shared import Answered, Shared, Withdraw, now_ms

__all__ = ["Answered", "Connection", "Connections", "Listener", "Shared", "Withdraw", "end_owner", "now_ms"]
