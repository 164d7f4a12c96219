"""The quotas file in memory: disk first, then memory; what others write is not lost; what fails changes nothing."""

from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from proxy.config import QuotaSettings
from proxy.control.quotas import FileStore, StoreError
from proxy.control.quotas import file_store as module
from proxy.control.quotas.store import Client
from proxy.system.errors import ConfigError
from proxy.system.files import signature
from quotas.definitions.alterations import Alteration
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author
from quotas.definitions.toml_file import parse
from tests.support.quota_log import told_by

A, B = Entity(client_id="a"), Entity(client_id="b")
RATE = "producer_byte_rate"
OPS = Client("ops", "[::1]:51000")
FILE = '# Kept.\n[[quota]]\nclient_id = "a"  # of ours\nproducer_byte_rate = 1000\n'
GIVEN = '[[quota]]\nclient_id = "b"\nproducer_byte_rate = 7\n'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for a file to come to rest."""
    monkeypatch.setattr(module, "REST_SECONDS", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "quotas.toml"
    made.write_text(FILE)
    return made


def store(path: Path | None, given: str = "", producer_default: int | None = None) -> FileStore:
    return FileStore(QuotaSettings(file=path, producer_default=producer_default), given)


def rate(client_id: str, value: float | None) -> Alteration:
    return [("client-id", client_id)], [(RATE, value)]


def alter(kept: FileStore, *alterations: Alteration, validate_only: bool = False) -> list[str]:
    """Alter, and give what is wrong with each entity."""
    return [problem for _, problem in kept.alter(alterations, validate_only=validate_only).results]


def edit(path: Path, text: str) -> None:
    """Change the file as an editor does: another one takes its name."""
    other = path.with_suffix(".other")
    other.write_text(text)
    other.replace(path)


def test_alteration_is_in_the_file_and_in_force(path: Path) -> None:
    kept = store(path)
    assert alter(kept, rate("a", 2000.0), rate("b", 3.0)) == ["", ""]
    assert path.read_text().startswith(
        '# Kept.\n[[quota]]\nclient_id = "a"  # of ours\nproducer_byte_rate = 2000\n'
    )
    assert kept.definitions.limit(RATE, "", "a")[0] == 2000
    assert parse(path.read_text()) == kept.definitions
    assert kept.file_signature == signature(path)


def test_definitions_stay_the_same_object(path: Path) -> None:
    kept = store(path)
    before = kept.definitions
    alter(kept, rate("a", 5.0))
    edit(path, FILE)
    assert kept.read(QuotaSettings(file=path)) is before
    assert before.values(A) == {RATE: 1000}


def test_validation_alone_changes_nothing_and_valid_entities_are_altered_beside_wrong_ones(
    path: Path,
) -> None:
    kept = store(path)
    problems = [f"Quota {RATE} must be greater than 0", ""]
    assert alter(kept, rate("b", -1.0), rate("a", 5.0), validate_only=True) == problems
    assert path.read_text() == FILE
    assert kept.definitions.values(A) == {RATE: 1000}
    assert alter(kept, rate("b", -1.0), rate("a", 5.0)) == problems
    assert parse(path.read_text()).values(A) == kept.definitions.values(A) == {RATE: 5}
    assert B not in kept.definitions
    assert alter(kept, rate("a", None)) == [""]
    assert path.read_text() == "# Kept.\n"
    assert A not in kept.definitions


def test_alteration_without_a_change_writes_nothing(path: Path) -> None:
    kept = store(path)
    before = signature(path)
    assert alter(kept, rate("a", 1000.0), rate("b", None)) == ["", ""]
    assert signature(path) == before


def test_changes_by_others_are_not_lost(path: Path) -> None:
    kept = store(path)
    edit(path, FILE + '[[quota]]\nuser = "ann"\nproducer_byte_rate = 9\n')
    alter(kept, rate("a", None))
    assert dict(parse(path.read_text()).entries()) == {Entity("ann"): {RATE: 9}}
    assert kept.definitions.values(Entity("ann")) == {RATE: 9}


def test_unfinished_change_by_others_is_not_read(path: Path) -> None:
    kept = store(path)
    half = FILE + '[[quota]]\nuser = "ann"\nproducer_'
    edit(path, half)
    with pytest.raises(StoreError, match="another process has changed it, and it cannot be read"):
        alter(kept, rate("a", 5.0))
    assert path.read_text() == half
    assert kept.definitions.values(A) == {RATE: 1000}
    edit(path, FILE)
    assert alter(kept, rate("a", 5.0)) == [""]


def test_file_that_is_being_written_is_waited_for_but_not_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store(path)
    monkeypatch.setattr(module, "REST_SECONDS_MAX", 0.0)
    seen = iter(range(1, 100))
    monkeypatch.setattr(module, "signature", lambda _: (next(seen),))
    with pytest.raises(StoreError, match="is being written by another process"):
        alter(kept, rate("a", 5.0))


def test_read_only_file_is_an_error_and_the_old_state(path: Path) -> None:
    kept = store(path)
    path.chmod(0o444)
    with pytest.raises(StoreError, match="read-only"):
        alter(kept, rate("a", 5.0))
    assert path.read_text() == FILE
    assert kept.definitions.values(A) == {RATE: 1000}
    path.chmod(0o644)
    assert alter(kept, rate("a", 5.0)) == [""]
    path.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        alter(kept, rate("a", 6.0))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("os.fsync", OSError(28, "No space left on device")),
        ("proxy.control.quotas.file_store.replace", OSError(30, "Read-only file system")),
    ],
    ids=["full disk", "read-only directory"],
)
def test_file_that_cannot_be_written_is_an_error_and_the_old_state(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: OSError
) -> None:
    kept = store(path)
    monkeypatch.setattr(call, Mock(side_effect=error))
    with pytest.raises(StoreError) as caught:
        alter(kept, rate("a", 5.0))
    said = f"{path} cannot be written: {error.strerror}; it is replaced, not written into, so [quotas] file "
    assert str(caught.value) == said + "must be in a directory that Sluice may write to"
    assert path.read_text() == FILE
    assert kept.definitions.values(A) == {RATE: 1000}


def test_without_a_file_there_is_nothing_to_alter_and_the_error_has_advice() -> None:
    kept = FileStore(QuotaSettings(), GIVEN, config_path=Path("/etc/sluice/sluice.toml"))
    with pytest.raises(StoreError, match="no quotas file is configured") as caught:
        alter(kept, rate("a", 5.0))
    assert 'write file = "quotas.toml" under [quotas] in /etc/sluice/sluice.toml' in str(caught.value)
    assert kept.definitions.values(B) == {RATE: 7}


def test_command_line_beats_the_file_and_is_not_altered(path: Path) -> None:
    edit(path, FILE + '[[quota]]\nclient_id = "b"\nproducer_byte_rate = 1\n')
    kept = store(path, GIVEN)
    assert kept.definitions.values(B) == {RATE: 7}
    refused, done = alter(kept, rate("b", 5.0), rate("a", 5.0))
    assert "was given on the command line" in refused
    assert not done
    assert (kept.definitions.values(B), kept.definitions.values(A)) == ({RATE: 7}, {RATE: 5})
    assert "producer_byte_rate = 1\n" in path.read_text()
    edit(path, FILE)
    assert kept.read(QuotaSettings(file=path)).values(B) == {RATE: 7}


@pytest.mark.parametrize("text", ["quota = []\n", 'quota = [{client_id = "a", producer_byte_rate = 4}]\n'])
def test_file_in_another_form_is_read_and_not_altered(path: Path, text: str) -> None:
    kept = store(path)
    edit(path, text)
    kept.read(QuotaSettings(file=path))
    assert kept.definitions == parse(text)
    with pytest.raises(StoreError, match="write it as"):
        alter(kept, rate("a", 5.0))
    edit(path, FILE)
    kept.read(QuotaSettings(file=path))
    assert kept.definitions == parse(FILE)
    assert alter(kept, rate("a", 5.0)) == [""]


def test_wrong_file_at_the_start_names_its_place(path: Path) -> None:
    edit(path, FILE.replace("1000", "0"))
    with pytest.raises(
        ConfigError, match=r"quotas\.toml: quota\[0\]\.producer_byte_rate: must be greater than 0"
    ):
        store(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        store(path)
    with pytest.raises(
        ConfigError, match=r"cannot be read: No such file.*; an empty file is enough to begin with"
    ):
        store(path.with_name("none"))


def test_wrong_file_later_changes_nothing(path: Path) -> None:
    kept = store(path)
    edit(path, FILE.replace("1000", "0"))
    with pytest.raises(ConfigError):
        kept.read(QuotaSettings(file=path))
    assert kept.definitions.values(A) == {RATE: 1000}


def test_settings_and_file_may_change(path: Path) -> None:
    kept = store(path, producer_default=5)
    assert kept.definitions.limit(RATE, "", "x")[0] == 5
    other = path.with_name("other.toml")
    other.write_text('[[quota]]\nclient_id = "c"\nproducer_byte_rate = 3\n')
    kept.read(QuotaSettings(file=other, producer_default=6))
    assert dict(kept.definitions.entries()) == {Entity(client_id="c"): {RATE: 3}}
    assert kept.definitions.limit(RATE, "", "x")[0] == 6
    kept.read(QuotaSettings())
    assert len(kept.definitions) == 0
    assert kept.definitions.limit(RATE, "", "x")[0] is None


def test_link_is_followed_and_stays(path: Path) -> None:
    link = path.with_name("link.toml")
    link.symlink_to(path.name)
    kept = store(link)
    alter(kept, rate("a", 5.0))
    assert link.is_symlink()
    assert parse(path.read_text()).values(A) == {RATE: 5}
    # As Kubernetes swaps a ConfigMap.
    newer = path.with_name("newer.toml")
    newer.write_text(FILE.replace("1000", "77"))
    swapped = path.with_name("swapped")
    swapped.symlink_to(newer.name)
    swapped.replace(link)
    assert kept.read(QuotaSettings(file=link)).values(A) == {RATE: 77}


def test_mirror_has_exactly_the_brokers_quotas() -> None:
    kept = store(None, GIVEN)
    ann = [("user", "ann")]
    assert kept.mirror([(ann, {RATE: 5.0}), ([("client-id", None)], {"request_percentage": 1.5})])
    assert len(kept.definitions) == 3  # and what was given on the command line
    assert kept.definitions.values(Entity("ann")) == {RATE: 5}
    assert not kept.mirror([(ann, {RATE: 5.0}), ([("client-id", None)], {"request_percentage": 1.5})])
    assert kept.mirror([(ann, {RATE: 6.0})])
    assert dict(kept.definitions.entries()) == {B: {RATE: 7}, Entity("ann"): {RATE: 6}}


def test_mirror_leaves_out_unknown_keys_and_entities_and_no_more() -> None:
    kept = store(None)
    user: dict[str, float] = {"new_key": 5.0, RATE: 6.0}
    kept.mirror(
        [([("team", "g")], {RATE: 5.0}), ([("user", "u")], {"new_key": 5.0}), ([("user", "v")], user)]
    )
    assert dict(kept.definitions.entries()) == {Entity("v"): {RATE: 6}}


def test_alteration_is_noted_with_its_client(path: Path) -> None:
    kept = store(path)
    noted: list[tuple[Entity, Author]] = []
    kept.noted = lambda entity, author: noted.append((entity, author))
    for validate_only in (True, False):
        kept.alter([rate("a", 2000.0), rate("b", -1.0)], OPS, validate_only=validate_only)
    assert noted == [(A, Author("ops", "[::1]:51000", ""))]


def test_alteration_and_edit_are_told_with_what_was_before(path: Path) -> None:
    kept = store(path)
    found = told_by(kept)
    for validate_only in (True, False):
        kept.alter([rate("a", 2000.0), rate("b", -1.0)], OPS, validate_only=validate_only)
    assert found == [("client-id 'a'", 1000, 2000, "User:ops", "[::1]", False)]  # the audit log has its line
    found.clear()
    edit(path, FILE.replace("1000", "3000") + GIVEN)
    kept.read(QuotaSettings(file=path))
    kept.read(QuotaSettings(file=path))
    a, b = ("client-id 'a'", 2000, 3000), ("client-id 'b'", None, 7)
    assert found == [(*a, "quotas.toml", "", True), (*b, "quotas.toml", "", True)]
    found.clear()
    kept.read(QuotaSettings())
    assert [told[:3] for told in found] == [("client-id 'a'", 3000, None), ("client-id 'b'", 7, None)]


def test_edit_that_an_alteration_reads_first_is_the_files(path: Path) -> None:
    kept = store(path)
    found = told_by(kept)
    edit(path, FILE.replace("1000", "3000"))
    kept.alter([rate("b", 5.0)], OPS, validate_only=False)
    assert [(entity, by) for entity, _, _, by, *_ in found] == [
        ("client-id 'a'", "quotas.toml"),
        ("client-id 'b'", "User:ops"),
    ]


def test_brokers_quotas_are_told_from_the_second_time_on() -> None:
    kept = store(None)
    found = told_by(kept)
    ann = [("user", "ann")]
    kept.mirror([(ann, {RATE: 5.0})])
    assert found == []
    kept.mirror([(ann, {RATE: 6.0})])
    kept.mirror([])
    by = ("the brokers' own quotas", "", True)
    assert found == [("user 'ann'", 5, 6, *by), ("user 'ann'", 6, None, *by)]


# ----------------------------------------------------------------------------------------------------
# Capacities and their terms, which not all settings allow; entries with times

BROKER = '[[capacity]]\nscope = "broker"\nin = 100\n'
EXEMPT = '[[quota]]\nuser = "u"\nexempt = true\n'
NEEDS_SCHEDULE = r'needs quotas\.policy = "schedule", not "kip13"'
NEEDS_BROKERS = r'needs quotas\.scope = "broker", not "cluster"'


def settings(path: Path | None, **keys: Any) -> QuotaSettings:
    return QuotaSettings(file=path, **{"scope": "broker", **keys})


@pytest.mark.parametrize(
    ("text", "keys", "problem"),
    [
        (BROKER, {"policy": "kip13"}, NEEDS_SCHEDULE),
        (EXEMPT, {"policy": "kip13"}, NEEDS_SCHEDULE),
        (EXEMPT + "hours = 'sat'\n", {"policy": "kip13"}, NEEDS_SCHEDULE),
        (BROKER, {"scope": "cluster"}, NEEDS_BROKERS),
    ],
)
def test_terms_that_cannot_hold_are_refused_at_start_and_when_the_file_or_the_settings_change(
    path: Path, text: str, keys: dict[str, Any], problem: str
) -> None:
    edit(path, text)
    with pytest.raises(ConfigError, match=problem):
        FileStore(settings(path, **keys))

    kept = FileStore(settings(path))
    entries = dict(kept.definitions.entries())
    with pytest.raises(ConfigError, match=problem):
        kept.read(settings(path, **keys))
    assert dict(kept.definitions.entries()) == entries

    edit(path, FILE)
    kept.read(settings(path, **keys))  # they go with the setting that they need
    edit(path, text)
    with pytest.raises(ConfigError, match=problem):
        kept.read(settings(path, **keys))
    assert dict(kept.definitions.entries()) == dict(parse(FILE).entries())


def test_alteration_to_terms_that_cannot_hold_is_refused_for_this_entity_alone(path: Path) -> None:
    kept = FileStore(settings(path, scope="cluster"))
    wrong: Alteration = [("capacity", "broker")], [(RATE, 5000.0)]
    refused, fine = alter(kept, wrong, rate("c", 5.0))
    assert 'needs quotas.scope = "broker"' in refused
    assert fine == ""
    assert alter(kept, ([("capacity", "cluster")], [(RATE, 5000.0)])) == [""]
    assert list(kept.definitions.capacities.values()) == [(5000.0, True)]


def test_entry_with_times_holds_from_the_start_and_as_soon_as_it_is_read(path: Path) -> None:
    always = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 9\nfrom = 2000-01-01T00:00:00Z\n'
    never = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 8\nfrom = 2900-01-01T00:00:00Z\n'
    edit(path, FILE + always + never)
    kept = store(path)
    assert kept.definitions.limit(RATE, "", "a")[0] == 9
    edit(path, FILE + never)
    kept.read(settings(path))
    assert kept.definitions.limit(RATE, "", "a")[0] == 1000
    assert not kept.elapse()
    seconds = kept.next_change()
    assert seconds is not None
    assert seconds > 1e9  # in 2900


class Later(datetime):
    """A clock in the year 2950."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Later":
        return cls(2950, 1, 1, tzinfo=tz)


def test_entry_that_begins_or_ends_is_told_with_what_held_and_what_holds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 8\nfrom = 2900-01-01T00:00:00Z\n'
    ends = '[[quota]]\nuser = "u"\nconsumer_byte_rate = 9\nuntil = 2900-01-01T00:00:00Z\n'
    edit(path, FILE + begins + ends)
    kept = store(path)
    told = told_by(kept)
    assert not kept.elapse()
    assert told == []
    monkeypatch.setattr("proxy.control.quotas.store.datetime", Later)
    assert kept.elapse()
    by = ("the times of its entries", "", True)
    assert told == [("client-id 'a'", 1000, 8, *by), ("user 'u'", 9, None, *by)]
    assert not kept.elapse()
    assert len(told) == 2
