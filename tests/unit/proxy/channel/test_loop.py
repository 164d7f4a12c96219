"""No frame holds the loop: what is large is read by a job, what is long is walked and looked through in parts.

The times are measured and written down by `python -m tests.bench.loop_table`; the bound here is far above them, so that
it says no more than that nothing is read on the loop that takes a hundred times as long as it should.
"""

import pytest

from tests.support.worst_frames import CASES, KIB, Case, run

LOOP_MS_MAX = 25.0
SIZE = 200 * KIB


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}: {case.what}")
def test_worst_frame_is_not_read_on_the_loop(case: Case) -> None:
    taken = run(case.make(min(SIZE, case.bytes_max - 400)))
    assert taken.ended == case.ends
    assert taken.loop_ms < LOOP_MS_MAX


def test_partitions_of_a_long_topology_are_not_derived_on_the_loop() -> None:
    (case,) = (case for case in CASES if case.name.startswith("StreamsGroupHeartbeat"))
    assert run(case.make(SIZE)).loop_ms < 8
