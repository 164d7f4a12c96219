"""Topics that Metadata requests create, as dialogues: charged when they appear, denied over the quota (KIP-599)."""

from typing import Any

import pytest

from protocol.api import CREATE_TOPICS, METADATA
from proxy.channel.bounds import AUTO_CREATED_RESPONSE_BYTES_MAX
from quotas.definitions.entities import DEFAULT, Entity
from tests.support.engines import engine_with
from tests.support.frames import frame as framed_bytes
from tests.support.mutation_frames import answer, create, sizes
from tests.support.playbook import Pass, Playbook, channel_machine
from tests.unit.protocol.kafka_frames import REQUESTS, decoded, framed, struct

VERSION = 12


def dialogue(*, gateway: bool = False, **options: Any) -> Playbook:
    """2 mutations/s, 10 windows of 1 s: 20 tokens."""
    entries = {Entity(client_id=DEFAULT): {"controller_mutation_rate": 2.0}}
    engine = engine_with(entries, window_samples=10, **options)
    return Playbook(channel_machine(engine, gateway=gateway))


def ask(
    names: list[str] | None, version: int = VERSION, *, creates: bool = True, correlation_id: int = 1
) -> bytes:
    topics = None
    if names is not None:
        topics = []
        for name in names:
            topic = struct(REQUESTS[METADATA], version, "MetadataRequestTopic")
            topic.name = name
            topics.append(topic)
    message = REQUESTS[METADATA][version](topics=topics)
    if version >= 4:
        message.allow_auto_topic_creation = creates
    return framed(message, correlation_id, "a")


def tokens(talk: Playbook) -> float:
    throttle = talk.engine.client("ANONYMOUS", "a", 1).mutations
    assert throttle.limits(0)
    left = throttle.tokens(0)
    assert left is not None
    return left


def see(talk: Playbook, asked: bytes, answered: bytes) -> None:
    """Ask, and hear the answer; both pass as they are."""
    talk.client(0, asked, Pass(asked))
    talk.broker(0, answered, Pass(answered))


@pytest.mark.parametrize("version", [1, 4, 9, 12, 13])
def test_auto_created_topic_is_charged_to_the_client_that_named_it(version: int) -> None:
    talk = dialogue()
    see(talk, ask(["t"], version), sizes(version, {"t": 0}))
    assert tokens(talk) == 20
    see(talk, ask(["t"], version), sizes(version, {"t": 6}))
    assert tokens(talk) == 14
    see(talk, ask(["t"], version), sizes(version, {"t": 6}))
    assert tokens(talk) == 14  # once


def test_topic_that_was_there_costs_nothing() -> None:
    talk = dialogue()
    see(talk, ask(["t"]), sizes(VERSION, {"t": 6}))
    assert tokens(talk) == 20


def test_client_that_creates_no_topic_is_not_charged() -> None:
    talk = dialogue()
    see(talk, ask(["t"], creates=False), sizes(VERSION, {"t": 0}))
    see(talk, ask(["t"]), sizes(VERSION, {"t": 6}))
    see(talk, ask(None), sizes(VERSION, {"u": 0}))
    see(talk, ask(["u"]), sizes(VERSION, {"u": 6}))
    assert tokens(talk) == 20


def test_topic_that_is_created_on_purpose_meanwhile_is_charged_once() -> None:
    talk = dialogue()
    see(talk, ask(["t"]), sizes(VERSION, {"t": 0}))
    see(talk, create(7, {"t": 6}), answer(CREATE_TOPICS, 7, [("t", 0)], partitions=6))
    see(talk, ask(["t"]), sizes(VERSION, {"t": 6}))
    assert tokens(talk) == 14


def test_over_the_quota_the_request_creates_nothing() -> None:
    talk = dialogue()
    see(talk, create(7, {"big": 50}), answer(CREATE_TOPICS, 7, [("big", 0)], partitions=50))
    asked = ask(["t"])
    denied = ask(["t"], creates=False)
    talk.client(0, asked, Pass(denied))
    assert decoded(REQUESTS[METADATA], VERSION, denied).allow_auto_topic_creation is False
    talk.broker(0, sizes(VERSION, {"t": 0}), Pass(sizes(VERSION, {"t": 0})))
    assert talk.stats.topics_rejected == {"Metadata": 1}
    later = ask(["t"])
    talk.client(15_000, later, Pass(later))  # -30 + 15 s · 2


def test_version_that_always_creates_is_charged_all_the_same() -> None:
    talk = dialogue()
    see(talk, create(7, {"big": 50}), answer(CREATE_TOPICS, 7, [("big", 0)], partitions=50))
    see(talk, ask(["t"], 1), sizes(1, {"t": 0}))
    see(talk, ask(["t"], 1), sizes(1, {"t": 3}))
    assert tokens(talk) == -33  # 20 - 50 - 3


def test_observe_charges_auto_created_topics_and_rejects_none() -> None:
    talk = dialogue(mode="observe")
    see(talk, create(7, {"big": 50}), answer(CREATE_TOPICS, 7, [("big", 0)], partitions=50))
    see(talk, ask(["t"]), sizes(VERSION, {"t": 0}))
    see(talk, ask(["t"]), sizes(VERSION, {"t": 3}))
    assert tokens(talk) == -33


def test_gateway_still_rewrites_addresses() -> None:
    talk = dialogue(gateway=True)
    talk.client(0, ask(["t"]), Pass(ask(["t"])))
    orders = talk.orders("broker", 0, sizes(VERSION, {"t": 0}))
    assert b"".join(getattr(order, "data", b"") for order in orders) == sizes(VERSION, {"t": 0})
    assert len(talk.engine.mutations.auto_creating) == 1


def test_answer_that_is_too_large_is_not_looked_through() -> None:
    talk = dialogue()
    talk.client(0, ask(["t"]), Pass(ask(["t"])))
    large = framed_bytes(b"\0\0\0\1" + bytes(AUTO_CREATED_RESPONSE_BYTES_MAX))
    talk.broker(0, large, Pass(large))


def test_auto_created_topics_are_free_if_configured() -> None:
    talk = dialogue(charge_auto_created=False)
    see(talk, ask(["t"]), sizes(VERSION, {"t": 0}))
    see(talk, ask(["t"]), sizes(VERSION, {"t": 6}))
    assert tokens(talk) == 20
