"""What earlier releases have written is read (docs/compatibility.md).

tests/packaging/samples has a directory for each release, written by it with `make release-sample`. Its files are never
changed: where one is no longer read, an upgrade breaks for those who have such files.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from offline.replay.frames import read_produce
from offline.replay.reading import capture_files, read
from protocol.api import FETCH, PRODUCE
from proxy.config import QuotaSettings
from proxy.control.cluster.brokers import MapFile
from proxy.control.enforcement import EnforcementFile
from proxy.control.quotas.topic_store import Snapshot, TopicStore
from proxy.control.reassign.file_journal import FileJournal
from proxy.control.reassign.topic_journal import TopicJournal
from proxy.explain.documents import (
    BrokersDocument,
    ClientDocument,
    ClientsDocument,
    Document,
    EventsDocument,
    FleetDocument,
    RulesDocument,
    StatusDocument,
)
from proxy.fleet.messages import SIGNATURE_BYTES, Frames
from proxy.system.files import read_secret
from proxy.system.stats import Stats
from proxy.topics.records import Record, Seal
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse
from release import sample
from tests.packaging.conftest import ROOT, bare_environment, run
from tests.support.documents import read as read_document
from tests.support.journal_topics import SimulatedTopic, SimulatedWriter
from tests.support.quota_log import FakeLog

SAMPLES: Final = ROOT / "tests" / "packaging" / "samples"
VERSIONS: Final = sorted(path.name for path in SAMPLES.iterdir())
KINDS: Final[dict[str, type[Document]]] = {
    "clients": ClientsDocument,
    "client": ClientDocument,
    "user": ClientsDocument,
    "rules": RulesDocument,
    "fleet": FleetDocument,
    "brokers": BrokersDocument,
    "status": StatusDocument,
    "events": EventsDocument,
}
REPORTS: Final = Entity(client_id="reports")
# Deprecated for long enough, with the release that has removed it.
REMOVED: Final[dict[str, str]] = {}
ALTERED: Final = {REPORTS: {"producer_byte_rate": 3e6}, Entity(DEFAULT): {"request_percentage": 250.0}}


@pytest.fixture(params=VERSIONS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what one release has written."""
    version: str = request.param
    made = shutil.copytree(SAMPLES / version, tmp_path / version)
    (made / "fleet.secret").write_text(sample.SECRET)
    return made


def secret(written: Path) -> bytes:
    return read_secret(written / "fleet.secret", "fleet.secret_file")


def topic(written: Path, name: str) -> FakeLog:
    """A topic with the records that the release has appended."""
    log = FakeLog()
    log.topic = name
    lines = [json.loads(line) for line in (written / "topics" / f"{name}.jsonl").read_text().splitlines()]
    records = [
        Record(
            None if line["key"] is None else line["key"].encode(),
            None if line["value"] is None else line["value"].encode(),
            bytes.fromhex(line["mark"]),
        )
        for line in lines
    ]
    log.deliver(*records, begins=True, topic_id=bytes.fromhex(lines[0]["topic_id"]))
    return log


def values(definitions: Definitions) -> dict[Entity, dict[str, float]]:
    return {entity: dict(limits) for entity, limits in definitions.entries()}


def test_there_are_samples_of_a_release() -> None:
    assert VERSIONS


def test_no_key_metric_or_command_is_gone(written: Path) -> None:
    """One that is deprecated stays in its table, until it has been so for as long as docs/compatibility.md says."""
    today = sample.names(ROOT / "docs")
    earlier = json.loads((written / "names.json").read_text())

    assert earlier["configuration"]
    assert {
        table: gone
        for table, known in earlier.items()
        if (gone := {*known} - {*today[table]} - REMOVED.keys())
    } == {}


@pytest.mark.parametrize("name", ["sluice.toml", "fleet.toml"])
def test_configuration_is_right(written: Path, name: str) -> None:
    words = (sys.executable, "-m", "proxy", "check", "--offline", "--config", written / name)

    assert f"{name} is right" in run(*words, cwd=written, env={**bare_environment(), "PYTHONPATH": str(ROOT)})


