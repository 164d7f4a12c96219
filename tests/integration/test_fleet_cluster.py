"""The fleet's group and Sluice's topics on another cluster than the throttled one: one broker with SASL and ACLs, where
each right that is missing is named, and suffices once it is there; and which is away for a while.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType  # type: ignore[attr-defined]  # theirs

from tests.cluster import HOST, Cluster, free_port
from tests.cluster.sasl import SASL, SLUICE_LOGIN
from tests.support.guarded_cluster import allow, allow_as_named, guarded_cluster, no_longer_allow
from tests.support.proxy_process import SluiceProcess, SluiceSettings, fleet_secret
from tests.support.quota_client import set_rates
from tests.support.topic_quotas import rate_of
from tests.support.waiting import until

HOLDS_SECONDS: Final = 40
CUT_OFF_SECONDS: Final = 40
LOG_BYTES: Final = 10_000_000
NO_LOGIN: Final[Mapping[str, object]] = {}
NAMED_SECONDS: Final = 45  # the pauses between attempts grow to ten seconds


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    with guarded_cluster() as cluster:
        yield cluster


def admin_of(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap()})


class Member:
    """A gateway in front of one cluster, whose fleet is on another."""

    def __init__(
        self,
        throttled: Cluster,
        bootstrap: str,
        group: str,
        directory: Path,
        login: Mapping[str, object] = NO_LOGIN,
    ) -> None:
        fleet = {
            "name": "a",
            "bind": f"{HOST}:{free_port()}",
            "group": group,
            "members_max": 4,
            "bootstrap": bootstrap,
            "secret_file": fleet_secret(directory),
        }
        topics = {"store": "topic", "topic": f"{group}-quotas", "audit_topic": ""}
        settings = SluiceSettings(
            throttled.bootstrap(),
            quotas=topics if login else {},
            sections={"fleet": fleet, "fleet.cluster": login},
        )
        self.process = SluiceProcess.configured(settings, directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        print(self.process.log())
        self.process.kill()

    @property
    def state(self) -> dict[str, Any]:
        """What `/v1/fleet` has; nothing before the admin port is open."""
        try:
            return self.process.document("/fleet")
        except OSError:
            return {}

    def says(self, text: str) -> bool:
        return text in self.state.get("group_problem", "")

    def problem(self, cause: str) -> float:
        return self.process.metric("sluice_fleet_group_problem", cause=cause)


@pytest.fixture
def running(guarded: Cluster) -> Iterator[Cluster]:
    """The same, with its broker again when the test ends."""
    yield guarded
    if not guarded.is_running(1):
        guarded.start_broker(1)


@pytest.fixture
def group(tmp_path: Path) -> str:
    return f"__fleet-{tmp_path.name}"


@pytest.mark.timeout(300)
def test_each_missing_right_is_named_and_suffices_once_it_is_there(
    kafka: Cluster, guarded: Cluster, group: str, tmp_path: Path
) -> None:
    topic = ResourceType.TOPIC
    with Member(kafka, guarded.bootstrap(SASL), group, tmp_path, SLUICE_LOGIN) as member:
        allow_as_named(guarded, group, lambda: member.state.get("group_problem", ""), NAMED_SECONDS)
        named = f"an ACL denies Read on group {group}"
        until(lambda: member.says(named), named, NAMED_SECONDS)
        assert member.problem("denied") == 1
        allow(guarded, ResourceType.GROUP, group, AclOperation.READ)
        until(lambda: member.state["holds"], "it holds", HOLDS_SECONDS)
        until(lambda: not member.problem("denied"), "the group can be used")

        # The quotas are there too.
        allow(guarded, topic, group, AclOperation.WRITE)
        member.process.wait_ready()
        until(lambda: set_rates(member.process.bootstrap, a=5.0) == [(0, "")], "it is altered")
        assert rate_of(member.process, "a") == 5.0
        assert f"{group}-quotas" in admin_of(guarded).list_topics().topics
        assert f"{group}-quotas" not in admin_of(kafka).list_topics().topics

        no_longer_allow(guarded, ResourceType.GROUP, group, AclOperation.READ)
        until(lambda: member.says(named), named, NAMED_SECONDS)
        until(lambda: not member.state["holds"], "its tenure ends", HOLDS_SECONDS)
        allow(guarded, ResourceType.GROUP, group, AclOperation.READ)
        until(lambda: member.state["holds"], "it holds again", HOLDS_SECONDS)
        # At the start, perhaps before a right on the topic is missed, and when it was taken away: not for each attempt.
        assert 2 <= member.process.log(LOG_BYTES).count(f"denies Read on group {group} ") <= 3


@pytest.mark.timeout(300)
def test_group_topic_that_is_deleted_is_made_again(
    kafka: Cluster, guarded: Cluster, group: str, tmp_path: Path
) -> None:
    admin = admin_of(guarded)
    with Member(kafka, guarded.bootstrap(), group, tmp_path) as member:
        until(lambda: member.state.get("holds"), "it holds", HOLDS_SECONDS)
        admin.delete_topics([group])[group].result(30)
        until(lambda: member.problem("unreachable") or member.problem("failed"), "it is noticed", 60)
        until(lambda: group in admin.list_topics().topics, "it is made again", 60)
        until(lambda: member.state["holds"] and member.state["leased"], "it holds again", 60)


@pytest.mark.timeout(300)
def test_member_serves_while_the_fleets_cluster_is_away_and_comes_back_by_itself(
    kafka: Cluster, running: Cluster, group: str, tmp_path: Path
) -> None:
    running.kill_broker(1)
    with Member(kafka, running.bootstrap(), group, tmp_path) as member:
        member.process.wait_ready()  # its clients' cluster is up
        until(lambda: member.problem("unreachable"), "it is named", NAMED_SECONDS)
        until(lambda: member.state["cut_off"], "it is cut off", CUT_OFF_SECONDS)
        assert member.state["default_share"] == 0.25
        running.start_broker(1)
        until(lambda: member.state["holds"], "it holds", HOLDS_SECONDS)
        until(lambda: member.state["leased"], "it has a lease")
        assert not member.problem("unreachable")
        running.kill_broker(1)
        until(lambda: not member.state["holds"], "its tenure ends", HOLDS_SECONDS)
        until(lambda: member.problem("unreachable"), "it is named", NAMED_SECONDS)
        cut_off = "this member is cut off"
        until(lambda: member.process.log(LOG_BYTES).count(cut_off) == 2, "it is cut off", CUT_OFF_SECONDS)
        # Each time there were many attempts until then; what they failed with is said once.
        log = member.process.log(LOG_BYTES)
        assert log.count("the group of the fleet cannot be used") == 2, log
        running.start_broker(1)
        until(lambda: member.state["leased"], "it has a lease again", HOLDS_SECONDS)
