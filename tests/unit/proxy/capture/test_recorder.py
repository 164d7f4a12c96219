"""The loop's end of capture: sampling by connection, batches, and the bound of the queue."""

import pytest

from proxy.capture import recorder as module
from proxy.capture.recorder import Batch, Recorder
from proxy.channel import BATCH_WEIGHT, NOT_KEPT, Tap
from proxy.system.stats import CaptureStats
from tests.unit.proxy.capture.rows import row


def recorder(sample: float = 1.0, process: str = "p") -> tuple[Recorder, CaptureStats]:
    stats = CaptureStats()
    return Recorder(process, sample, stats), stats


def handed_over(made: Recorder) -> Batch:
    batch = made.queue.get_nowait()
    assert batch is not None
    return batch


def test_connections_are_numbered() -> None:
    made, _ = recorder()
    assert [made.tap("10.0.0.1", "clients") for _ in range(2)] == [
        Tap(made, 1, "10.0.0.1", "clients", "off", 1.0),
        Tap(made, 2, "10.0.0.1", "clients", "off", 1.0),
    ]


def test_sample_is_a_share_of_connections_and_of_whole_ones() -> None:
    made, _ = recorder(0.25)
    taken = [tap.connection for _ in range(10_000) if (tap := made.tap("10.0.0.1", "clients"))]
    assert 2300 < len(taken) < 2700
    other, _ = recorder(0.25)
    again = [tap.connection for _ in range(10_000) if (tap := other.tap("10.0.0.1", "clients"))]
    assert taken == again


def test_sample_differs_between_runs() -> None:
    taken = []
    for process in ("p", "q"):
        made, _ = recorder(0.5, process)
        taken.append([made.tap("10.0.0.1", "clients") is not None for _ in range(100)])
    assert taken[0] != taken[1]


def test_batch_takes_the_rows_and_an_empty_one_is_not_handed_over() -> None:
    made, _ = recorder()
    made.add(row())
    made.full()
    assert handed_over(made).rows == 1
    made.full()
    assert made.queue.empty()


def test_rows_that_find_no_place_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_WEIGHT_MAX", 2 * 7)
    made, stats = recorder()
    for _ in range(5):
        made.add(row())
        made.add(row())
        made.left -= 7
        made.full()
    assert (made.queue.qsize(), stats.dropped["queue"]) == (2, 3 * 2)
    batch = handed_over(made)
    made.add(row())
    made.left -= 1
    made.full()
    assert stats.dropped["queue"] == 7  # it is under way, and not done
    made.taken(batch)
    made.add(row())
    made.left -= 7
    made.full()
    assert (made.queue.qsize(), stats.dropped["queue"]) == (2, 7)


def test_weight_without_rows_counts_for_the_next_batch() -> None:
    made, _ = recorder()
    made.left -= 5
    made.full()
    made.add(row())
    made.full()
    batch = handed_over(made)
    assert (batch.weight, made.left) == (5, BATCH_WEIGHT)


def test_rows_are_not_dropped_for_client_ids_that_owe_theirs() -> None:
    made, stats = recorder()
    made.left -= 10 * module.QUEUE_WEIGHT_MAX
    made.add(row())
    made.full()
    assert (made.queue.qsize(), stats.dropped["queue"]) == (1, 0)


def test_frames_have_room_from_their_begin_until_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 157 + 4
    monkeypatch.setattr(module, "FRAMES_BYTES_MAX", 2 * size)
    stats = CaptureStats()
    made = Recorder("p", 1.0, stats, "keep")
    assert [made.reserve(size) for _ in range(3)] == [True, True, False]
    assert stats.frames_left_out == 1
    for frame in (bytes(size), bytearray(), NOT_KEPT):  # one was cut short
        made.add([*row(), frame])
    made.full()
    assert not made.reserve(1)
    batch = handed_over(made)
    made.taken(batch)
    assert made.reserve(2 * size)
    monkeypatch.setattr(module, "QUEUE_WEIGHT_MAX", -1)
    made.add([*row(), bytes(size)])
    made.add([*row(), bytes(size)])
    made.full()
    assert made.reserve(2 * size)  # those of rows that are dropped are not kept
