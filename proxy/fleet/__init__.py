"""Members of a fleet and its holder: how shares of quotas are leased over TCP (docs/decisions/0012).

    codec       reports, grants, refusals <-> bytes: pure
    view        the fleet as the holder shows it to its members: pure
    facts       settings and quotas that must be equal in all members: pure
    disagreements   the facts in which members differ: pure
    sendable    reports within the protocol's bounds: pure
    frames      length and signature around a message
    leasing     the interface of the shares that a connection serves: of a process, or of a process with workers
    port        the holder's port
    acceptor    the sockets of the holder's port, and TLS handshakes
    refusals    refused connections, counted and logged
    client      a member's connection to the holder
    calls       members' requests to the holder that are not about shares
    state       the state of the fleet as a member knows it, as values of JSON: pure
    fleet       one member, as configured
    secret      the fleet's secret, as its file has it now
    standing    the choice of the holder by a Kafka group: pure
    statements  what members of that group say, signed: pure
    group       membership of that group; the only module here that needs aiokafka
    elected     connects the group with the port

Shares are computed in `quotas.sharing`.
"""

from proxy.fleet.client import FleetClient, Leasing
from proxy.fleet.port import HolderPort

__all__ = ["FleetClient", "HolderPort", "Leasing"]
