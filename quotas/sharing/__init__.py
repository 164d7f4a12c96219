"""Leases: shares of rates for several processes, so that together they never exceed them.

    lease_values    what lessor and lessee have agreed on, and their messages: reports and grants
    lessor          leases the shares of all keys, divided by weighted max-min fairness: the holder of a fleet, and each
                    member for its workers
    lessee          the shares of one process
    budgets         the shares in this process's limiters, and their demands
    capacities      what promised rates leave of a capacity, divided among its classes as loans
    followers       the same for followers' quotas (KIP-73)
    member          lessee and lessor in one: leases to its workers what the holder has leased to it

Bytes on the wire and sockets are in `proxy.fleet`. The safety argument is decision 0012.
"""
