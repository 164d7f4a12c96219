"""The loop closed on a real cluster: known demand, capture, Spark, recommendation, applied, and sent again.

closed_loop   sends a recording's requests again, each connection waiting as its client did
loop          the five steps, and what is compared at the end
__main__      `make tune-demo`: shows them
"""

__all__: list[str] = []
