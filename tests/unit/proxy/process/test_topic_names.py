"""Names of topics for several processes."""

from proxy.process.workers import SharedTopicNames

ID = b"i" * 16


def test_name_is_told_once() -> None:
    told: list[tuple[bytes, str]] = []
    names = SharedTopicNames(lambda topic_id, name: told.append((topic_id, name)))
    names.learn(ID, "t")
    names.learn(ID, "t")
    assert told == [(ID, "t")]


def test_known_names_are_there_for_a_process_that_begins() -> None:
    names = SharedTopicNames(lambda *_: None)
    names.learn(ID, "t")
    assert dict(names.all()) == {ID: "t"}
    assert names.name(ID, 0) == "t"


def test_unknown_name_is_wanted() -> None:
    names = SharedTopicNames(lambda *_: None)
    assert names.name(ID, 0) is None
    assert names.take_wanted(0) == [ID]
