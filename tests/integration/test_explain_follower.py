"""`/v1/clients` and `/v1/client` name the replication quota that holds a follower back, on real brokers (KIP-73).

A follower is the client `broker-ID` of the user `<replication>`. The quotas are so low that the move lasts until the
verdict was read; then they are raised.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.replication_rig import ReplicationRig
from tests.support.waiting import until

FOLLOWERS = "<replication>"
SLOW = 300_000  # bytes/s: 12 MB take 40 s, and every batch of 110 kB waits for 0.37 s
FAST = 50_000_000
MEGABYTES = 12
MOVED_MIN = 400_000  # the first second's worth is over, so the limit is met

Document = dict[str, Any]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicationRig]:
    quotas = {"throttled": "reassignments", "leader_rate": SLOW, "follower_rate": FAST}
    with ReplicationRig(tmp_path_factory.mktemp("explain-follower"), quotas) as rig:
        yield rig


def explained(rig: ReplicationRig, broker: int) -> Document | None:
    return rig.sluice.asked("/v1/client", user=FOLLOWERS, client_id=f"broker-{broker}", window=10)


def explained_with_rule(rig: ReplicationRig, broker: int, side: str) -> Document:
    """Return a follower's document as soon as most of its time is held, by the rate of this side.

    The window may begin with waits of the test before.
    """
    found: list[Document] = []

    def is_held() -> bool:
        document = explained(rig, broker)
        if document is not None:
            print(document["sentence"], document["time"])
            found.append(document)
        if document is None or document["rule"] is None or document["time"]["held"] <= 0.5:
            return False
        return bool(document["rule"]["key"] == f"{side}.replication.throttled.rate")

    until(is_held, f"broker {broker} is held back")
    return found[-1]


def listed(rig: ReplicationRig, broker: int) -> Document:
    """Return a follower's row in the list of all clients."""
    document = rig.sluice.asked("/v1/clients", window=10)
    assert document is not None
    (row,) = (
        row
        for row in document["clients"]
        if (row["user"], row["client_id"]) == (FOLLOWERS, f"broker-{broker}")
    )
    return dict(row)


@pytest.mark.parametrize(("side", "holder"), [("leader", 1), ("follower", 3)])
def test_follower_waits_for_the_rate_of_one_side(rig: ReplicationRig, side: str, holder: int) -> None:
    other = "follower" if side == "leader" else "leader"
    rig.reconfigure(**{f"{side}_rate": SLOW, f"{other}_rate": FAST})
    topic = f"limited-by-{side}"
    rig.create(topic, [[1]])
    rig.fill(topic, MEGABYTES)
    rig.reassign({topic: [[1, 3]]})
    rig.watch(topic, 3, MOVED_MIN)
    found = explained_with_rule(rig, 3, side)
    row = listed(rig, 3)
    assert sum(found["time"].values()) == pytest.approx(1, abs=0.01)
    assert found["rule"] == {
        "kind": "replication",
        "key": f"{side}.replication.throttled.rate",
        "entity": f"broker {holder} as a {side}",
        "value": SLOW,
        "setting": "",
        "set_by": "",
        "set_at": "",
        "enforced": True,
        "changes_at": "",
        "then": None,
    }
    assert f"{side}.replication.throttled.rate 300.0 kB/s of broker {holder}" in found["sentence"]
    assert found["waits"][0]["kind"] == "replication"
    worst = found["connections"][0]
    assert (worst["broker"], worst["time"]["held"]) == (1, found["time"]["held"])
    assert row["rule"]["kind"] == "replication"
    assert (row["rule"]["entity"], row["rule"]["value"]) == (found["rule"]["entity"], SLOW)
    assert row["time"]["held"] > 0.2
    # Only broker 3 is behind.
    others = explained(rig, 2)
    assert others is None or others["rule"] is None
    rig.reconfigure(leader_rate=FAST, follower_rate=FAST)
    until(lambda: rig.in_sync(topic) == {0: {1, 3}}, "in sync")


def test_follower_in_sync_waits_for_records(rig: ReplicationRig) -> None:
    rig.reconfigure(leader_rate=SLOW, follower_rate=SLOW)
    rig.create("in-sync", [[1, 2]])
    until(lambda: rig.in_sync("in-sync") == {0: {1, 2}}, "in sync")

    def is_idle() -> bool:
        found = explained(rig, 2)
        return found is not None and found["rule"] is None and found["time"]["poll"] > 0.9

    until(is_idle, "the follower waits for records")
    row = listed(rig, 2)
    assert row["rule"] is None
    assert row["time"]["poll"] > 0.5
