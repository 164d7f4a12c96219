"""Large frames are parsed by a job that the shell runs; what comes back belongs to exactly that frame."""

import pytest

from protocol.errors import TruncatedError
from proxy.channel import AGAIN, WAIT, Job
from proxy.channel.direction import AT_ONCE_BYTES_MAX
from tests.support.playbook import channel_machine

SMALL = bytes(AT_ONCE_BYTES_MAX)
LARGE = bytes(AT_ONCE_BYTES_MAX + 1)


def length(frame: bytes, more: int = 0) -> int:
    return len(frame) + more


def cut(_frame: bytes) -> int:
    raise TruncatedError("ends before it should")


def broken(_frame: bytes) -> int:
    raise KeyError("a bug of ours")


def taken(side_job: Job | None) -> Job:
    assert side_job is not None
    return side_job


def test_small_frame_is_parsed_at_once() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, SMALL) == AT_ONCE_BYTES_MAX
    assert direction.take_job() is None


def test_large_frame_waits_for_its_job_and_is_parsed_once() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, LARGE, 5) is None
    assert (direction.verdict.order, direction.verdict.until_ms) == (WAIT, 0)
    job = taken(direction.take_job())
    assert direction.parse(length, LARGE, 5) is None  # shown again for another reason
    assert direction.take_job() is None  # nothing new is to be done
    job.run()
    assert direction.parse(length, LARGE, 5) == AT_ONCE_BYTES_MAX + 6
    assert direction.parse(length, LARGE, 5) is None  # the next one just like it


def test_result_is_never_taken_for_another_frame() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, LARGE) is None
    taken(direction.take_job()).run()
    assert direction.parse(length, LARGE + b"x") is None
    taken(direction.take_job()).run()
    assert direction.parse(length, LARGE + b"x", 1) is None
    taken(direction.take_job()).run()
    assert direction.parse(length, LARGE + b"x", 1) == AT_ONCE_BYTES_MAX + 3


@pytest.mark.parametrize(("function", "error"), [(cut, TruncatedError), (broken, KeyError)])
def test_exception_of_a_parser_is_raised_to_its_caller(function: type, error: type[Exception]) -> None:
    direction = channel_machine().responses
    assert direction.parse(function, LARGE) is None
    taken(direction.take_job()).run()
    with pytest.raises(error):
        direction.parse(function, LARGE)


def test_next_turn_is_a_job_without_work() -> None:
    direction = channel_machine().responses
    direction.next_turn()
    assert direction.verdict.order == WAIT
    assert direction.take_job() is AGAIN
    AGAIN.run()


def test_what_was_parsed_is_not_kept_over_a_mute() -> None:
    direction = channel_machine().requests
    assert direction.parse(length, LARGE) is None
    job = taken(direction.take_job())
    assert job.kept_bytes == len(LARGE)
    job.run()
    direction.wait(1000, held=False)
    assert direction.parse(length, LARGE) is None
    assert direction.take_job() is not job
