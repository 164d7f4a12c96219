"""Reassignments by a fleet whose journal is in a topic, on real brokers with ACLs (docs/decisions/0014).

Replication is throttled by another Sluice, as in `test_reassignments`.
"""

import re
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # theirs

from protocol.messages.reassignments import AlterRequest
from proxy.cli import main
from tests.cluster import ports
from tests.support.proxy_process import SluiceProcess, fleet_secret
from tests.support.reassignment_rig import ReassignmentRig
from tests.support.waiting import until

SLOW, FAST = "200k", "20M"
NOT_CONTROLLER = 41
JOURNAL, GROUP = "__sluice-reassignments", "__sluice"
# The group takes seconds to see that its holder is gone, and a new holder's first append some more.
TAKES_OVER_SECONDS = 60.0


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReassignmentRig]:
    with ReassignmentRig(tmp_path_factory.mktemp("journal")) as rig:
        rig.allow_topics(JOURNAL, GROUP, "__other")
        yield rig


def member(rig: ReassignmentRig, name: str) -> SluiceProcess:
    secret = fleet_secret(rig.directory)
    (port,) = ports.free_ports()
    fleet = {"name": name, "bind": f"127.0.0.1:{port}", "secret_file": secret, "members_max": 4}
    rig.sections.setdefault(name, {"fleet": fleet})
    return rig.gateway(name, journal="topic")


@pytest.mark.timeout(420)
def test_member_takes_requests_and_goes_on_when_the_holder_is_killed(
    rig: ReassignmentRig, capsys: pytest.CaptureFixture[str]
) -> None:
    fronts = {name: member(rig, name) for name in ("a", "b")}
    until(lambda: sum(rig.leads(front) for front in fronts.values()) == 1, "a holder executes", 60)
    (holder,) = (name for name, front in fronts.items() if rig.leads(front))
    (other,) = fronts.keys() - {holder}
    front = fronts[other]
    rig.create("taken", [[1, 2], [2, 1], [1, 2]])
    rig.fill("taken", 3, partitions=3)
    rig.throttle(SLOW)
    plan = {"taken": [[3, 4], [4, 3], [3, 4]]}
    # All of it at the member that is not the holder.
    assert "Successfully started" in rig.tool(front.bootstrap, plan, "--execute")
    assert re.search(r"taken-0: replicas: 3,4,1,2", rig.tool(front.bootstrap, plan, "--list"))
    assert main(["reassign", "status", "--admin", f"http://127.0.0.1:{front.ports.admin}"]) == 0
    assert "3 partitions under way" in capsys.readouterr().out
    assert rig.status(front)["holder"] == rig.status(fronts[holder])["process"]
    assert front.metric("sluice_reassignment_forwarded_total", result="answered") >= 2
    until(lambda: any(name == "taken" for name, _ in rig.ongoing()), "a step is under way")
    fronts[holder].signal(signal.SIGKILL)
    rig.end_gateway(holder)
    until(lambda: rig.leads(front), "the other one takes over", TAKES_OVER_SECONDS)
    rig.throttle(FAST)
    rig.until_done(front, "taken", {0: (3, 4), 1: (4, 3), 2: (3, 4)}, 120)
    assert rig.tool(front.bootstrap, plan, "--verify").count("is completed") == 3
    again = member(rig, holder)
    until(lambda: rig.status(again)["problem"] == "", "it reads the journal")
    assert (rig.status(again)["leads"], rig.status(again)["moves"]) == (False, 0)
    for name in (holder, other):
        rig.end_gateway(name)


def test_topic_that_cannot_be_used_is_said(rig: ReassignmentRig) -> None:
    wrong = NewTopic("__other", 1, 1, config={"cleanup.policy": "delete"})
    for done in rig.admin.create_topics([wrong]).values():
        done.result(30)
    front = rig.gateway("wrong", journal="topic", journal_topic="__other")
    until(lambda: "cleanup.policy=delete" in str(rig.status(front)["problem"]), "it is said")
    assert front.metric("sluice_reassignment_topic_problem", cause="cleanup_policy") == 1
    rig.create("refused", [[1, 2]])
    response = rig.alter(front.bootstrap, AlterRequest(60_000, True, [(("refused", 0), (3, 4))]))
    assert response.outcome.error_code == NOT_CONTROLLER
    assert "cleanup.policy=delete" in str(response.outcome.error_message)
    assert rig.replicas("refused") == {0: (1, 2)}
    rig.end_gateway("wrong")
    rig.admin.delete_topics(["__other"])["__other"].result(30)
    front = rig.gateway("wrong", journal="topic", journal_topic="__other")
    until(lambda: rig.leads(front), "it creates the topic")
    rig.admin.delete_topics(["__other"])["__other"].result(30)
    until(lambda: "was deleted" in str(rig.status(front)["problem"]), "the deletion is said")
    assert front.metric("sluice_reassignment_topic_problem", cause="missing") == 1
    rig.end_gateway("wrong")
