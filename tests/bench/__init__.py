"""Benchmarks of the data path and of the quotas' accuracy, on real brokers; never part of `make test`.

`python -m tests.bench` is `make bench`, `python -m tests.bench.accuracy` is `make accuracy`.
"""

__all__: list[str] = []
