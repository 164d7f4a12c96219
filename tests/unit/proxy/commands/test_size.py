"""`sluice size` multiplies as it says. The costs are round numbers here, not the measured ones."""

import json
from typing import Final

import pytest

from proxy.commands import size
from proxy.commands.size import Fleet, Load, Part
from tests.support.command_line import Sluice

KIB: Final = 1024
FIGURES: Final = {
    "produce_100_us": 20.0,
    "produce_16k_us": 40.0,
    "produce_64k_us": 50.0,
    "produce_s_per_gb": 0.6103515625,  # 80 µs for 128 KiB
    "consume_s_per_gb": 0.3814697265625,  # 400 µs for 1 MiB
    "start_mib": 50.0,
    "connection_kib": 10.0,
    "idle_percent": 5.0,
    "idle_connections": 10_000.0,  # 5 µs a second for each
    "full_produce_100_us": 10.0,
    "full_produce_16k_us": 12.0,
    "full_produce_128k_us": 40.0,
    "full_fetch_100_us": 10.0,
    "full_fetch_128k_us": 30.0,
    "full_tls_100_us": 15.0,
    "full_tls_16k_us": 25.0,
    "full_tls_fetch_128k_us": 100.0,
    "full_capture_100_us": 12.0,
    "sasl_small_us": 50.0,
    "sasl_produce_s_per_gb": 1.0,
    "sasl_consume_s_per_gb": 0.5,
    "tls_small_us": 75.0,
    "tls_produce_s_per_gb": 3.0,
    "tls_consume_s_per_gb": 2.0,
    "uncaptured_s_per_gb": 1.0,
    "captured_s_per_gb": 1.5,
    "control_mib": 40.0,
    "worker_mib": 30.0,
}
RUN: Final = {"command": "make bench", "date": "2026-11-23 15:35 UTC", "machine": "two cores"}


@pytest.fixture(autouse=True)
def _round_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {name: {"value": value} for name, value in FIGURES.items()}
    runs = dict.fromkeys(size.content()["runs"], RUN)
    monkeypatch.setattr(size, "content", lambda: {"runs": runs, "figures": figures})


def test_every_figure_of_the_file_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert set(size.content()["figures"]) == set(FIGURES)


def costs(load: Load, speed: float = 1.0) -> list[tuple[float, float, float]]:
    return [
        (round(part.times, 6), round(part.each_us, 3), round(part.full_each_us, 3))
        for part in size.cpu(load, speed)
    ]


def test_bytes_are_requests_of_the_stated_size() -> None:
    # 16 MiB/s / 16 KiB = 1024/s of 40 µs
    assert costs(Load(produce=16 * KIB * KIB)) == [(1024, 40, 12)]
    # 128 MiB/s / 128 KiB = 1024/s: from 20 µs of 100 bytes to 420 µs of 1 MiB
    each_us = 20 + 400 * (128 * KIB - 100) / (KIB * KIB - 100)
    assert costs(Load(consume=128 * KIB * KIB)) == [(1024, round(each_us, 3), 30)]


@pytest.mark.parametrize(
    ("request_bytes", "each_us"),
    [
        (1, 20),  # below the smallest that was measured
        (100, 20),
        (40 * KIB, 45),  # half way from 16 to 64 KiB
        (128 * KIB, 80),
        (256 * KIB, 160),  # beyond the largest, the same for each byte
    ],
)
def test_cost_of_a_produce_is_between_the_measured_sizes(request_bytes: int, each_us: float) -> None:
    assert costs(Load(produce=1000 * request_bytes, request_bytes=request_bytes))[0][:2] == (1000, each_us)


def test_connections_cost_a_small_request_a_second_and_their_upkeep() -> None:
    assert costs(Load(connections=1000)) == [(1000, 20, 10), (1000, 5, 5)]


def test_stated_requests_beyond_those_of_the_bytes_are_small() -> None:
    load = Load(produce=16 * KIB * KIB, requests=1500)
    assert costs(load) == [(1024, 40, 12), (476, 20, 10)]  # 1500 - 1024
    assert costs(load._replace(requests=1000)) == [(1024, 40, 12)]


def test_tls_is_a_factor_of_one_run() -> None:
    # 75 / 50 of a small request, 3 / 1 of a large one, 2 / 0.5 of what is consumed
    large = Load(produce=128 * KIB * KIB, request_bytes=128 * KIB, tls=True)
    assert costs(large)[0][1] == 240
    assert costs(Load(consume=KIB * KIB, response_bytes=KIB * KIB, tls=True))[0][1] == 1630  # 30 + 4 × 400
    assert costs(Load(connections=1, tls=True))[0] == (1, 30, 15)


def test_capture_is_a_factor_of_one_run() -> None:
    # 1.5 / 1 of a Produce, 12 / 10 of everything else and of a full core
    assert costs(Load(produce=16 * KIB * KIB, capture=True)) == [(1024, 60, 14.4)]
    assert costs(Load(connections=1, capture=True))[0] == (1, 24, 12)


