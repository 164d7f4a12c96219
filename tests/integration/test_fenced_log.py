"""Appends to a topic by one process at a time, on real brokers: the last one to begin fences the others."""

import secrets
from collections.abc import Iterator

import pytest

from proxy.topics.log import TopicLog
from proxy.topics.records import AppendError, Record
from proxy.topics.topic import Access, LoopThread, TopicSpec
from proxy.topics.writers import FencedLog
from tests.cluster import Cluster
from tests.support.waiting import until

SECONDS = 20.0


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    found = LoopThread("fenced")
    yield found
    found.close()


def read_all(log: TopicLog, offset: int) -> list[Record]:
    """What is read up to an offset."""
    found: list[Record] = []
    position = 0
    while position < offset:
        portion = log.inbox.take(SECONDS)
        assert portion is not None, f"read to {position} of {offset}"
        found += portion.records
        position = portion.next_offset
    return found


def test_last_one_to_begin_fences_those_before_it(kafka: Cluster, thread: LoopThread) -> None:
    name = f"__fenced-{secrets.token_hex(4)}"
    access = Access([(host, port) for host, port in map(kafka.address, range(1, 4))])
    log = TopicLog(thread, access, TopicSpec(name), committed=True)
    log.start()
    until(lambda: log.tried and log.problem is None, "the topic is read")
    first, second = (FencedLog(thread, access, name, name) for _ in range(2))
    with pytest.raises(AppendError, match="not write"):
        first.append([Record(b"k", b"0")]).result(SECONDS)
    first.begin().result(SECONDS)
    offset = first.append([Record(b"k", b"1"), Record(b"l", b"1")]).result(SECONDS)
    assert [(one.key, one.value) for one in read_all(log, offset)] == [(b"k", b"1"), (b"l", b"1")]
    second.begin().result(SECONDS)
    with pytest.raises(AppendError, match="another process appends"):
        first.append([Record(b"k", b"2")]).result(SECONDS)
    assert not first.open
    with pytest.raises(AppendError, match="not write"):
        first.append([Record(b"k", b"3")]).result(SECONDS)
    offset = second.append([Record(b"k", b"4")]).result(SECONDS)
    assert [(one.key, one.value) for one in read_all(log, offset)] == [(b"k", b"4")], "not fenced"
    second.end().result(SECONDS)
