"""The journal in a topic with a secret: forged and repeated records move nothing, and a foreign fence is overcome."""

import pytest
from msgspec.structs import replace

from proxy.control.reassign.journal import Ended, EndedTotals, Entry, JournalError, Term
from proxy.control.reassign.topic_journal import FENCE, write_fence, write_records
from proxy.topics.records import Record, Seal
from tests.support.journal_topics import SimulatedTopic

SEAL = Seal(b"s" * 32, "journal", "__journal")
ONE = Entry("t", 0, "id", (1, 2), (3, 4))
TWO = Entry("t", 1, "id", (1, 2), (3, 4))


def always() -> int:
    return 1


def never() -> int:
    return 0


def forged(*entries: Entry) -> list[Record]:
    return write_records(entries, Term(99, "eve"), EndedTotals(), 10**9)


def records(topic: SimulatedTopic) -> list[Record]:
    return [record for _, record in topic.records]


def test_forged_and_repeated_records_change_nothing() -> None:
    topic = SimulatedTopic()
    journal = topic.journal("me", always, seal=SEAL)
    assert journal.take()
    journal.append([Term(1, "me"), ONE])
    old = records(topic)[-2:]
    state = journal.append([Ended(*ONE.key, "done", 100), TWO])
    topic.append(
        [*forged(ONE, replace(TWO, target=(5, 6))), write_fence("eve"), *old, Record(b"move/t/1", None)]
    )
    assert journal.held
    after = journal.read()
    assert (after.entries, after.term, after.sequence) == ({TWO.key: TWO}, state.term, state.sequence + 2)
    assert (journal.records["unsigned"], journal.records["replayed"]) == (5, 2)
    # It has written over them what is in force, so compaction leaves that.
    started = topic.journal("other", never, seal=SEAL).read()
    assert (started.entries, started.term) == ({TWO.key: TWO}, state.term)
    assert journal.held


def test_moves_of_an_earlier_version_are_taken_over_once_and_unsure() -> None:
    topic = SimulatedTopic()
    before = topic.journal("old", always)
    before.take()
    before.append([Term(4, "old"), ONE])
    journal = topic.journal("me", always, seal=SEAL)
    assert journal.read().entries == {ONE.key: ONE}
    assert journal.take()
    state = journal.read()
    assert (state.entries, state.term) == ({ONE.key: replace(ONE, unsure=True)}, Term(4, "old"))
    topic.append(forged(TWO))
    assert topic.journal("other", never, seal=SEAL).read().entries == state.entries
    assert journal.append([TWO]).entries.keys() == {ONE.key, TWO.key}


def test_forged_moves_before_the_first_signed_fence_are_void_after_it() -> None:
    topic = SimulatedTopic()
    journal = topic.journal("me", always, seal=SEAL)
    journal.take()
    journal.append([Term(1, "me"), ONE])
    state = journal.read()
    signed = records(topic)
    topic.records = []
    topic.end = 0
    topic.append([*forged(ONE, TWO), *signed])
    started = topic.journal("other", never, seal=SEAL).read()
    assert (started.entries, started.term, started.sequence) == (state.entries, state.term, state.sequence)


def test_fence_of_another_client_is_noticed_and_overcome(caplog: pytest.LogCaptureFixture) -> None:
    """InitProducerId with the journal's transactional id, at a broker: no record comes with it."""
    topic = SimulatedTopic()
    journal = topic.journal("me", always, alone=True, seal=SEAL)
    journal.take()
    journal.append([Term(1, "me")])
    for times in range(1, 4):
        topic.epoch += 1
        with pytest.raises(JournalError, match="another process appends"):
            journal.append([ONE], term=1)
        assert not journal.held
        assert journal.take()
        assert journal.fenced == times
    assert journal.append([ONE], term=1).entries == {ONE.key: ONE}
    assert caplog.text.count("fenced by a client that is not of the fleet") == 1


def test_holder_whose_clock_is_behind_begins_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = SimulatedTopic()
    monkeypatch.setattr("time.time_ns", lambda: 9 * 10**18)
    first = topic.journal("first", always, seal=SEAL)
    second = topic.journal("second", always, seal=SEAL)
    second.read()
    first.take()
    first.append([Term(1, "first"), ONE])
    monkeypatch.setattr("time.time_ns", lambda: 10**18)
    assert second.take()
    assert second.append([TWO]).entries.keys() == {ONE.key, TWO.key}
    assert records(topic)[0].key == FENCE
