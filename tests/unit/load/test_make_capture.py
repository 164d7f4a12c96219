"""The shipped synthetic capture is what its script makes."""

from collections import Counter

import pyarrow.parquet as pq

from offline.replay.reading import capture_files, read
from offline.replay.schedule import plan
from protocol.api import FETCH, PRODUCE
from tests.load.make_capture import DIRECTORY, SECONDS, rows


def test_shipped_file_is_what_the_script_makes() -> None:
    (path,) = capture_files([DIRECTORY])
    assert pq.read_table(path).to_pylist() == rows()


def test_shipped_capture_can_be_planned() -> None:
    planned = plan(read(capture_files([DIRECTORY])), 1.0)
    assert SECONDS - 1 < planned.seconds < SECONDS
    assert planned.left_out == 0
    keys = Counter(send.request.api_key for send in planned.sends)
    # 4 × 20 + 60 / 3 + 30 Produce/s for 30 s; 10 Fetch/s for 15 s and 3 × 10 for 30 s
    assert 0.9 < keys[PRODUCE] / (130 * 30) < 1.1
    assert 0.9 < keys[FETCH] / (10 * 15 + 30 * 30) < 1.1
