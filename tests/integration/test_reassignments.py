"""Reassignments in small batches, asked for by Kafka's own tool, on real brokers with ACLs (KIP-435).

Replication is throttled by another Sluice: SLOW while something is looked at or killed, so that no move is over before,
and FAST for the rest.
"""

import re
import signal
import time
from collections.abc import Iterator

import pytest

from protocol.messages.reassignments import AlterRequest, Outcome
from tests.cluster import tools
from tests.support.proxy_process import SluiceProcess
from tests.support.reassignment_rig import SASL, ReassignmentRig
from tests.support.waiting import until

MINUTE_MS = 60_000
SLOW, FAST = "200k", "20M"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReassignmentRig]:
    with ReassignmentRig(tmp_path_factory.mktemp("reassignment")) as rig:
        yield rig


@pytest.fixture
def front(rig: ReassignmentRig) -> SluiceProcess:
    rig.throttle(FAST)
    return rig.only_gateway("a")


def idle(rig: ReassignmentRig, front: SluiceProcess) -> bool:
    return rig.status(front)["moves"] == 0


def asked(*wanted: tuple[tuple[str, int], tuple[int, ...] | None], may_change: bool = True) -> AlterRequest:
    return AlterRequest(MINUTE_MS, may_change, list(wanted))


def test_refusals_are_kafkas_own(rig: ReassignmentRig, front: SluiceProcess) -> None:
    """What can only be refused changes nothing, so brokers may be asked the same."""
    rig.create("refused", [[1, 2], [1, 2]])
    requests = [
        asked((("refused", 0), (1, 77))),
        asked((("refused", 0), (1, 1))),
        asked((("refused", 0), (-1, 2))),
        asked((("refused", 0), ())),
        asked((("refused", 0), None)),
        asked((("nowhere", 0), (1, 2))),
        asked((("no name", 0), (1, 2)), (("refused", 0), (1, 2))),
        asked((("refused", 0), (1, 2)), (("refused", 0), None)),
        asked((("refused", 9), (1, 2)), (("refused", 1), None)),
        asked((("refused", 0), (1, 2, 3)), may_change=False),
        asked((("refused", 0), (1, 2))),
        asked((("refused", 0), (1, 77)), (("refused", 0), (1, 2))),
        asked(),
    ]
    brokers = rig.cluster.bootstrap(SASL)
    for request in requests:
        for version in (0, 1):
            if version == 0 and not request.allow_factor_change:
                continue
            direct = rig.alter(brokers, request, version)
            assert rig.alter(front.bootstrap, request, version) == direct, request
    assert rig.replicas("refused") == {0: (1, 2), 1: (1, 2)}
    assert idle(rig, front)


@pytest.fixture
def cordoned(rig: ReassignmentRig, front: SluiceProcess) -> Iterator[int]:
    """Broker 1, with all its log directories cordoned (KIP-1066); it leads the topic "drained".

    Ends when Sluice knows that they no longer are: it keeps what it knows of a broker for a while.
    """
    rig.create("drained", [[1, 2]])
    words = ("--alter", "--entity-type", "brokers", "--entity-name", "1")
    tools.configs(rig.cluster.bootstrap(), *words, "--add-config", "cordoned.log.dirs=*")
    try:
        yield 1
    finally:
        tools.configs(rig.cluster.bootstrap(), *words, "--delete-config", "cordoned.log.dirs")
        # Broker 77 does not exist, and is complained of where broker 1 gives no reason to.
        beside_none = asked((("drained", 0), (1, 77)))

        def complains_of_77() -> bool:
            ((_, outcome),) = rig.alter(front.bootstrap, beside_none).partitions
            return "broker 77" in str(outcome.error_message)

        until(complains_of_77, "Sluice knows that broker 1 is no longer cordoned")


def test_cordoned_broker_is_refused_as_a_target_and_drained(
    rig: ReassignmentRig, front: SluiceProcess, cordoned: int
) -> None:
    onto = asked((("drained", 0), (cordoned, 3)))
    message = f"includes broker {cordoned}, but all its log directories are cordoned."

    def refused(bootstrap: str) -> bool:
        ((_, outcome),) = rig.alter(bootstrap, onto).partitions
        return outcome.error_code == 39 and message in str(outcome.error_message)

    until(lambda: refused(rig.cluster.bootstrap(SASL)), "the controller knows it")
    until(lambda: refused(front.bootstrap), "Sluice knows it")
    assert idle(rig, front)
    # It leads, and by Sluice's own rule would leave last: in a step that the controller refuses.
    ((_, outcome),) = rig.alter(front.bootstrap, asked((("drained", 0), (3, 4)))).partitions
    assert outcome == Outcome(0, None)
    rig.until_done(front, "drained", {0: (3, 4)})


def test_target_below_min_isr_is_refused(rig: ReassignmentRig, front: SluiceProcess) -> None:
    rig.create("too-few", [[1, 2, 3]], **{"min.insync.replicas": "2"})
    ((_, outcome),) = rig.alter(front.bootstrap, asked((("too-few", 0), (1,)))).partitions
    assert outcome.error_code == 39
    assert "fewer than min.insync.replicas 2" in str(outcome.error_message)
    assert rig.replicas("too-few") == {0: (1, 2, 3)}


