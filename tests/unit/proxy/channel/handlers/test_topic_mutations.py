"""CreateTopics, CreatePartitions, DeleteTopics under the partition mutation quota, as dialogues (KIP-599).

2 mutations/s with 10 windows of 1 s: a burst of 20, as in Kafka's own ControllerMutationQuotaTest.
"""

from typing import Any, Final

import pytest

from protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.messages import metadata
from protocol.messages.topic_mutations import TOPICS_MAX
from proxy.channel import AGAIN, PASS
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity
from quotas.engine import Engine
from tests.support.engines import engine_with
from tests.support.frames import heartbeat, join_group
from tests.support.frames import request as raw_request
from tests.support.frames import some_response as plain_response
from tests.support.mutation_frames import (
    EXCEEDED,
    TOPIC_ID,
    assigned,
    create,
    delete,
    errors,
    grow,
    mutation_response,
    sizes,
)
from tests.support.playbook import (
    Drop,
    Ends,
    Insert,
    More,
    Pass,
    Passthrough,
    Playbook,
    Wait,
    ordered_job,
    playbook,
)

STRICT = 7
OLD = 5
EXISTS = 36
TIMED_OUT = 7


def engine(rate: float | None = 2, **options: Any) -> Engine:
    entries = {} if rate is None else {Entity(client_id=DEFAULT): {"controller_mutation_rate": float(rate)}}
    return engine_with(entries, window_samples=10, **options)


def dialogue(rate: float | None = 2, **options: Any) -> Playbook:
    return playbook(engine(rate, **options))


def tokens(talk: Playbook) -> float:
    throttle = talk.quotas.mutations
    assert throttle.limits(0)
    left = throttle.tokens(0)
    assert left is not None
    return left


def sent_on(talk: Playbook, who: str, now_ms: int, data: bytes) -> bytes:
    """Show a request or a response, or again what was kept of it, and give what goes on of it or in its place."""
    orders = talk.orders(who, now_ms, data)
    assert [type(order) for order in orders] in ([Pass], [Insert, Drop]), orders
    return b"".join(order.data for order in orders if isinstance(order, Pass | Insert))


def created(
    talk: Playbook,
    version: int,
    topics: dict[str, int] | list[tuple[str, int]],
    results: list[tuple[str, int]],
    partitions: int = -1,
    throttle_ms: int = 0,
) -> int:
    """Let a CreateTopics pass, with these results, and give the throttle time that the client is told."""
    talk.asks(0, create(version, topics))
    said = mutation_response(CREATE_TOPICS, version, results, partitions=partitions, throttle_ms=throttle_ms)
    told, told_ms = errors(CREATE_TOPICS, version, sent_on(talk, "broker", 0, said))
    assert told == results
    return told_ms


def looked_up(talk: Playbook, asked: bytes, question: bytes, known: bytes) -> None:
    """Expect that the sizes of a request's topics are asked for, and have the broker respond."""
    talk.client(0, asked, Insert(question), Wait(0))
    talk.broker(0, known, Drop(len(known)))


ONE = metadata.request_by_name(["one"], 1, b"a")


def test_without_a_quota_everything_passes_unseen() -> None:
    talk = dialogue(None)
    asked = create(STRICT, {"t": 1000})
    talk.client(0, asked[:30], Pass(asked[:30]), Passthrough(len(asked) - 30))
    talk.asks(0, asked[30:])
    talk.responds(0, mutation_response(CREATE_TOPICS, STRICT, [("t", 0)]))


def test_topics_beyond_the_bucket_are_taken_out_and_get_responses_with_error_89() -> None:
    talk = dialogue()
    # 20 tokens: 30 partitions are admitted and leave -10, the next topic is rejected.
    asked = create(STRICT, {"one": 30, "two": 30, "three": 1})
    assert sent_on(talk, "client", 0, asked) == create(STRICT, {"one": 30})
    assert tokens(talk) == -10
    told = sent_on(talk, "broker", 0, mutation_response(CREATE_TOPICS, STRICT, [("one", 0)], partitions=30))
    assert errors(CREATE_TOPICS, STRICT, told) == (
        [("one", 0), ("two", EXCEEDED), ("three", EXCEEDED)],
        5000,  # 10 / 2 per s
    )
    talk.client(0, b"", Wait(5000))
    assert talk.stats.topics_rejected == {"CreateTopics": 2}
    assert talk.quotas.mutations.total == 30


