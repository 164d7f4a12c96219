"""A follower's Fetches decided in portions of any size: the same bytes, the same waits, as decided at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import primitives
from quotas.replication.replication_quotas import (
    BrokerLimits,
    ReplicationOptions,
    ReplicationQuotas,
    ThrottledReplicas,
    parse_replicas,
)
from tests.support.playbook import stats_of
from tests.support.replicas import Follower, Leader, Link, Partition, topic_names

EVERY = [(topic, partition) for topic in (1, 2, 3) for partition in (0, 1, 2)]
AT_ONCE = 1 << 30

PARTITIONS = st.sampled_from(EVERY)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.sampled_from([1, 30, 400, 3000])),
        st.tuples(st.just("produced"), PARTITIONS),
        st.tuples(st.just("assigned"), PARTITIONS),
        st.tuples(st.just("taken_away"), PARTITIONS),
        st.tuples(st.just("limit"), st.sampled_from([0, 1, 5000])),
        st.tuples(st.just("throttle"), st.sampled_from(["", "*", "0:1", "0:1,1:1"])),
        st.tuples(st.just("drop_sessions"), st.booleans()),
        st.tuples(st.just("reconnect"), st.just(0)),
        st.tuples(st.just("told"), st.booleans()),
        st.tuples(st.just("rounds"), st.integers(1, 4)),
    ),
    min_size=5,
    max_size=40,
)
Step = tuple[str, object]


@contextmanager
def portions_of(size: int) -> Iterator[None]:
    before = primitives.PORTION
    primitives.PORTION = size  # type: ignore[misc]
    try:
        yield
    finally:
        primitives.PORTION = before  # type: ignore[misc]


class Scene:
    """A follower, its leader, and what was said."""

    def __init__(self, version: int, policy: str, wanted: set[Partition]) -> None:
        self.now_ms = 0
        self.quotas = ReplicationQuotas(
            ReplicationOptions(policy="kip73" if policy == "kip73" else "schedule")
        )
        self.quotas.name_topics(topic_names([1, 2, 3]))
        self.throttle("*")
        self.quotas.limit(BrokerLimits(default=5000), BrokerLimits(default=3000))
        self.leader = Leader(ends=dict.fromkeys(EVERY, 100))
        self.follower = Follower(version=version, offsets=dict.fromkeys(sorted(wanted), 0))
        self.link = Link(self.quotas, self.follower, self.leader)
        self.waiting = False
        self.said: list[object] = []

    def throttle(self, text: str) -> None:
        listed = parse_replicas(text)[0]
        self.quotas.throttle(
            ThrottledReplicas(leaders={"t1": listed, "t2": listed}, followers={"t2": listed})
        )

    def time(self, after_ms: int) -> None:
        self.now_ms += after_ms

    def produced(self, key: Partition) -> None:
        self.leader.ends[key] += 5

    def assigned(self, key: Partition) -> None:
        self.follower.offsets.setdefault(key, 0)

    def taken_away(self, key: Partition) -> None:
        if len(self.follower.offsets) > 1:  # a fetcher without partitions sends nothing
            self.follower.offsets.pop(key, None)

    def limit(self, rate: int) -> None:
        self.quotas.limit(BrokerLimits(default=rate), BrokerLimits())

    def drop_sessions(self, keeps: bool) -> None:
        self.leader.drop_sessions()
        self.leader.keeps_sessions = keeps

    def reconnect(self, _: int) -> None:
        self.link.connect()
        self.waiting = False

    def told(self, asked: bool) -> None:
        self.quotas.last_completed_poll = self.quotas.polls_started if asked else None
        self.quotas.polls_started += asked

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def round(self) -> None:
        sent = self.link.show(b"", self.now_ms) if self.waiting else self.link.send(self.now_ms)
        self.waiting = isinstance(sent, int)
        self.said.append(sent)
        if isinstance(sent, bytes):
            response, _ = self.leader.respond(self.follower.version, sent)
            self.said.append(self.link.relay(response, self.now_ms))


def said(version: int, policy: str, wanted: set[Partition], steps: list[Step], portion: int) -> list[object]:
    with portions_of(portion):
        scene = Scene(version, policy, wanted)
        for what, value in steps:
            getattr(scene, what)(value)
        for _ in scene.link.channel.close(scene.now_ms):
            ...
    stats = stats_of(scene.link.channel)
    rates = [(side, rate.total, rate.room(scene.now_ms)) for side, _, rate in scene.quotas.rates()]
    return [*scene.said, rates, stats.replicas_left_out, stats.replicas_passed_unasked, scene.quotas.replicas]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    version=st.sampled_from([12, 13, 15, 18]),
    policy=st.sampled_from(["kip73", "schedule"]),
    wanted=st.sets(PARTITIONS, min_size=1),
    steps=STEPS,
    portion=st.integers(1, 4),
)
def test_portions_decide_as_all_at_once(
    version: int, policy: str, wanted: set[Partition], steps: list[Step], portion: int
) -> None:
    assert said(version, policy, wanted, steps, portion) == said(version, policy, wanted, steps, AT_ONCE)