def test_unauthorized_reassignment_is_refused_by_the_broker(
    rig: ReassignmentRig, front: SluiceProcess
) -> None:
    rig.create("denied", [[1, 2]])
    journal = rig.journal / "journal"
    for request in (asked((("denied", 0), (3, 4)), (("nowhere", 0), (1,))), asked((("denied", 0), None))):
        for bootstrap in (rig.cluster.bootstrap(SASL), front.bootstrap):
            response = rig.alter(bootstrap, request, user="alice")
            # The message names the broker's own connection, so it is never twice the same.
            assert response.outcome.error_code == 31
            assert str(response.outcome.error_message).startswith("Request Request(")
            assert response.partitions == [(key, response.outcome) for key, _ in request.wanted]
    assert idle(rig, front)
    assert '"topic":"denied"' not in journal.read_text(), "nothing is journaled"
    with pytest.raises(Exception, match="ClusterAuthorizationException"):
        rig.tool(front.bootstrap, {"denied": [[3, 4]]}, "--execute", user="alice")
    time.sleep(1)
    assert rig.replicas("denied") == {0: (1, 2)}
    assert not rig.ongoing()


def test_tool_executes_lists_and_verifies(rig: ReassignmentRig, front: SluiceProcess) -> None:
    rig.create("moved", [[1, 2], [2, 1], [1, 2]])
    rig.fill("moved", 3, partitions=3)
    rig.throttle(SLOW)
    plan = {"moved": [[3, 4], [4, 3], [3, 4]]}
    assert "Successfully started partition reassignments" in rig.tool(front.bootstrap, plan, "--execute")
    listed = rig.tool(front.bootstrap, plan, "--list")
    assert re.search(r"moved-0: replicas: 3,4,1,2\. adding: 3,4\. removing: 1,2\.", listed)
    rig.throttle("3M")
    largest = 0
    while not idle(rig, front):
        adding = [one.adding for (name, _), one in rig.ongoing().items() if name == "moved"]
        largest = max(largest, *map(len, adding), 0)
        assert len(adding) <= 3
        time.sleep(0.05)
    assert largest == 1, "one replica of a partition at a time"
    assert rig.leaders("moved") == {0: 3, 1: 4, 2: 3}
    verified = rig.tool(front.bootstrap, plan, "--verify")
    assert verified.count("is completed") == 3
    rig.until_done(front, "moved", {0: (3, 4), 1: (4, 3), 2: (3, 4)})
    assert rig.sluice.metric("sluice_replicas_left_out_total") > 0, "what was added went through the throttle"


def test_cancel_in_the_middle_goes_back(rig: ReassignmentRig, front: SluiceProcess) -> None:
    rig.create("cancelled", [[1, 2], [2, 1]])
    rig.fill("cancelled", 3, partitions=2)
    rig.throttle("2M")
    plan = {"cancelled": [[3, 4], [4, 3]]}
    rig.tool(front.bootstrap, plan, "--execute")
    until(lambda: any({3, 4} & one for one in rig.in_sync("cancelled").values()), "a step is done")
    rig.throttle(SLOW)
    said = rig.tool(front.bootstrap, plan, "--cancel")
    assert "Successfully cancelled partition reassignments" in said
    rig.throttle(FAST)
    rig.until_moved("cancelled", {0: (1, 2), 1: (2, 1)})
    until(lambda: idle(rig, front), "the end of it")
    assert rig.in_sync("cancelled") == {0: {1, 2}, 1: {1, 2}}
    assert rig.leaders("cancelled") == {0: 1, 1: 2}
    assert not rig.ongoing()


def test_killed_proxy_goes_on_where_it_was(rig: ReassignmentRig, front: SluiceProcess) -> None:
    rig.create("killed", [[1, 2], [2, 1]])
    rig.fill("killed", 3, partitions=2)
    rig.throttle("1M")
    rig.tool(front.bootstrap, {"killed": [[3, 4], [4, 3]]}, "--execute")
    for _ in range(3):
        time.sleep(0.7)
        rig.gateways["a"].signal(signal.SIGKILL)
        rig.end_gateway("a")
        front = rig.gateway("a")
    rig.throttle(FAST)
    rig.until_done(front, "killed", {0: (3, 4), 1: (4, 3)})


def test_another_proxy_takes_over(rig: ReassignmentRig, front: SluiceProcess) -> None:
    second = rig.gateway("b")
    assert (rig.leads(front), rig.leads(second)) == (True, False)
    rig.create("taken", [[1, 2], [2, 1]])
    rig.fill("taken", 3, partitions=2)
    rig.throttle(SLOW)
    plan = {"taken": [[3, 4], [4, 3]]}
    # Asked of the one that does not execute.
    assert "Successfully started" in rig.tool(second.bootstrap, plan, "--execute")
    until(lambda: rig.status(front)["moves"] == 2, "both know of it")
    assert re.search(r"taken-0: replicas: 3,4,1,2", rig.tool(front.bootstrap, plan, "--list"))
    front.signal(signal.SIGKILL)
    rig.end_gateway("a")
    until(lambda: rig.leads(second), "the second takes over")
    rig.throttle(FAST)
    rig.until_done(second, "taken", {0: (3, 4), 1: (4, 3)})
    front = rig.gateway("a")
    assert not rig.leads(front)
    rig.end_gateway("b")
    until(lambda: rig.leads(front), "the first takes over again")


def test_dead_target_is_waited_for(rig: ReassignmentRig, front: SluiceProcess) -> None:
    rig.create("dead", [[1, 2]])
    rig.fill("dead", 1)
    rig.cluster.stop_broker(4)
    response = rig.alter(front.bootstrap, asked((("dead", 0), (3, 4))))
    assert [outcome for _, outcome in response.partitions] == [Outcome()], "registered, and only down"

    def reasons() -> str:
        partitions = rig.status(front)["partitions"]
        assert isinstance(partitions, list)
        return " ".join(one["reason"] for one in partitions)

    until(lambda: "broker 4, which is not alive" in reasons(), "it is said what is waited for")
    assert 3 in rig.replicas("dead")[0], "what can be moved was moved"
    rig.cluster.start_broker(4)
    rig.until_moved("dead", {0: (3, 4)})
    until(lambda: idle(rig, front), "the end of it")
