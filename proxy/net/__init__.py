"""The sockets of clients and brokers: carries out the channels' verdicts. Only this package reads and writes them."""

from proxy.net.connection import Connection
from proxy.net.connections import Connections, end_owner
from proxy.net.listener import Listener, refuse_taken_ports
from proxy.net.shared import Ask, Outcome, OutcomeCallback, Shared, Withdraw, nothing_to_withdraw

__all__ = [
    "Ask",
    "Connection",
    "Connections",
    "Listener",
    "Outcome",
    "OutcomeCallback",
    "Shared",
    "Withdraw",
    "end_owner",
    "nothing_to_withdraw",
    "refuse_taken_ports",
]
