"""Rate limiters: the arithmetic that turns bytes or counts, a limit and the time into a wait.

    limiter         the interface of a limiter: decisions, flows of channels, shares of a limit
    rate            Kafka's sampled windows (KIP-13)
    sampled         a process's share of a limit over these windows
    bucket          the token bucket of KIP-599
    kip13           policy `kip13`: Kafka's arithmetic for one identity
    schedule        policy `schedule`: one virtual schedule (`gcra`) for each identity
    fair_queue      start-time fair queueing among the channels of one identity
    announced       Produce requests that are charged before their bytes have arrived
    under_way       Fetch requests that are at their brokers
    batches         the batches that a channel was given, and a max_bytes that ends with a whole one
    gcra            the virtual schedule of policy `schedule`
    virtual_time    what enforcement would have cost, while quotas are only observed: time, and bytes left to send

A limiter knows no definitions and no clock: limit and time are arguments.
"""
