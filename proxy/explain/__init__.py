"""Explains why a client waits: the parts of its connections' time, and the quota (`sluice explain`, `/v1/clients`).

    parts        the seven parts of a connection's time
    windows      sums over the last 10 s, minute and quarter of an hour
    watch        visits connections in turn, and attributes their time to parts
    waiting      events of clients that begin or end to wait for more than half of their time
    predicted    the waits with enforcement, while quotas are only observed
    latencies    brokers' response times, by requests and by time
    under_way    requests that brokers have had for longer than the time between visits
    own_time     Sluice's own CPU time and delays
    waits        the time that clients have waited for quotas, as sums that never decrease
    wait_views   these sums as rows for metrics
    rules        a quota that has throttled: its entity and value
    wants        the rate that a throttled client would take, and its waits with other limits
    explanation  one client's time, rule, neighbours and wants as a document
    facts        the input of the sentence
    sentence     the document in a few sentences
    prospect     the sentence about the waits with enforcement
    causes       the clauses about time that is not spent waiting for a quota
    seen         the response of one process to a query, and the sum of several
    report       one process's figures of a client, and of brokers

Time is sampled: each visit attributes the time since the last visit to what the connection does at this visit. Holds
and mutes are measured exactly, and subtracted first. So the parts always add up to the whole, and requests cost
nothing. This package uses no sockets and no clock.
"""
