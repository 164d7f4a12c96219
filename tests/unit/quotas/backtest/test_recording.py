"""How the closed loop is read off recorded rows."""

import numpy as np

from quotas.backtest.compiler import Ints
from quotas.backtest.outcomes import backtest
from quotas.backtest.recording import Assembly, Recording, Rows, pack, recording_of
from quotas.options import EngineOptions


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def fetches(at_us: Ints, sizes: Ints, service_us: Ints, throttle_us: Ints) -> Recording:
    return recording_of(
        connection=np.zeros(len(at_us), np.int64),
        at_us=at_us,
        sizes=sizes,
        service_us=service_us,
        throttle_us=throttle_us,
        consumes=True,
    )


def test_channels_follow_connections() -> None:
    made = recording_of(
        connection=ints(3, 3, 9),
        at_us=ints(10, 500, 20),
        sizes=ints(1, 2, 3),
        service_us=ints(5, 5, 5),
        consumes=False,
    )
    assert made.offsets.tolist() == [0, 2, 3]
    assert made.first_us.tolist() == [10, 20]
    assert made.gap_us.tolist() == [485, 0, 0]  # 500 - (10 + 5)


def test_recorded_mute_and_hold_are_no_think_time() -> None:
    made = recording_of(
        connection=ints(1, 1),
        at_us=ints(0, 2_300_000),
        sizes=ints(1, 1),
        service_us=ints(1000, 1000),
        throttle_us=ints(2_000_000, 0),
        delay_us=ints(0, 100_000),
        consumes=False,
    )
    assert made.gap_us.tolist() == [200_000, 0]  # it came at 2.2 s, and had been told to wait until 2 s


def test_a_request_behind_a_mute_counts_as_not_pipelined() -> None:
    made = recording_of(
        connection=ints(1, 1),
        at_us=ints(0, 2_000_000),
        sizes=ints(1, 1),
        service_us=ints(1000, 1000),
        throttle_us=ints(2_000_000, 0),
        delay_us=ints(0, 2_000_000),
        consumes=False,
    )
    assert made.gap_us.tolist() == [0, 0]


def test_fetches_that_get_empty_responses_are_left_out() -> None:
    # At 0 answered; at 1 s throttled for 3 s; at 4 s again, answered. Thought: 0.9 s, then nothing.
    made = fetches(
        ints(0, 1_000_000, 4_000_000, 5_000_000),
        ints(100, -1, 200, 300),
        ints(100_000, -1, 100_000, 100_000),
        ints(0, 3_000_000, 0, 0),
    )
    assert made.sizes.tolist() == [100, 200, 300]
    assert made.gap_us.tolist() == [900_000, 900_000, 0]


def test_a_first_fetch_that_gets_an_empty_response_comes_when_it_would_have() -> None:
    made = fetches(ints(1_000_000, 4_500_000), ints(-1, 200), ints(-1, 0), ints(3_000_000, 0))
    assert made.first_us.tolist() == [1_500_000]  # half a second of thought, and no mute
    assert made.sizes.tolist() == [200]


def test_nothing_that_got_a_response_is_nothing_to_decide() -> None:
    made = fetches(ints(0), ints(-1), ints(-1), ints(0))
    assert len(made) == 0
    assert backtest(made, [1.0], EngineOptions(), start_s=0, seconds=1).each[0].decisions == 0


def test_overlapping_runs_of_a_connection_are_no_recording() -> None:
    def rows(limiter: int, *seq: int) -> Rows:
        seqs = ints(*seq)
        zero = np.zeros_like(seqs)
        return Rows(zero + limiter, zero, seqs, seqs * 10, zero, zero, zero, zero, zero, zero > 0)

    assembly = Assembly()
    assembly.add(pack(rows(1, 0, 2, 4)))  # one run from 0 to 4
    assembly.add(pack(rows(2, 0, 1)))
    assembly.add(pack(rows(1, 3)))  # in the midst of it
    assembly.add(pack(rows(2, 2)))
    assert assembly.runs == 4
    found = dict(assembly.recordings())
    assert found[1] is None
    assert found[2] is not None
    assert found[2].gap_us.tolist() == [10, 10, 0]
