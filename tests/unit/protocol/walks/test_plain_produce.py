"""A plain Produce is read as a walk reads it; other requests are left to the walk."""

import pytest

from protocol.walks.captured import CapturedProduceWalk, PlainProduce
from tests.support.batches import batch
from tests.support.frames import produce_to
from tests.unit.protocol.walks.test_captured import noted, with_batches


def with_one_batch(version: int, size: int, records: int) -> bytes:
    return with_batches(produce_to(version, {"a": [size]}), size, batch(records, size))


BODY = 14 + len("a")


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("size", [61, 125, 126, 127, 128, 16_381, 16_382, 16_383, 50_000, 3_000_000])
def test_plain_produce_gives_the_same_as_a_walk(version: int, size: int) -> None:
    frame = with_one_batch(version, size, 7)
    walked = noted(CapturedProduceWalk, version, frame)
    plain = PlainProduce()
    for _ in range(2):
        found = plain.read(frame, BODY, len(frame), len(frame), version)
        assert found == (walked if size < 2_000_000 else None)  # whose size takes four bytes
    for limit in range(BODY, min(len(frame), 300)):
        found = PlainProduce().read(frame, BODY, limit, len(frame), version)
        assert found is None or found == walked


def test_plain_produce_with_another_beginning_gives_the_same_as_a_walk() -> None:
    plain = PlainProduce()
    for version, acks in ((12, 1), (12, 1), (12, 0), (9, 1), (13, 1), (12, 1)):
        size = 100 + version + acks
        frame = with_batches(produce_to(version, {"a": [size]}, acks=acks), size, batch(3, size))
        walked = noted(CapturedProduceWalk, version, frame)
        assert plain.read(frame, BODY, len(frame), len(frame), version) == walked
    assert plain.read(produce_to(12, {"b": [100, 100]}), BODY, 300, 300, 12) is None


def test_other_produce_is_left_to_the_walk() -> None:
    transactional = bytearray(with_one_batch(9, 100, 7))
    transactional[16] = 2
    old_magic = with_batches(produce_to(12, {"a": [100]}), 100, batch(9, 100, magic=1))
    two_batches = with_batches(produce_to(12, {"a": [200]}), 200, batch(3, 70), batch(40, 130))
    tagged = with_one_batch(12, 100, 7)[:-1] + bytes((1, 0, 1, 9))
    frames = {8: [with_one_batch(8, 100, 7)], 9: [bytes(transactional)]}
    frames[12] = [
        old_magic,
        two_batches,
        tagged,
        produce_to(12, {"a": [100]}),
        produce_to(12, {"a": [100, 5]}),
    ]
    frames[12] += [produce_to(12, {}), produce_to(12, {"a": []}), produce_to(12, {"a": [70], "b": [70]})]
    for version, those in frames.items():
        for frame in those:
            assert PlainProduce().read(frame, BODY, len(frame), len(frame), version) is None, frame
