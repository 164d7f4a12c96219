"""The internal topics of a streams group count against the partition mutation quota of its members (KIP-1071)."""

import pytest

from protocol.api import CREATE_TOPICS, DELETE_TOPICS
from protocol.messages import metadata
from protocol.messages.streams import names_of, read_topology
from tests.support.frames import request
from tests.support.mutation_frames import create, delete, mutation_response, sizes
from tests.support.playbook import Drop, Ends, Insert, Pass, Playbook, Wait, playbook
from tests.support.streams_frames import Part, heartbeat_body, joined, joining, topology
from tests.unit.proxy.channel.handlers.test_topic_mutations import dialogue, engine, tokens

COUNT = (Part(sources=["words"], sinks=["app-r"]), Part(repartition={"app-r": 0}, changelogs=["app-c"]))
NAMES = names_of(read_topology(heartbeat_body("g", "m", 0, topology(*COUNT)), 0))
LOADING = 14


def looks_up(talk: Playbook, now_ms: int, asked: bytes, correlation_id: int = 1, **known: int) -> None:
    """Expect that the sizes of all topics are asked for, and have the broker respond; the request is kept."""
    question = metadata.request_by_name(NAMES, correlation_id, b"a")
    talk.client(now_ms, asked, Insert(question), Wait(0))
    found = sizes(
        4, {name: known.get(name.replace("-", "_"), 0) for name in NAMES}, correlation_id=correlation_id
    )
    talk.broker(now_ms, found, Drop(len(found)))


def joins(talk: Playbook, now_ms: int = 0, correlation_id: int = 1, **known: int) -> bytes:
    """A member joins, and its request is forwarded."""
    asked = joining(*COUNT, correlation_id=correlation_id)
    looks_up(talk, now_ms, asked, correlation_id, **known)
    talk.client(now_ms, b"", Pass(asked))
    return asked


def test_topics_that_lack_are_charged_and_those_that_exist_are_not() -> None:
    talk = dialogue()  # 20 tokens, 2 per s
    joins(talk, words=6)
    assert tokens(talk) == 20 - 2 * 6
    talk.responds(0, joined())
    assert (tokens(talk), talk.quotas.mutations.total) == (8, 12)
    joins(talk, 0, 2, words=6, app_r=6, app_c=6)
    assert tokens(talk) == 8


def test_second_member_costs_nothing_before_brokers_know_the_topics() -> None:
    talk = dialogue()
    joins(talk, words=6)
    talk.responds(0, joined())
    joins(talk, 100, 2, words=6)
    talk.responds(100, joined(2))
    assert talk.quotas.mutations.total == 12


def looks_up_and_joins(talk: Playbook, *parts: Part, correlation_id: int = 1) -> None:
    """A member joins with this topology, of which no topic exists, and its request is forwarded."""
    asked = joining(*parts, correlation_id=correlation_id)
    names = names_of(read_topology(heartbeat_body("g", "m", 0, topology(*parts)), 0))
    question = metadata.request_by_name(names, correlation_id, b"a")
    talk.client(0, asked, Insert(question), Wait(0))
    found = sizes(4, {}, correlation_id=correlation_id)
    talk.broker(0, found, Drop(len(found)))
    talk.client(0, b"", Pass(asked))


def test_topic_that_was_charged_with_fewer_partitions_costs_the_others() -> None:
    talk = dialogue()
    looks_up_and_joins(talk, Part(sources=["missing"], repartition={"r": 1}))
    talk.responds(0, joined())
    looks_up_and_joins(talk, Part(repartition={"r": 100}), correlation_id=2)
    assert tokens(talk) == 20 - 100


def test_refusal_returns_nothing_for_topics_that_another_member_was_not_charged_for() -> None:
    shared = engine()
    refused, accepted = playbook(shared), playbook(shared)
    for talk in (refused, accepted):
        looks_up_and_joins(talk, Part(repartition={"r": 100}))
    assert tokens(refused) == 20 - 100
    refused.responds(0, joined(error=30))
    assert tokens(refused) == 20 - 100


def test_topic_that_was_deleted_is_charged_anew() -> None:
    talk = dialogue(1e6)
    looks_up_and_joins(talk, Part(repartition={"r": 100}))
    talk.responds(0, joined())
    asked = delete(5, ["r"], correlation_id=2)
    talk.client(0, asked, Insert(metadata.request_by_name(["r"], 2, b"a")), Wait(0))
    found = sizes(4, {"r": 100}, correlation_id=2)
    talk.broker(0, found, Drop(len(found)))
    talk.client(0, b"", Pass(asked))
    talk.responds(0, mutation_response(DELETE_TOPICS, 5, [("r", 0)], correlation_id=2))
    before = tokens(talk)
    looks_up_and_joins(talk, Part(repartition={"r": 100}), correlation_id=3)
    assert tokens(talk) == before - 100


