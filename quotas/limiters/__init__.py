"""Rate limiters: the arithmetic that turns bytes or counts, a limit and the time into a wait.

    rate            Kafka's sampled windows (KIP-13)
    sampled         a limit over these windows, of which a process has a share
    bucket          the token bucket of KIP-599
    kip13           policy `kip13`: Kafka's arithmetic for one identity
    schedule        policy `schedule`: one virtual schedule for each identity
    fair_queue      start-time fair queueing among the channels of one identity
    flow            what a limiter remembers of one channel in one direction
    announced       Produce requests that are charged before their bytes have arrived
    under_way       Fetch requests that are at their brokers
    policy          the limiter of the policy in force

A limiter knows no definitions and no clock: limit and time are arguments.
"""

from quotas.limiters.bucket import TokenBucket
from quotas.limiters.kip13 import SampledThrottle
from quotas.limiters.rate import SampledRate
from quotas.limiters.schedule import ScheduledThrottle

__all__ = ["SampledRate", "SampledThrottle", "ScheduledThrottle", "TokenBucket"]