# Version, topics, results, partitions of each in the response; tokens after the request and after the response;
# the throttle time that is told, and waited for.
CREATIONS: Final[dict[str, tuple[int, Any, list[tuple[str, int]], int, int, int, int]]] = {
    "nothing is rejected": (STRICT, {"one": 300}, [("one", 0)], 300, -280, -280, 0),
    "an old version": (OLD, {"one": 30, "two": 30}, [("one", 0), ("two", 0)], 30, -40, -40, 20_000),  # 40 / 2 per s
    "one topic fails": (OLD, {"one": 30, "two": 30}, [("one", EXISTS), ("two", 0)], 30, -40, -10, 5000),
    "it timed out and may be made": (STRICT, {"one": 30}, [("one", TIMED_OUT)], -1, -10, -10, 0),
    # The broker is left to say so.
    "a topic is named twice": (
        STRICT, [("one", 30), ("one", 30), ("two", 5)], [("two", 0), ("one", 42)], 5, 15, 15, 0
    ),
    "no partitions": (STRICT, {"one": 0}, [("one", 37)], -1, 20, 20, 0),
    "fewer than none": (STRICT, {"one": -2}, [("one", 37)], -1, 20, 20, 0),
    "more than any broker creates": (STRICT, {"one": 2 * 10**9}, [("one", 44)], -1, 20 - 10_000, 20, 0),
}  # fmt: skip


@pytest.mark.parametrize("case", CREATIONS.values(), ids=CREATIONS)
def test_created_partitions_are_charged_and_settled(case: Any) -> None:
    version, topics, results, partitions, charged, left, told_ms = case
    talk = dialogue()
    talk.asks(0, create(version, topics))
    assert tokens(talk) == charged
    said = mutation_response(CREATE_TOPICS, version, results, partitions=partitions)
    assert errors(CREATE_TOPICS, version, sent_on(talk, "broker", 0, said)) == (results, told_ms)
    assert tokens(talk) == left
    talk.client(0, b"", *[Wait(told_ms)] * bool(told_ms))


def test_request_that_is_rejected_whole_gets_a_response_here() -> None:
    talk = dialogue()
    created(talk, STRICT, {"one": 25}, [("one", 0)], 25)
    second = create(STRICT, {"two": 1, "three": 1}, correlation_id=2)
    talk.client(500, second, Drop(len(second)), Wait(2500))  # -5 + 1 = -4 tokens: 4 / 2 per s
    made = talk.inserted("broker", 500)
    assert errors(CREATE_TOPICS, STRICT, made) == ([("two", EXCEEDED), ("three", EXCEEDED)], 2000)
    talk.asks(2500, create(STRICT, {"two": 1}, correlation_id=3))  # the bucket is at 0, which is enough


@pytest.mark.parametrize(("api_key", "version"), [(CREATE_TOPICS, 1), (CREATE_TOPICS, 0), (DELETE_TOPICS, 0)])
def test_version_without_a_throttle_time_is_muted_all_the_same(api_key: int, version: int) -> None:
    talk = dialogue()
    if api_key == CREATE_TOPICS:
        talk.asks(0, create(version, {"one": 30}))
    else:
        looked_up(talk, delete(version, ["one"]), ONE, sizes(4, {"one": 30}))
        talk.client(0, b"", Pass(delete(version, ["one"])))
    response = mutation_response(api_key, version, [("one", 0)])
    assert sent_on(talk, "broker", 0, response) == response
    talk.client(0, b"", Wait(5000))  # (30 - 20) / 2 per s


def test_formula_is_told_in_full_and_the_mute_is_capped() -> None:
    talk = dialogue(mute_seconds_max=3)
    assert created(talk, OLD, {"one": 40}, [("one", 0)], 40) == 10_000  # (40 - 20) / 2 per s
    talk.client(0, b"", Wait(3000))


def test_group_member_is_told_no_more_than_the_mute() -> None:
    talk = dialogue()
    talk.asks(0, join_group(5, 10_000))
    talk.responds(0, plain_response())
    assert created(talk, OLD, {"one": 40}, [("one", 0)], 40) == 2000  # a fifth of the session timeout


def test_larger_throttle_time_of_the_broker_is_told() -> None:
    talk = dialogue()
    assert created(talk, OLD, {"one": 30}, [("one", 0)], 30, throttle_ms=9000) == 9000
    talk.client(0, b"", Wait(5000))  # and muted for our own part


def test_assignments_by_hand_count_their_number() -> None:
    talk = dialogue()
    talk.asks(0, assigned(STRICT, "one", 6))
    assert tokens(talk) == 14  # whatever the number of replicas