def test_topics_too_many_for_a_broker_are_not_paid_for_one_by_one() -> None:
    talk = dialogue(1e6)
    looks_up_and_joins(talk, Part(repartition={"r": 10_000, "q": 10_000}))
    talk.responds(0, joined())
    before = tokens(talk)
    looks_up_and_joins(talk, Part(repartition={"q": 10_000}), correlation_id=2)
    assert tokens(talk) == before - 10_000


def test_charge_for_a_topic_is_not_taken_for_its_size() -> None:
    shared = engine()
    talk, owner = playbook(shared), playbook(shared)
    looks_up_and_joins(talk, Part(repartition={"others": 2**31 - 1}))
    before = tokens(talk)
    asked = delete(4, ["others"])  # it is there, but the member may not see it
    owner.client(0, asked, Insert(metadata.request_by_name(["others"], 1, b"a")), Wait(0))
    found = sizes(4, {"others": 3})
    owner.broker(0, found, Drop(len(found)))
    owner.client(0, b"", Pass(asked))
    assert tokens(owner) == before - 3


def test_refused_member_costs_nothing() -> None:
    talk = dialogue()
    joins(talk, words=6)
    talk.responds(0, joined(error=30))
    assert (tokens(talk), talk.quotas.mutations.total) == (20, 0)
    joins(talk, 0, 2, words=6)
    assert tokens(talk) == 8, "charged anew"


def test_over_the_quota_the_member_is_to_try_again_and_nothing_is_created() -> None:
    talk = dialogue()
    talk.asks(0, create(7, {"t": 26}))
    response = mutation_response(CREATE_TOPICS, 7, [("t", 0)], partitions=26)
    talk.responds(0, response)
    asked = joining(*COUNT, correlation_id=2)
    looks_up(talk, 0, asked, 2, words=6)
    talk.client(0, b"", Drop(len(asked)), Wait(2000))  # -6 / 2 per s, and a fifth of a session of 10 s
    said = talk.inserted("broker", 0)
    assert said[4:15] == joined(2, error=LOADING, throttle_ms=2000)[4:15]
    assert tokens(talk) == -6, "it costs nothing"
    assert talk.stats.topics_rejected == {"StreamsGroupHeartbeat": 2}
    joins(talk, 3000, 3, words=6)  # -6 + 3 s * 2


def test_member_whose_topics_exist_joins_over_the_quota() -> None:
    talk = dialogue()
    talk.asks(0, create(7, {"t": 260}))
    talk.responds(0, mutation_response(CREATE_TOPICS, 7, [("t", 0)], partitions=260))
    joins(talk, 0, 2, words=6, app_r=6, app_c=6)


def test_observed_quota_lets_the_member_join() -> None:
    talk = dialogue(mode="observe")
    for number in (1, 2, 3):
        talk.asks(0, create(7, {f"t{number}": 26}, correlation_id=number))
        talk.responds(
            0, mutation_response(CREATE_TOPICS, 7, [(f"t{number}", 0)], partitions=26, correlation_id=number)
        )
    before = talk.stats.topics_would_reject["StreamsGroupHeartbeat"]
    joins(talk, 0, 4, words=60)
    assert (before, talk.stats.topics_would_reject["StreamsGroupHeartbeat"]) == (0, 2)


def test_one_request_cannot_leave_years_of_debt() -> None:
    talk = dialogue()
    vast = (Part(repartition={f"r{number}": 2**31 - 1 for number in range(3)}),)
    asked = joining(*vast)
    question = metadata.request_by_name([f"r{number}" for number in range(3)], 1, b"a")
    talk.client(0, asked, Insert(question), Wait(0))
    found = sizes(4, {})
    talk.broker(0, found, Drop(len(found)))
    talk.client(0, b"", Pass(asked))
    assert tokens(talk) == 20 - 10_000


def test_pipelined_members_do_not_pass_the_bucket() -> None:
    talk = dialogue()
    joins(talk, words=30)
    assert tokens(talk) == -40
    second = joining(*COUNT, correlation_id=2, group="other")
    talk.client(0, second, Wait(0))  # for the response to the first


def test_heartbeat_without_a_topology_passes() -> None:
    talk = dialogue()
    talk.asks(0, joining())
    talk.responds(0, joined())
    assert tokens(talk) == 20


def test_without_a_quota_everything_passes_unseen() -> None:
    talk = dialogue(None)
    asked = joining(*COUNT)
    talk.asks(0, asked)
    talk.responds(0, joined())


@pytest.mark.parametrize("size", [1024 * 1024 + 1])
def test_topology_is_not_kept_without_bound(size: int) -> None:
    whole = request(88, 1, size=size)
    assert dialogue().orders("client", 0, whole[:1000])[-1] == Ends("frame_length")


def test_long_names_are_not_kept() -> None:
    talk = dialogue()
    name = "n" * 300
    asked = joining(Part(repartition={name: 1}))
    talk.client(0, asked, Insert(metadata.request_by_name([name], 1, b"a")), Wait(0))
    found = sizes(4, {})
    talk.broker(0, found, Drop(len(found)))
    talk.client(0, b"", Pass(asked))
    assert len(talk.engine.mutations.internal_topics) == 0
