"""The journal in a topic: who may append, what is read back, what is refused."""

import pytest
from msgspec.structs import replace

from proxy.control.reassign.journal import (
    ConflictError,
    DamagedError,
    Ended,
    EndedTotals,
    Entry,
    FencedError,
    JournalError,
    LineError,
    Term,
)
from proxy.control.reassign.topic_journal import (
    FENCE,
    TopicJournal,
    read_key,
    read_value,
    write_fence,
    write_records,
)
from proxy.topics.records import Problem, Record
from tests.support.journal_topics import SimulatedLog, SimulatedTopic, SimulatedWriter

ONE = Entry("t", 0, "id", (1, 2), (3, 4))
TWO = Entry("t", 1, "id", (1, 2), (3, 4))


def always() -> int:
    return 1


def test_only_the_holder_takes_over_and_appends() -> None:
    topic = SimulatedTopic()
    tenure = 0
    journal = topic.journal("me", lambda: tenure)
    assert not journal.take()
    with pytest.raises(JournalError, match="not this one"):
        journal.append([ONE])
    tenure = 1
    assert journal.take()
    state = journal.append([Term(1, "me"), ONE])
    assert (state.entries, state.term) == ({ONE.key: ONE}, Term(1, "me"))
    tenure = 2  # it was the holder, was not, and is again: another process may have executed in between
    assert not journal.held
    with pytest.raises(FencedError):
        journal.append([], term=1)
    assert journal.take()


def test_what_others_have_read_counts() -> None:
    topic = SimulatedTopic()
    journal, reader = topic.journal("me", always), topic.journal("other", lambda: 0)
    journal.take()
    state = journal.append([Term(1, "me"), ONE])
    assert journal.append([TWO], expected=state.sequence).sequence > state.sequence
    with pytest.raises(ConflictError):
        journal.append([TWO], expected=state.sequence)
    with pytest.raises(FencedError):
        journal.append([TWO], term=7)
    assert reader.read() == journal.read()
    assert reader.read() is reader.read(), "nothing has changed"
    assert reader.holder() == "me"


def test_totals_are_the_same_however_much_was_compacted() -> None:
    topic = SimulatedTopic()
    journal = topic.journal("me", always)
    journal.take()
    journal.append([Term(1, "me"), ONE, TWO])
    journal.append([Ended(*ONE.key, "done", 100)])
    journal.append([replace(TWO, cancelled=True)])
    assert journal.read().ended_totals == EndedTotals(1, 0, 2, 100)
    assert topic.journal("other", always).read() == journal.read()
    journal.append([Ended(*TWO.key, "cancelled")])
    assert topic.journal("other", always).read() == journal.read()
    assert journal.append([ONE]).ended_totals == EndedTotals(), "new moves after none are counted from zero"


def test_empty_append_in_a_term_asks_the_fence() -> None:
    topic = SimulatedTopic()
    one, other = topic.journal("one", always), topic.journal("other", always)
    one.take()
    one.append([Term(1, "one")])
    topic.epoch += 1  # fenced, and nothing of it is to be read yet
    with pytest.raises(JournalError, match="another process appends"):
        one.append([], term=1)
    assert not one.held
    assert other.take()


def test_topic_that_is_read_again_replaces_what_was_known() -> None:
    topic = SimulatedTopic()
    log = SimulatedLog(topic)
    journal = TopicJournal(log, SimulatedWriter(topic), "me", always, alone=False)
    journal.take()
    journal.append([Term(1, "me"), ONE, TWO])
    before = journal.read()
    topic.compact()
    log.again()
    assert journal.read() == before


def test_problem_of_the_topic_is_the_journals() -> None:
    topic = SimulatedTopic()
    topic.problem = Problem(
        "cleanup_policy", "topic __journal has cleanup.policy=delete, and must have compact"
    )
    journal = topic.journal("me", always)
    for act in (journal.read, journal.take, lambda: journal.append([ONE])):
        with pytest.raises(JournalError, match=r"cleanup\.policy=delete"):
            act()
    assert journal.problem == topic.problem
    topic.problem = None
    topic.write_problem = Problem("denied", "no Write")
    with pytest.raises(JournalError, match="no Write"):
        journal.take()
    assert topic.journal("other", lambda: 0).read().entries == {}, "it may be read by others"


def test_fence_that_is_denied_is_the_problem_of_the_holder_until_it_has_begun() -> None:
    topic, tenure = SimulatedTopic(), 1
    journal = topic.journal("me", lambda: tenure)
    topic.fence_problem = Problem("denied", "an ACL denies Write on transactional id __journal")
    with pytest.raises(JournalError, match="transactional id __journal"):
        journal.take()
    seen = [journal.problem]
    tenure = 0
    seen.append(journal.problem)  # it need not write any more
    assert seen == [topic.fence_problem, None]
    tenure = 2
    topic.fence_problem = None
    assert journal.take()
    assert journal.problem is None


def test_damaged_records_are_replaced_and_readable_ones_are_unsure() -> None:
    topic = SimulatedTopic()
    journal = topic.journal("me", always)
    journal.take()
    journal.append([Term(1, "me"), ONE, TWO])
    topic.append([Record(b"move/t/1", b"junk"), Record(b"move/u/0", b"junk"), Record(b"what", b"junk")])
    with pytest.raises(DamagedError, match="t-1: the checksum is wrong; u-0"):
        journal.read()
    with pytest.raises(JournalError, match="not this one"):
        topic.journal("other", lambda: 0).recover()
    state, where = journal.recover()
    assert set(state.entries.values()) == {replace(ONE, unsure=True), replace(TWO, unsure=True)}
    assert "u-0" in where
    assert topic.journal("other", lambda: 0).read() == state
    assert (journal.records["damaged"], journal.records["skipped"]) == (2, 1)
    assert journal.recover() == (state, "")


ENTRY = Entry("t.x", 12, "ab" * 16, (1, 2), (3, 4))
TERM = Term(3, "me")
TOTALS = EndedTotals(1, 2, 3, 4)


def test_append_ends_with_term_and_totals() -> None:
    records = write_records([ENTRY, Ended("u", 0, "done"), Term(9, "other")], TERM, TOTALS, 10)
    assert [record.key for record in records] == [b"move/t.x/12", b"move/u/0", b"term"]
    assert records[1].value is None
    places = [read_key(record.key) for record in records]
    assert places == [("t.x", 12), ("u", 0), None]
    assert read_value(places[0], records[0].value or b"") == (11, ENTRY)
    # Three records after the tenth, and one for the term.
    assert read_value(None, records[2].value or b"") == (14, Term(3, "me", TOTALS))
    with pytest.raises(LineError, match="longer than"):
        write_records([Entry("t", 0, "id", tuple(range(20_000)))], TERM, TOTALS, 0)
    assert write_fence("host:1:ab") == Record(FENCE, b"host:1:ab")


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"move/",
        b"move/t",
        b"move/t/",
        b"move/t/-1",
        b"move/t/\xc2\xb2",
        b"other",
        b"move/t/" + b"1" * 400,
    ],
)
def test_key_of_something_else_is_refused(key: bytes | None) -> None:
    with pytest.raises(LineError):
        read_key(key)


def test_value_of_another_key_is_refused() -> None:
    entry, term = write_records([ENTRY], TERM, TOTALS, 0)
    for place, value in (
        (("t.x", 13), entry.value),
        (None, entry.value),
        (("t.x", 12), term.value),
        (("t.x", 12), b"junk"),
        (("t.x", 12), b"x" * 100_000),
    ):
        with pytest.raises(LineError):
            read_value(place, value or b"")