def test_brokers_default_is_learned_from_its_response() -> None:
    talk = dialogue()
    talk.asks(0, create(STRICT, {"one": -1}))
    assert tokens(talk) == 19  # 1 until it is known
    talk.responds(0, mutation_response(CREATE_TOPICS, STRICT, [("one", 0)], partitions=4))
    assert tokens(talk) == 16  # corrected: 20 - 4
    talk.asks(0, create(STRICT, {"two": -1}))
    assert tokens(talk) == 12


@pytest.mark.parametrize(("charged", "left"), [(True, 15), (False, 20)], ids=["as in KRaft", "free"])
def test_validate_only_is_charged_if_configured(charged: bool, left: int) -> None:
    talk = dialogue(charge_validate_only=charged)
    talk.asks(0, create(STRICT, {"one": 5}, validate_only=True))
    talk.responds(0, mutation_response(CREATE_TOPICS, STRICT, [("one", 0)], partitions=5))
    assert (tokens(talk), talk.quotas.mutations.total) == (left, 0)


def test_added_partitions_count_beyond_those_there_are() -> None:
    talk = dialogue()
    asked = grow(3, {"one": 8, "two": 30, "three": 9, "unknown": 50})
    question = metadata.request_by_name(["one", "two", "three", "unknown"], 1, b"a")
    looked_up(talk, asked, question, sizes(4, {"one": 3, "two": 10, "three": 8, "unknown": 0}))
    # one: 8 - 3 = 5, two: 30 - 10 = 20; then -5 tokens: three is rejected; who is not known costs nothing.
    assert sent_on(talk, "client", 0, b"") == grow(3, {"one": 8, "two": 30, "unknown": 50})
    assert tokens(talk) == -5
    response = mutation_response(CREATE_PARTITIONS, 3, [("one", 0), ("two", 37), ("unknown", 3)])
    told, throttle_ms = errors(CREATE_PARTITIONS, 3, sent_on(talk, "broker", 0, response))
    assert told == [("one", 0), ("two", 37), ("three", EXCEEDED), ("unknown", 3)]
    # two failed, 20 tokens are back: 15; nothing to wait for any more.
    assert (throttle_ms, tokens(talk)) == (0, 15)


def test_deleted_topics_count_their_partitions_by_name_and_id() -> None:
    talk = dialogue()
    asked = delete(6, ["one", TOPIC_ID])
    by_name = metadata.request_by_name(["one"], 1, b"a")
    by_id = metadata.request_by_id([TOPIC_ID.bytes], 1, b"a")
    talk.client(0, asked, Insert(by_name + by_id), Wait(0))
    named, found = sizes(4, {"one": 30}), sizes(12, {"two": 4})
    talk.broker(0, named, Drop(len(named)))
    talk.client(0, b"", Wait(0))
    talk.broker(0, found, Drop(len(found)))
    assert sent_on(talk, "client", 0, b"") == delete(6, ["one"])
    assert tokens(talk) == -10
    response = mutation_response(DELETE_TOPICS, 6, [("one", 0)], topic_id=TOPIC_ID)
    told = sent_on(talk, "broker", 0, response)
    assert errors(DELETE_TOPICS, 6, told) == ([("one", 0), (None, EXCEEDED)], 5000)
    assert talk.stats.topic_lookups == 2


def test_question_that_is_cut_is_waited_for() -> None:
    talk = dialogue()
    asked, known = delete(5, ["one"]), sizes(4, {"one": 3})
    talk.client(0, asked, Insert(ONE), Wait(0))
    talk.broker(0, known[:20], More(len(known)))
    talk.broker(0, known[20:], Drop(len(known)))
    talk.client(0, b"", Pass(asked))
    assert tokens(talk) == 17


def test_size_of_a_topic_made_moments_ago_is_known_before_the_broker_knows_it() -> None:
    talk = dialogue()
    talk.asks(0, create(STRICT, {"one": 6}))
    response = mutation_response(CREATE_TOPICS, STRICT, [("one", 0)], partitions=6, topic_id=TOPIC_ID)
    talk.responds(0, response)
    gone = delete(6, [TOPIC_ID])
    looked_up(talk, gone, metadata.request_by_id([TOPIC_ID.bytes], 1, b"a"), sizes(12, {}))
    talk.client(0, b"", Pass(gone))
    assert tokens(talk) == 8  # 20 - 6 - 6


def test_one_mutation_at_a_time_however_the_client_pipelines() -> None:
    talk = dialogue()
    first, second = create(OLD, {"one": 30}), create(OLD, {"two": 1}, correlation_id=2)
    talk.client(0, first + second, Pass(first), Wait(0))
    sent_on(talk, "broker", 1000, mutation_response(CREATE_TOPICS, OLD, [("one", 0)], partitions=30))
    talk.client(1000, b"", Wait(5000))  # (10 - 2) / 2 per s: muted as Kafka mutes
    talk.client(5000, b"", Pass(second))


