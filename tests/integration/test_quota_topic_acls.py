"""Quotas, and the journal of reassignments, in topics of one broker: with SASL and ACLs, where what is missing is named
and suffices once it is there; and while the broker is away.
"""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType  # type: ignore[attr-defined]  # theirs

from tests.cluster import Cluster
from tests.cluster.sasl import SASL, SLUICE_LOGIN, client_properties
from tests.support.guarded_cluster import allow, allow_as_named, guarded_cluster, no_longer_allow
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.topic_quotas import Topic
from tests.support.waiting import until

NAMED_SECONDS: Final = 60  # the pauses between attempts grow to ten seconds


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    with guarded_cluster() as cluster:
        yield cluster


@pytest.fixture
def topic(guarded: Cluster, tmp_path: Path) -> Iterator[Topic]:
    quotas = {"alter_principals": ["admin"]}
    with Topic(guarded.bootstrap(SASL), tmp_path, cluster=SLUICE_LOGIN, quotas=quotas) as found:
        yield found


def set_rate(process: SluiceProcess, directory: Path, rate: int) -> tuple[int, str]:
    """Set a quota as the user admin; the exit code and what was printed."""
    login = directory / "admin.properties"
    login.write_text(client_properties("admin"))
    words = ["--bootstrap-server", process.bootstrap, "--command-config", str(login), "--client-id", "a"]
    line = [sys.executable, "-m", "proxy", "quotas", "set", *words, f"producer_byte_rate={rate}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_each_missing_permission_is_named_and_suffices_once_it_is_there(
    guarded: Cluster, topic: Topic, tmp_path: Path
) -> None:
    process = topic.start("first", ready=False)
    allow_as_named(guarded, topic.name, process.readiness)
    process.wait_ready()
    code, printed = set_rate(process, tmp_path, 5000)
    assert (code, f"an ACL denies Write on topic {topic.name}" in printed) == (1, True), printed
    assert process.metric("sluice_internal_topic_problem", topic=topic.name, cause="denied") == 1
    allow(guarded, ResourceType.TOPIC, topic.name, AclOperation.WRITE)
    until(lambda: set_rate(process, tmp_path, 5000)[0] == 0, "it is altered")
    assert process.metric("sluice_internal_topic_problem", topic=topic.name, cause="denied") == 0
    until(lambda: process.metric("sluice_audit_events_total", result="appended") == 1, "it is audited")

    no_longer_allow(guarded, ResourceType.TOPIC, topic.name, AclOperation.READ)
    until(
        lambda: process.metric("sluice_internal_topic_problem", topic=topic.name, cause="denied"),
        "it is noticed",
    )
    code, printed = set_rate(process, tmp_path, 6000)
    assert (code, "denies Read" in printed) == (1, True), printed
    assert process.get("/readyz")[0] == 200  # what is in force stays


def status(process: SluiceProcess) -> dict[str, Any]:
    """Return what `/reassignments` has; nothing before the admin port is open."""
    try:
        return process.document("/reassignments")
    except OSError:
        return {}


@pytest.mark.timeout(300)
def test_each_missing_right_on_the_journal_is_named_and_suffices_once_it_is_there(
    guarded: Cluster, tmp_path: Path
) -> None:
    name = f"journal-{secrets.token_hex(4)}"
    journal = {"mode": "batch", "journal": "topic", "journal_topic": name}
    settings = SluiceSettings(
        guarded.bootstrap(SASL), cluster=SLUICE_LOGIN, sections={"reassignment": journal}
    )
    process = SluiceProcess.configured(settings, tmp_path)
    topic, transaction = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
    try:
        process.wait_ready()  # clients are served meanwhile
        allow_as_named(guarded, name, lambda: status(process).get("problem", ""))
        for problem, kind, operation in (
            (f"an ACL denies Write on topic {name}", topic, AclOperation.WRITE),
            (f"an ACL denies Write on transactional id {name}", transaction, AclOperation.WRITE),
        ):
            until(lambda: problem in status(process).get("problem", ""), problem, NAMED_SECONDS)  # noqa: B023 - waited for here
            denied = process.metric("sluice_reassignment_topic_problem", cause="denied")
            assert (denied, status(process)["leads"]) == (1, False), problem
            allow(guarded, kind, name, operation, ResourcePatternType.LITERAL)
        until(lambda: status(process)["leads"], "it executes", NAMED_SECONDS)
        assert process.metric("sluice_reassignment_topic_problem") == 0
        # Its user has no right to ask for ACLs, which says that there is an authorizer.
        assert process.metric("sluice_brokers_unguarded") == 0
        assert "no authorizer" not in process.log()
    finally:
        print(process.log())
        process.kill()
