"""Members of a fleet and its holder: how shares of quotas are leased over TCP (docs/decisions/0012).

    messages    the messages of holder and members, their frames and signatures
    facts       settings and quotas that must be equal in all members, and in what members differ: pure
    port        the holder's port: members' connections, and refused ones
    client      a member's connection to the holder
    calls       members' requests to the holder that are not about shares
    ends        finds out at once that a process of the fleet has ended
    secret      the fleet's secret, as its file has it now
    election    the choice of the holder by a Kafka group, and what members say in it, signed: pure
    elected     membership of that group; the only module here that needs aiokafka
    fleet       one member, as configured

Shares are computed in `quotas.sharing`.
"""

from proxy.fleet.client import FleetClient
from proxy.fleet.port import HolderPort

__all__ = ["FleetClient", "HolderPort"]
