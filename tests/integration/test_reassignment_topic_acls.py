"""The reassignment journal in a topic, under ACLs: each missing right is named, and suffices once it is there."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # theirs
    AclOperation,
    ResourcePatternType,
    ResourceType,
)

from tests.cluster import Cluster
from tests.cluster.sasl import SASL, password
from tests.support.guarded_cluster import allow, guarded_cluster
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.waiting import until

NAMED_SECONDS: Final = 60  # the pauses between attempts grow to ten seconds


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    with guarded_cluster() as cluster:
        yield cluster


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
    login = {"sasl_mechanism": "SCRAM-SHA-512", "username": "sluice", "password": password("sluice")}
    journal = {"mode": "batch", "journal": "topic", "journal_topic": name}
    settings = SluiceSettings(guarded.bootstrap(SASL), cluster=login, sections={"reassignment": journal})
    process = SluiceProcess.configured(settings, tmp_path)
    topic, transaction = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
    try:
        process.wait_ready()  # clients are served meanwhile
        for problem, kind, operation in (
            (f"an ACL denies Describe on topic {name}", topic, AclOperation.DESCRIBE),
            ("does not exist, and an ACL denies Create", topic, AclOperation.CREATE),
            (f"an ACL denies Read on topic {name}", topic, AclOperation.READ),
            (f"an ACL denies DescribeConfigs on topic {name}", topic, AclOperation.DESCRIBE_CONFIGS),
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
