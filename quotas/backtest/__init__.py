"""The same rules, compiled, over recorded requests, for the offline pipeline. Only this package needs numpy and numba.

    recording               one identity's recorded requests as arrays
    outcomes                what each candidate limit would have done to them
    compiler                how functions are compiled, and kept between processes
    compiled_loop           the closed loop that repeats a recording
    compiled_kip13          `quotas.limiters.kip13`, on arrays
    compiled_schedule       `quotas.limiters.schedule`, on arrays
    compiled_fair_queue     `quotas.limiters.fair_queue`, on arrays
    reference               the engine itself over the same recording: what the compiled form is tested against

Each module of `quotas.limiters` and its compiled copy have the same order of operations: change both together.
"""

from quotas.backtest.outcomes import Outcome, Outcomes, backtest
from quotas.backtest.recording import Recording

__all__ = ["Outcome", "Outcomes", "Recording", "backtest"]
