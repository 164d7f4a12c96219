"""A worker's part of the configuration, and how many workers there are."""

import os
from pathlib import Path

import pytest

from proxy.app import workers_of
from proxy.config import AUTO, Address, Config, ListenerOptions, ProcessOptions
from proxy.config.options import ClusterOptions, LimitOptions
from proxy.process.workers import part_of

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