def test_quotas_file_has_its_quotas(written: Path) -> None:
    assert values(parse((written / "quotas.toml").read_text())) == ALTERED


def test_capture_has_its_rows_and_frames(written: Path) -> None:
    rows = read(capture_files([written / "capture"]))

    produced = [row for row in rows if row.api_key == PRODUCE and row.client_id == "reports"]
    assert sum(part.records for row in produced for part in row.partitions) == 60
    frames = [read_produce(row.frame) for row in produced if row.frame]
    assert frames
    assert None not in frames
    assert any(row.api_key == FETCH and row.partitions for row in rows)


def test_switch_of_enforcement_stays_off(written: Path) -> None:
    switched = EnforcementFile(written / "gateway-state").read()

    assert switched is not None
    assert (switched.enforcing, switched.reason) == (False, "a sample")


@pytest.mark.parametrize("state", ["gateway-state", "fleet-state"])
def test_addresses_of_brokers_are_known_before_a_broker_responds(written: Path, state: str) -> None:
    assert MapFile(written / state, Stats()).read().keys() == {1, 2, 3}


def test_journal_in_a_file_has_its_end(written: Path) -> None:
    state = FileJournal(written / "gateway-state" / "reassignment").read()

    assert (dict(state.entries), state.ended_totals.done, state.term.number) == ({}, 1, 1)


def test_journal_in_a_topic_has_its_end(written: Path) -> None:
    name = "__sluice-reassignments"
    seal = Seal(secret(written), "journal", name)
    writer = SimulatedWriter(SimulatedTopic())
    journal = TopicJournal(topic(written, name), writer, "another process", lambda: 0, alone=False, seal=seal)
    state = journal.read()

    assert (dict(state.entries), state.ended_totals.done) == ({}, 1)
    assert journal.records.keys() <= {"applied", "removed"}


def test_snapshot_of_the_quota_topic_has_its_quotas(written: Path) -> None:
    found = Snapshot(written / "fleet-state").read("__sluice-quotas")

    assert found is not None
    place, definitions = found
    assert place.signed
    assert values(definitions)[REPORTS] == ALTERED[REPORTS]  # it may be older than the last alteration


def test_quota_topic_has_its_quotas_signed(written: Path) -> None:
    name = "__sluice-quotas"
    store = TopicStore(
        QuotaSettings(store="topic"), topic(written, name), seal=Seal(secret(written), "quota", name)
    )
    store.drain()

    assert values(store.definitions) == ALTERED
    assert store.records.keys() == {"applied"}


def test_audit_topic_has_each_change(written: Path) -> None:
    """For programs of others: fields are added, none is renamed."""
    lines = (written / "topics" / "__sluice-audit.jsonl").read_text().splitlines()
    events = [json.loads(json.loads(line)["value"]) for line in lines]

    assert [(event["limit"], event["old"], event["new"]) for event in events] == [
        ("producer_byte_rate", None, 3_000_000),
        ("request_percentage", None, 250),
    ]
    assert {"v", "at", "by", "from", "entity"} <= events[0].keys()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_documents_of_v1_are_read_by_the_console(written: Path, name: str) -> None:
    content = json.loads((written / "v1" / f"{name}.json").read_text())
    document = read_document(KINDS[name], content)

    if isinstance(document, ClientsDocument):
        assert "reports" in {row.client_id for row in document.clients}
    if isinstance(document, FleetDocument):
        assert [member.name for member in document.members] == ["gw-1"]


def test_member_of_this_version_takes_the_first_frame_of_the_other(written: Path) -> None:
    frames = Frames(secret(written), holder=False)
    hello = (written / "fleet-hello.bin").read_bytes()
    assert len(hello) - 4 > SIGNATURE_BYTES
    frames.greet(hello[4:])

    assert frames.greeted
