"""Rate limiters: the arithmetic that turns bytes or counts, a limit and the time into a wait.

    rate            Kafka's sampled windows (KIP-13)
    sampled         a process's share of a limit over these windows
    bucket          the token bucket of KIP-599
    kip13           policy `kip13`: Kafka's arithmetic for one identity
    schedule        policy `schedule`: one virtual schedule (`gcra`) for each identity
    fair_queue      start-time fair queueing among the channels of one identity
    flow            a limiter's state of one channel in one direction; the interface of a limiter
    announced       Produce requests that are charged before their bytes have arrived
    under_way       Fetch requests that are at their brokers
    policy          creates the limiter of the policy in force
    gcra            the virtual schedule of policy `schedule`
    virtual_time    the time that would have passed with enforcement, while quotas are only observed
    backlog         the bytes that clients would have left to send with enforcement
    lending         the interfaces by which several processes share a limit

A limiter knows no definitions and no clock: limit and time are arguments.
"""

from quotas.limiters.bucket import TokenBucket
from quotas.limiters.kip13 import SampledLimiter
from quotas.limiters.rate import SampledRate
from quotas.limiters.schedule import ScheduledLimiter

__all__ = ["SampledLimiter", "SampledRate", "ScheduledLimiter", "TokenBucket"]
