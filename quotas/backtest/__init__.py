"""The same rules, compiled, over recorded requests, for the offline pipeline. Only this package needs numpy and numba.

    recording               one identity's recorded requests as arrays, from rows in nearly any order
    outcomes                what each candidate limit would have done to them
    fluid                   how long a client would wait with a limit, from its bytes by second
    capacity                how long clients would wait that share a capacity, likewise
    compiler                how functions are compiled, and kept between processes
    compiled_loop           the closed loop that repeats a recording
    compiled_kip13          `quotas.limiters.kip13`, on arrays
    compiled_schedule       `quotas.limiters.schedule`, on arrays
    compiled_fair_queue     `quotas.limiters.fair_queue`, on arrays

Each module of `quotas.limiters` and its compiled copy have the same order of operations: change both together.

Non-obvious:

- The backtest's rules exist twice, and only there. `quotas/backtest/compiled_kip13.py`,
  `quotas/backtest/compiled_fair_queue.py` and `quotas/backtest/compiled_schedule.py` are
  `quotas/limiters/kip13.py`, `quotas/limiters/fair_queue.py` and `quotas/limiters/schedule.py` with the same order
  of operations on arrays. Change both together; `tests/property/test_backtest.py` fails otherwise. They are
  compiled without numba's run time, so they cannot allocate. `capacity` divides as `quotas/sharing/capacities.py`
  does (`tests/property/test_shared_capacity.py`).
- A limiter's requests are sequential, its candidates are not. One heavy client's rows go to several Spark tasks,
  each with a part of the candidates.
"""