def test_other_requests_pass_while_a_mutation_is_under_way() -> None:
    talk = dialogue()
    talk.asks(0, create(OLD, {"one": 30}))
    talk.asks(0, heartbeat(correlation_id=2))


def test_observe_rejects_no_topic_and_mutes_no_client_and_counts() -> None:
    talk = dialogue(mode="observe")
    talk.asks(0, create(STRICT, {"one": 30, "two": 30}))
    response = mutation_response(CREATE_TOPICS, STRICT, [("one", 0), ("two", 0)], partitions=30)
    talk.responds(0, response)
    assert (
        tokens(talk) == 0
    )  # -10, but the 5 s that the client would have waited are over; "two" is not charged
    stats = talk.stats
    assert (stats.topics_rejected, stats.topics_would_reject) == ({}, {"CreateTopics": 1})
    talk.asks(0, create(OLD, {"three": 2}, correlation_id=2))
    response = mutation_response(CREATE_TOPICS, OLD, [("three", 0)], partitions=2, correlation_id=2)
    talk.responds(0, response)
    throttle = talk.quotas.mutations
    assert (throttle.throttled_total, throttle.would_throttled_total) == (0, 2)
    list(talk.channel.close(20_000))
    # 10 / 2 per s, and 2 / 2 per s: 6 s of the 26 s that it would have taken.
    assert throttle.would_throttle_ms_total == 20_000 * 6_000 // 26_000


def test_enforcement_off_is_a_plain_relay_and_forgives_nothing() -> None:
    talk = dialogue()
    created(talk, STRICT, {"one": 25}, [("one", 0)], 25)
    talk.engine.switch_enforcement(False)
    talk.asks(0, delete(6, ["one"]))
    talk.responds(0, mutation_response(DELETE_TOPICS, 6, [("one", 0)]))
    talk.engine.switch_enforcement(True)
    assert tokens(talk) == -5


def test_question_under_way_is_swallowed_though_enforcement_ends() -> None:
    talk = dialogue()
    gone, known = delete(6, ["one"]), sizes(4, {"one": 3})
    talk.client(0, gone, Insert(ONE), Wait(0))
    talk.engine.switch_enforcement(False)
    talk.client(0, b"", Pass(gone))
    talk.broker(0, known, Drop(len(known)))
    talk.responds(0, mutation_response(DELETE_TOPICS, 6, [("one", 0)]))


def test_raised_quota_ends_the_mute() -> None:
    talk = dialogue()
    assert created(talk, OLD, {"one": 30}, [("one", 0)], 30) == talk.mute_left_ms(0) == 5000
    entries = {Entity(client_id=DEFAULT): {"controller_mutation_rate": 1000.0}}
    talk.engine.update(talk.engine.options, Definitions(entries), 100)
    talk.channel.reconsider()
    assert talk.mute_left_ms(100) == 0


@pytest.mark.parametrize("version", [8, -1])
def test_unknown_version_ends_the_connection_under_a_quota_alone(version: int) -> None:
    talk = dialogue()
    talk.client(0, raw_request(CREATE_TOPICS, version, size=60), Ends("unsupported_version"))
    talk = dialogue(None)
    talk.asks(0, raw_request(CREATE_TOPICS, version, size=60))


@pytest.mark.parametrize(
    "asked",
    [raw_request(CREATE_TOPICS, 7, size=60), create(STRICT, {f"t{n}": 1 for n in range(TOPICS_MAX + 1)})],
)
def test_request_that_cannot_be_read_or_is_too_large_ends_the_connection(asked: bytes) -> None:
    dialogue().client(0, asked, Ends("malformed"))


def test_response_about_many_topics_is_settled_in_parts() -> None:
    """Each turn of the loop compares a part of them; the client hears nothing before all are."""
    talk = dialogue(1e6)
    names = [f"t{index}" for index in range(2500)]
    talk.orders("client", 0, create(STRICT, dict.fromkeys(names, 1)))
    direction = talk.channel.responses
    buf = bytearray(mutation_response(CREATE_TOPICS, STRICT, [(name, EXISTS) for name in names]))
    turns = 0
    while True:
        verdict = direction.receive(buf, 0, len(buf), 0)
        job = ordered_job(direction)
        if job is None:
            break
        job.run()
        turns += job is AGAIN
    assert (verdict.passing, verdict.order) == (len(buf), PASS)
    assert turns == 2
    assert tokens(talk) == 1e7  # all of it was given back
