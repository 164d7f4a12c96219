"""Why a client waits: where its connections' time goes, and by which quota (`sluice explain`, `/v1/clients`).

    parts        the seven parts of a connection's time
    windows      sums over the last 10 s, minute and quarter of an hour
    condition    what a connection does at an instant, as the shell tells it
    watch        visits connections in turn, and attributes their time
    waiting      clients that begin to wait for more than half of their time, and end
    predicted    the waits that would have been, while quotas are only observed
    latencies    brokers' response times, by requests and by time
    under_way    requests that brokers have had for long
    own_time     what Sluice needs itself
    waits        how long clients have waited for quotas, as sums that never fall
    wait_views   the same for metrics
    rules        a quota that has throttled: its entity, its value
    wants        the rate a throttled client would take, and what other limits would do
    explanation  one client's time, rule, neighbours and wants as a document
    facts        what the sentence is made of
    sentence     the document in a few sentences
    prospect     what would be if quotas were enforced, in a sentence
    causes       of these, what no quota is to blame for

Time is sampled: each visit attributes the time since the last one to what the connection does now. Holds and mutes are
measured exactly, and subtracted before. So the parts always add up to the whole, and a request costs nothing.
Nothing here knows sockets or the clock.
"""
