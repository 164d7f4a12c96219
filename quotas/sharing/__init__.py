"""Leases: shares of rates for several processes, so that together they never exceed them.

    lease_values    what lessor and lessee have agreed on, and their messages: reports and grants
    fill            a budget divided by weighted max-min fairness
    key_shares      the shares of one key
    lessor          leases the shares of all keys: the holder of a fleet, and each member for its workers
    lessee          the shares of one process
    budgets         the shares in this process's limiters, and their demands
    followers       the same of followers' quotas (KIP-73)
    member          both: what the holder leases to a member, leased on to its workers

Those of followers' quotas, which come before them (KIP-73 with sidecars):

    terms       what the processes have agreed on, and their requests and responses as values
    book        the lease holder: which process may use which share until when
    peer        one process: its limits by the leases that it holds
    demand      what a process asks for, from its recent rates

Bytes on the wire and sockets are in `proxy.leases`. The safety argument is decision 0007.
"""

from quotas.sharing.book import LeaseBook
from quotas.sharing.demand import Demands
from quotas.sharing.lease_values import Grants, LesseeId, Report
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.member import Member
from quotas.sharing.peer import LeasePeer
from quotas.sharing.terms import LeaseTerms

__all__ = [
    "Demands",
    "Grants",
    "LeaseBook",
    "LeasePeer",
    "LeaseTerms",
    "Lessee",
    "LesseeId",
    "Lessor",
    "Member",
    "Report",
]
