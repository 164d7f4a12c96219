"""The bench of the pipeline reads times as the pipeline prints them."""

import pytest

from commandline.amounts import duration
from tests.bench.offline import stage_seconds


@pytest.mark.parametrize(
    ("seconds", "read"), [(0.25, 0.25), (59.94, 59.9), (60.0, 60.0), (163.2, 163.0), (3_725.0, 3_720.0)]
)
def test_time_of_a_stage_is_read_as_printed(seconds: float, read: float) -> None:
    text = f"a line before\ningest: done in {duration(seconds)}\nreport: done in 5.7 s\n"
    assert stage_seconds(text) == {"ingest": read, "report": 5.7}
