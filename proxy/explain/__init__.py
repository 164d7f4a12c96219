"""Explains why a client waits: the parts of its connections' time, and the quota (`sluice explain`, `/v1/clients`).

    parts        the seven parts of a connection's time, their sums over three windows, and amounts in words
    watch        visits connections in turn, and attributes their time to parts
    latencies    brokers' response times; Sluice's own CPU time and delays; waits, real and predicted, as sums
    waiting      events of clients that begin or end to wait for more than half of their time; waits for metrics
    rules        a quota that has throttled, its entity and value; the clients' rates, and who shares a budget
    wants        the rate that a throttled client would take, and its waits with other limits
    report       one process's figures of a client, and of brokers; the sum of several processes'
    budgets      the limits that match clients, and the table of all limits
    documents    the documents of /v1 as structs, for their writer and all readers
    explanation  one client's time, rule, neighbours and wants as a document
    sentence     the document in a few sentences

Time is sampled: each visit attributes the time since the last visit to what the connection does at this visit. Holds
and mutes are measured exactly, and subtracted first. So the parts always add up to the whole, and requests cost
nothing. This package uses no sockets and no clock.
"""
