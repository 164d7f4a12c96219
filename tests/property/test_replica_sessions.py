"""A follower and a leader with Sluice between them, in any order: nothing is ever lost from a session (KIP-73).

The follower and the leader of `tests.support.replicas` judge: a follower raises where Kafka's would throw its session
away. What must hold after every request that reaches the leader: its session is exactly what the follower wants less
what was left out, with the follower's offsets; and in the end, with the throttle gone, the follower has everything.
"""

from copy import deepcopy

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from quotas.replication.rates import PacedRate
from quotas.replication.replication_quotas import BrokerLimits, ThrottledReplicas, parse_replicas
from tests.property.test_replication_portions import EVERY, Scene
from tests.support.replicas import Partition

PARTITIONS = st.tuples(st.integers(1, 3), st.integers(0, 2))
LISTS = st.sampled_from(["", "*", "0:1", "0:1,1:1", "2:1,0:3"])


def last_room(rate: PacedRate, now_ms: int) -> int | None:
    """The room in the last quarter of the quota, after all the rest was reserved."""
    for _ in range(3):
        rate.reserve(rate.room(now_ms) or 0)
        now_ms += 10_000  # the bucket, of a quarter of a second, is full again
    return rate.room(now_ms)


class ReplicaSessions(RuleBasedStateMachine):
    """Time moves only by `time`, so that quotas hold between."""

    @initialize(
        version=st.sampled_from([12, 13, 15, 18]),
        policy=st.sampled_from(["kip73", "schedule"]),
        wanted=st.sets(PARTITIONS, min_size=1),
    )
    def begin(self, version: int, policy: str, wanted: set[Partition]) -> None:
        self.now_ms = 0
        scene = Scene(version, policy, wanted)
        self.quotas, self.leader, self.follower, self.link = (
            scene.quotas,
            scene.leader,
            scene.follower,
            scene.link,
        )
        self.sent: bytes | None = None
        self.waiting = False

    @rule(after_ms=st.sampled_from([1, 30, 400, 3000]))
    def time(self, after_ms: int) -> None:
        self.now_ms += after_ms

    @rule(key=st.sampled_from(EVERY), count=st.integers(1, 40))
    def produced(self, key: Partition, count: int) -> None:
        self.leader.ends[key] += count

    @rule(key=st.sampled_from(EVERY))
    def assigned(self, key: Partition) -> None:
        self.follower.offsets.setdefault(key, 0)

    @rule(key=st.sampled_from(EVERY))
    def taken_away(self, key: Partition) -> None:
        if len(self.follower.offsets) > 1:  # a fetcher without partitions sends nothing
            self.follower.offsets.pop(key, None)

    @rule(key=st.sampled_from(EVERY))
    def truncated(self, key: Partition) -> None:
        if key in self.follower.offsets:
            self.follower.offsets[key] = 0

    @rule(topic=st.integers(1, 3), text=LISTS, leaders=st.booleans())
    def throttled(self, topic: int, text: str, leaders: bool) -> None:
        lists = {f"t{topic}": parse_replicas(text)[0]}
        self.quotas.throttle(
            ThrottledReplicas(leaders=lists) if leaders else ThrottledReplicas(followers=lists)
        )

    @rule(leader=st.sampled_from([None, 0, 1, 5000]), follower=st.sampled_from([None, 0, 1, 5000]))
    def limited(self, leader: int | None, follower: int | None) -> None:
        self.quotas.limit(BrokerLimits(default=leader), BrokerLimits(default=follower))

    @rule(on=st.booleans())
    def switched(self, on: bool) -> None:
        self.quotas.enforcing = on

    @rule(keeps=st.booleans())
    def leader_drops_sessions(self, keeps: bool) -> None:
        self.leader.drop_sessions()
        self.leader.keeps_sessions = keeps

    @rule()
    def reconnected(self) -> None:
        self.sent, self.waiting = None, False
        self.link.connect()

    @rule(times=st.integers(1, 4))
    def goes_on(self, times: int) -> None:
        for _ in range(times):
            self.asks()
            self.respond(1 << 30)
            self.now_ms += 50

    @rule()
    def asks(self) -> None:
        if self.sent is not None:
            return
        outcome = self.link.show(b"", self.now_ms) if self.waiting else self.link.send(self.now_ms)
        self.waiting = isinstance(outcome, int)
        if isinstance(outcome, bytes):
            self.sent = outcome

    @rule(piece_bytes=st.sampled_from([3, 50, 1 << 30]))
    def respond(self, piece_bytes: int) -> None:
        if self.sent is None:
            return
        frame, self.sent = self.sent, None
        response, _ = self.leader.respond(self.follower.version, frame)
        refused = self.leader.seen[-1].session_epoch > 0 and not self.leader.sessions
        if not refused:
            self.judge_leader()
        self.link.relay(response, self.now_ms, piece_bytes)

    def judge_leader(self) -> None:
        """Compare what the leader was asked for with what the follower wants."""
        (link,) = self.quotas.links
        known = {
            (int.from_bytes(topic, "big") if len(topic) == 16 else int(topic[1:]), partition): offsets
            for topic, partition, *offsets in link.replica_offsets()
        }
        wanted, asked = self.follower.session, self.leader.asked
        assert set(asked) <= set(wanted)
        for key in set(wanted).difference(asked):
            assert key in known, f"{key} was left out, and may be in sync"
            fetch_offset, high_watermark = known[key]
            assert fetch_offset < high_watermark, f"{key} is in sync and was left out"
        assert {key: wanted[key] for key in known} == {key: offset for key, (offset, _) in known.items()}

    @invariant()
    def nothing_is_reserved_without_a_fetch(self) -> None:
        if getattr(self, "sent", None) is None and hasattr(self, "quotas"):
            for _, _, rate in self.quotas.rates():
                if isinstance(rate, PacedRate):
                    later_ms = self.now_ms + 10**9  # by then every debt is paid
                    fresh = PacedRate(rate.limit, later_ms)
                    assert last_room(deepcopy(rate), later_ms) == last_room(fresh, later_ms)

    def teardown(self) -> None:
        """Without a throttle the follower gets everything, over the session it has."""
        if not hasattr(self, "link"):
            return
        self.quotas.enforcing = False
        if self.sent is not None:
            self.respond(1 << 30)
        for _ in range(12):
            self.asks()
            self.respond(1 << 30)
        for key, offset in self.follower.offsets.items():
            assert offset == self.leader.ends[key], key


TestReplicaSessions = pytest.mark.interpreted(ReplicaSessions.TestCase)
TestReplicaSessions.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
