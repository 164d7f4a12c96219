"""Leases: shares of one rate for several processes, so that together they never exceed it (KIP-73 with sidecars).

    terms       what the processes have agreed on, and their requests and responses as values
    book        the lease holder: which process may use which share until when
    peer        one process: its limits by the leases that it holds
    demand      what a process asks for, from its recent rates

Bytes on the wire and sockets are in `proxy.leases`. The safety argument is decision 0007.
"""

from quotas.sharing.book import LeaseBook
from quotas.sharing.demand import Demands
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import LeaseTerms

__all__ = ["Demands", "LeaseBook", "LeasePeer", "LeaseTerms"]
