"""A worker's part of the configuration, and how many workers there are."""

import os
from pathlib import Path

import pytest

from proxy.app import workers_of
from proxy.config import AUTO, Address, AdminOptions, Config, ListenerOptions, PortTls, ProcessOptions
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


def test_worker_has_the_listeners_for_clients_and_its_part_of_the_limits() -> None:
    limits = LimitOptions(connections_max=5, kept_bytes_max=1 << 30)
    part = part_of(Config(listeners=(CLIENTS, BROKERS), limits=limits), 2)
    assert part.listeners == (CLIENTS,)
    assert (part.limits.connections_max, part.limits.kept_bytes_max) == (3, 1 << 29)


def test_worker_keeps_room_for_one_connection() -> None:
    limits = LimitOptions(kept_bytes_max=1 << 27, kept_bytes_per_connection_max=1 << 26)
    assert part_of(Config(limits=limits), 16).limits.kept_bytes_max == 1 << 26


def test_worker_gets_no_password() -> None:
    cluster = ClusterOptions(sasl_mechanism="PLAIN", username="u", password="p", password_file=Path("f"))
    part = part_of(Config(cluster=cluster), 2).cluster
    assert (part.username, part.password, part.password_file) == ("", "", None)
    assert part.sasl_mechanism == "PLAIN"  # its clients' connections need SASL


def test_worker_gets_no_token_and_certificate_of_the_admin_port() -> None:
    admin = AdminOptions(token_file=Path("t"), tls=PortTls(cert_file=Path("c")))
    assert part_of(Config(admin=admin), 2).admin == AdminOptions(bind=None)


@pytest.mark.parametrize(
    ("listener", "configured", "least", "most"),
    [(CLIENTS, 3, 3, 3), (CLIENTS, AUTO, 1, 4), (BROKERS, 3, 1, 1)],
    ids=["as configured", "one for each core at most", "without clients one process"],
)
def test_number_of_workers(
    listener: ListenerOptions, configured: int, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7, 8})
    assert least <= workers_of(Config(listeners=(listener,), process=ProcessOptions(configured))) <= most


def test_worker_that_cannot_start_is_tried_again_more_and_more_rarely() -> None:
    restarts = Restarts()
    assert [restarts.ended(ran_ms=10, was_ready=False) for _ in range(20)][-1] == PAUSE_MS_MAX


def test_worker_that_is_not_ready_for_long_is_not_steady() -> None:
    assert Restarts().ended(ran_ms=10 * STEADY_MS, was_ready=False) == PAUSE_MS_MIN


def test_worker_is_killed_after_a_while_without_a_message() -> None:
    restarts = Restarts()
    for _ in range(3):
        assert not any(restarts.tick() for _ in range(SILENT_TICKS_MAX - 1))
        restarts.message_received()
    assert [restarts.tick() for _ in range(SILENT_TICKS_MAX)][-2:] == [False, True]


ID = b"i" * 16


def test_names_are_told_once_and_there_for_a_process_that_begins() -> None:
    told: list[tuple[bytes, str]] = []
    names = SharedTopicNames(lambda topic_id, name: told.append((topic_id, name)))
    assert (names.name(ID, 0), names.take_wanted(0)) == (None, [ID])
    for _ in range(2):
        names.learn(ID, "t")
    assert told == [(ID, "t")]
    assert (names.all, names.name(ID, 0)) == ({ID: "t"}, "t")
