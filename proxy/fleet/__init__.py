"""Members of a fleet and its holder: how shares of quotas are leased over TCP (docs/decisions/0012).

    codec       reports, grants, refusals <-> bytes: pure
    view        the fleet as the holder shows it to its members: pure
    facts       settings and quotas that must be alike in all members: pure
    disagreements   the facts in which members differ: pure
    sendable    reports within the protocol's bounds: pure
    frames      length and signature around a message
    leasing     what a connection serves: the shares of one process, or of one with its workers
    port        the holder's port
    acceptor    the sockets under it, and TLS handshakes
    refusals    refused connections, counted and logged
    client      a member's connection to the holder
    calls       questions of members to the holder that are not about shares
    state       what a member knows of its fleet, as values of JSON: pure
    fleet       one member, as configured
    standing    which member is the holder, by a Kafka group: pure
    group       membership of that group; the only module here that needs aiokafka
    elected     connects the group with the port

Shares are computed in `quotas.sharing`.
"""

from proxy.fleet.client import FleetClient
from proxy.fleet.leasing import Leasing
from proxy.fleet.port import HolderPort

__all__ = ["FleetClient", "HolderPort", "Leasing"]
