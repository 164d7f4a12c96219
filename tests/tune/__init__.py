"""The loop closed on a real cluster: known demand, capture, Spark, recommendation, applied, and sent again.

loop        the five steps, a recording's requests sent again as their clients did, and what is compared at the end
__main__    `make tune-demo`: shows them
week        `make week`: seven short days, of which the last two have the advice of the first five
"""

__all__: list[str] = []