def test_fast_machine_takes_less() -> None:
    assert costs(Load(connections=1000), speed=2) == [(1000, 10, 5), (1000, 2.5, 2.5)]


def busy(cores: float) -> list[Part]:
    return [Part("load", cores * 1e6, 1, 1)]


@pytest.mark.parametrize(
    ("cores", "per_machine", "members_min", "fleet"),
    [
        (0.0, 4, 2, Fleet(2, 1, 1)),
        (0.7, 4, 2, Fleet(2, 1, 1)),  # a core at 70 %
        (0.71, 4, 2, Fleet(2, 1, 2)),
        (2.8, 4, 2, Fleet(2, 1, 4)),  # a machine of four
        (2.81, 4, 2, Fleet(3, 1, 3)),  # five on two of three
        (2.81, 4, 1, Fleet(2, 0, 3)),
        (0.1, 4, 1, Fleet(1, 0, 1)),
        (1.4, 4, 3, Fleet(3, 1, 1)),  # two on two of three
    ],
)
def test_members_carry_the_load_without_one(
    cores: float, per_machine: int, members_min: int, fleet: Fleet
) -> None:
    assert size.fleet_of(busy(cores), per_machine, members_min) == fleet


def test_member_has_the_connections_of_the_lost_one() -> None:
    load = Load(produce=100e6, consume=300e6, connections=9000, response_bytes=64 * KIB)
    member = size.member_of(load, Fleet(4, 1, 2))
    mib = KIB * KIB
    assert member.connections == 3000
    assert member.memory == (40 + 2 * 30) * mib + 3000 * 10 * KIB
    assert member.memory_max == member.memory + 256 * mib
    assert member.kernel_memory == 64 * mib + 3000 * 64 * KIB
    assert member.descriptors == 2 * 1500 + 2 * 32 + 65 + 64  # of one worker
    assert member.network == 400e6 / 3


def test_frame_that_is_not_complete_takes_256_kib_at_most() -> None:
    member = size.member_of(Load(connections=10, response_bytes=50 * KIB * KIB), Fleet(1, 0, 1))
    assert member.kernel_memory == 64 * KIB * KIB + 10 * 256 * KIB
    assert member.memory == 50 * KIB * KIB + 10 * 10 * KIB  # one process, without control


def test_json_has_the_same_numbers(sluice: Sluice) -> None:
    load = ("--produce", "32M", "--request-bytes", "16k", "--connections", 100)
    found = json.loads(sluice("size", *load, "--format", "json"))
    assert found["load"]["produce"] == 32_000_000
    assert [part["times_per_second"] for part in found["cpu"]] == [2000, 100, 100]
    assert found["cores"] == pytest.approx(sum(part["cores"] for part in found["cpu"]))
    assert found["cores_wanted"] == pytest.approx(found["cores"] / 0.7)
    assert (found["members"], found["members_spare"], found["workers"]) == (2, 1, 1)
    assert found["member"]["connections"] == 100
    assert found["warnings"] == []


def warnings(sluice: Sluice, *words: object) -> str:
    lines = sluice("size", *words).splitlines()
    return "\n".join(line for line in lines if line.startswith("warning: "))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--produce", "1M", "--request-bytes", 200), "5,000 Produce requests a second of under 1 KiB"),
        (("--consume", "1M", "--response-bytes", 500), "2,000 Fetch responses a second of under 1 KiB"),
        (("--produce", "1M", "--request-bytes", "1Mi"), "of more than 128 KiB were not measured"),
        (("--produce", "16M", "--request-bytes", "16k", "--requests", 10), "less than the 1,000/s"),
        (("--connections", 100_000, "--cores-per-machine", 1), "no more than 10,000 were measured"),
        (("--connections", 25_000), "set limits.connections_max above 25,000"),
        (("--connections", 30_000), "28,232 source ports"),
        (("--produce", "1M", "--tls"), "about three times as much memory"),
        (("--produce", "900M", "--connections", 99), "more than 2 cores of one machine"),
        (("--produce", "900M", "--connections", 10), "few connections"),
        (("--produce", "900M", "--cores-per-machine", 1, "--members-min", 17), "more than 16 members"),
    ],
)
def test_what_was_not_measured_is_said(sluice: Sluice, words: tuple[object, ...], text: str) -> None:
    assert text in warnings(sluice, *words)


def test_ordinary_load_has_no_warning(sluice: Sluice) -> None:
    assert warnings(sluice, "--produce", "20M", "--consume", "60M", "--connections", 500) == ""


def test_no_load_is_refused(sluice: Sluice) -> None:
    sluice("size", code=2)
    assert "no load is stated" in sluice.err
    sluice("size", "--produce", "2X", code=1)
    assert "--produce: unknown unit 'X'" in sluice.err
    sluice("size", "--produce", "1M", "--members-min", 0, code=1)
    assert "--members-min" in sluice.err
