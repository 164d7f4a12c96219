"""A worker's part of the configuration, and how many workers there are."""

import os
from pathlib import Path

import pytest

from proxy.app import workers_of
from proxy.config import AUTO, Address, Config, ListenerOptions, ProcessOptions
from proxy.config.options import ClusterOptions, LimitOptions
from proxy.process.workers import (
    PAUSE_MS_MAX,
    PAUSE_MS_MIN,
    SILENT_TICKS_MAX,
    STEADY_MS,
    Restarts,
    SharedTopicNames,
    part_of,
)

CLIENTS = ListenerOptions()
BROKERS = ListenerOptions(name="brokers", kind="replication", upstreams={1: Address("127.0.0.1", 1)})


def test_worker_has_the_listeners_for_clients() -> None:
    assert part_of(Config(listeners=(CLIENTS, BROKERS)), 2).listeners == (CLIENTS,)


def test_worker_has_its_part_of_what_bounds_memory_and_descriptors() -> None:
    limits = part_of(Config(limits=LimitOptions(connections_max=5, kept_bytes_max=1 << 30)), 2).limits
    assert (limits.connections_max, limits.kept_bytes_max) == (3, 1 << 29)


def test_worker_keeps_room_for_one_connection() -> None:
    limits = LimitOptions(kept_bytes_max=1 << 27, kept_bytes_per_connection_max=1 << 26)
    assert part_of(Config(limits=limits), 16).limits.kept_bytes_max == 1 << 26


def test_worker_gets_no_password() -> None:
    cluster = ClusterOptions(sasl_mechanism="PLAIN", username="u", password="p", password_file=Path("f"))
    part = part_of(Config(cluster=cluster), 2).cluster
    assert (part.username, part.password, part.password_file) == ("", "", None)
    assert part.sasl_mechanism == "PLAIN"  # its clients' connections need SASL


def test_number_of_workers_is_as_configured() -> None:
    assert workers_of(Config(listeners=(CLIENTS,), process=ProcessOptions(3))) == 3


def test_auto_is_one_for_each_core_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7})
    assert 1 <= workers_of(Config(listeners=(CLIENTS,), process=ProcessOptions(AUTO))) <= 3


def test_without_clients_there_is_one_process() -> None:
    assert workers_of(Config(listeners=(BROKERS,), process=ProcessOptions(3))) == 1


def test_worker_that_was_steady_is_replaced_at_once() -> None:
    assert Restarts().ended(ran_ms=STEADY_MS, was_ready=True) == 0


def test_worker_that_cannot_start_is_tried_again_more_and_more_rarely() -> None:
    restarts = Restarts()
    pauses = [restarts.ended(ran_ms=10, was_ready=False) for _ in range(20)]
    assert pauses[:3] == [PAUSE_MS_MIN, 2 * PAUSE_MS_MIN, 4 * PAUSE_MS_MIN]
    assert pauses[-1] == PAUSE_MS_MAX


def test_steady_life_makes_the_next_pause_short_again() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.ended(ran_ms=10, was_ready=False)
    restarts.ended(ran_ms=STEADY_MS, was_ready=True)
    assert restarts.ended(ran_ms=10, was_ready=True) == PAUSE_MS_MIN


def test_worker_that_is_not_ready_for_long_is_not_steady() -> None:
    assert Restarts().ended(ran_ms=10 * STEADY_MS, was_ready=False) == PAUSE_MS_MIN


def test_silent_worker_is_killed_after_a_while_and_not_before() -> None:
    restarts = Restarts()
    assert [restarts.tick() for _ in range(SILENT_TICKS_MAX)] == [False] * (SILENT_TICKS_MAX - 1) + [True]


def test_worker_that_is_heard_is_not_killed() -> None:
    restarts = Restarts()
    for _ in range(3 * SILENT_TICKS_MAX):
        assert not restarts.tick()
        restarts.message_received()


ID = b"i" * 16


def test_name_is_told_once() -> None:
    told: list[tuple[bytes, str]] = []
    names = SharedTopicNames(lambda topic_id, name: told.append((topic_id, name)))
    names.learn(ID, "t")
    names.learn(ID, "t")
    assert told == [(ID, "t")]


def test_known_names_are_there_for_a_process_that_begins() -> None:
    names = SharedTopicNames(lambda *_: None)
    names.learn(ID, "t")
    assert dict(names.all()) == {ID: "t"}
    assert names.name(ID, 0) == "t"


def test_unknown_name_is_wanted() -> None:
    names = SharedTopicNames(lambda *_: None)
    assert names.name(ID, 0) is None
    assert names.take_wanted(0) == [ID]
