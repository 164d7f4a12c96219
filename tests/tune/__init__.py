"""The loop closed on a real cluster: known demand, capture, Spark, recommendation, applied, and sent again.

loop        the five steps, a recording's requests sent again as their clients did, and what is compared at the end
__main__    `make tune-demo`: shows them
"""

__all__: list[str] = []
