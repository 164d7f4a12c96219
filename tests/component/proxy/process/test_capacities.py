"""Capacities of real processes before a scripted broker: what is said of them, and that each member of a fleet responds
for the whole fleet, by asking the holder.

`tests/integration/test_capacity.py` is the same before real brokers. Rates are those that passed, with wide bounds.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.api import PRODUCE
from tests.cluster import HOST, free_port
from tests.support.frames import produce, produce_response
from tests.support.proxy_process import SluicePorts, SluiceProcess, SluiceSettings, fleet_secret
from tests.support.scripted_broker import Asked, ScriptedBroker, honest
from tests.support.waiting import until
from tests.support.wire import wired


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[SluiceProcess, SluiceProcess]]:
    """A holder, and a member with two workers."""
    holder = f"{HOST}:{free_port()}"
    fleet = {"holder": holder, "members_max": 4, "secret_file": fleet_secret(tmp_path)}
    with ExitStack() as stack:
        broker = stack.enter_context(ScriptedBroker())
        settings = SluiceSettings(
            broker.address,
            quotas={"policy": "schedule", "scope": "cluster"},
            quotas_text='[[capacity]]\nscope = "cluster"\nin = "8M"\n',
        )
        found = []
        for name, keys, workers in (("gw-1", {"bind": holder}, 1), ("gw-2", {}, 2)):
            directory = tmp_path / name
            directory.mkdir()
            sections: dict[str, dict[str, object]] = {
                "fleet": {"name": name, **fleet, **keys},
                "process": {"workers": workers},
            }
            made = replace(settings, ports=SluicePorts.free(), sections=sections)
            found.append(stack.enter_context(SluiceProcess.configured(made, directory)))
        yield found[0], found[1]


MB = 1_000_000
# Both want more than there is: of 2 MB/s a is promised 1, b is promised 0.4; 0.6 are left, 0.3 for each.
CAPACITY = 2 * MB
REQUEST_BYTES = 20_000
CONNECTIONS = 4  # of each client


def responds(asked: Asked) -> None:
    """Respond to Produce requests too, without a topic."""
    if asked.key == PRODUCE:
        asked.say(produce_response(asked.version, correlation_id=asked.correlation_id))
    else:
        honest(asked)


# A group with the terms of b, but a ceiling that it reaches.
GROUP = f"""
[[group]]
name = "team-web"
client_ids = ["web-*"]

[[quota]]
group = "team-web"
producer_byte_rate = {0.4 * MB}
producer_byte_rate_ceiling = {0.6 * MB}
"""


# One process says the same: the first test has both.
TWO_WORKERS = pytest.mark.parametrize("sluice", [2], indirect=True, ids=["two workers"])


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def sluice(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SluiceProcess]:
    terms = {
        name: {"producer_byte_rate": rate, "producer_byte_rate_ceiling": CAPACITY}
        for name, rate in (("a", MB), ("b", 0.4 * MB))
    }
    with ScriptedBroker() as broker:
        broker.script = responds
        settings = SluiceSettings(
            broker.address,
            quotas={"policy": "schedule", "scope": "cluster"},
            client_quotas=terms,
            quotas_text=f'[[capacity]]\nscope = "cluster"\nin = {CAPACITY}\n{GROUP}',
            sections={"process": {"workers": request.param}},
        )
        with SluiceProcess.configured(settings, tmp_path) as process:
            yield process


@contextmanager
def greedy(sluice: SluiceProcess, *names: str) -> Iterator[None]:
    """Clients that send the next request as soon as they have a response."""
    stopping = threading.Event()

    def run(name: str) -> None:
        with wired(sluice.ports.address(1), name) as wire:
            while not stopping.is_set():
                wire.send_bytes(produce(9, REQUEST_BYTES, client_id=name))
                wire.receive()

    threads = [threading.Thread(target=run, args=(name,)) for name in names for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def capacity(sluice: SluiceProcess) -> dict[str, Any]:
    """Return the one capacity; that of what brokers give is not in use."""
    found = sluice.document("/v1/capacities")["capacities"]
    return found[0] if found else {"classes": [], "waiting": 0}


def passed(sluice: SluiceProcess, client_id: str, seconds: float) -> float:
    """Measure what passes of a client, in bytes/s."""

    def total() -> float:
        return sluice.metric("sluice_client_bytes_total", client_id=client_id, type="Produce")

    before, began = total(), time.monotonic()
    time.sleep(seconds)
    return (total() - before) / (time.monotonic() - began)


def test_sentence_document_metrics_and_event_say_what_clients_have(sluice: SluiceProcess) -> None:
    with greedy(sluice, "a", "b"):
        until(lambda: capacity(sluice)["waiting"] == 2, "both wait")
        time.sleep(10)  # the window that is asked for
        of_b = passed(sluice, "b", 4.0)
        row = capacity(sluice)
        found = {name: sluice.document(f"/v1/client?client_id={name}&window=10") for name in ("a", "b")}
        metrics = {
            name: sluice.metric(f"sluice_capacity_{name}_byte_rate", type="Produce")
            for name in ("promised", "lent", "left")
        }
        allowed = sluice.metric("sluice_class_byte_rate", **{"class": "client-id 'b'"})
        events = [one["text"] for one in sluice.document("/v1/events")["events"]]
    text = f"{row} {of_b} {found['a']['sentence']} {found['b']['sentence']} {events}"
    assert (row["key"], row["value"], row["broker"], row["shrunk"]) == ("producer_byte_rate", CAPACITY, -1, 1)
    assert row["promised"] == pytest.approx(1.4 * MB, rel=0.1), text
    assert row["lent"] == pytest.approx(0.6 * MB, rel=0.25), text
    assert sum(metrics.values()) == pytest.approx(CAPACITY, rel=0.05), metrics
    assert [one["entity"] for one in row["classes"]] == ["client-id 'a'", "client-id 'b'"], text
    assert of_b == pytest.approx(0.7 * MB, rel=0.3), text
    assert allowed == pytest.approx(0.7 * MB, rel=0.25), text
    for name, promised in (("a", 1.0), ("b", 0.4)):
        level = found[name]["level"]
        assert (level["binds"], level["rate"], level["broker"]) == ("capacity", promised * MB, -1), text
        assert level["has"] == pytest.approx(promised * MB, rel=0.1), text
        assert level["lent"] == pytest.approx(0.3 * MB, rel=0.4), text
        assert level["spare"] == pytest.approx(0.6 * MB, rel=0.4), text
        assert ": the brokers' 2.0 MB/s are used up; it had its " in found[name]["sentence"], text
    said = "The capacity of all brokers (in), 2.0 MB/s, is used up: 2 classes wait for more."
    assert said in events, text


@TWO_WORKERS
def test_clients_without_a_limit_share_what_others_leave(sluice: SluiceProcess) -> None:
    with greedy(sluice, "a", "b", "new"):
        until(lambda: capacity(sluice)["waiting"] == 3, "all wait")
        time.sleep(8)
        found = sluice.document("/v1/client?client_id=new&window=10")
    assert (found["rule"]["entity"], found["rule"]["value"]) == ("capacity 'cluster'", CAPACITY)
    assert (found["level"]["entity"], found["level"]["shared"]) == ("clients without a limit", True)
    assert "no rate is promised to it, and it had " in found["sentence"]
    assert "All clients without a limit share that." in found["sentence"]


@TWO_WORKERS
def test_sentence_names_the_group_and_the_level_that_keeps_it_from_more(sluice: SluiceProcess) -> None:
    def said(name: str) -> dict[str, Any]:
        found: dict[str, Any] = sluice.document(f"/v1/client?client_id={name}&window=10")
        return found

    with greedy(sluice, "web-1", "web-2"):
        until(lambda: capacity(sluice)["waiting"] == 1, "the group waits")
        time.sleep(10)  # the window that is asked for
        alone = [said(name) for name in ("web-1", "web-2")]
        rows = capacity(sluice)["classes"]
        both = passed(sluice, "web-1", 4.0) + passed(sluice, "web-2", 4.0)
    # 1.4 of 2 MB/s are left to others, whose rates are idle: the ceiling binds.
    for found in alone:
        assert (found["rule"]["entity"], found["rule"]["value"]) == ("group 'team-web'", 0.4 * MB)
        level = found["level"]
        assert (level["binds"], level["entity"], level["shared"]) == ("ceiling", "group 'team-web'", True)
        assert level["has"] + level["lent"] == pytest.approx(0.6 * MB, rel=0.1), found["sentence"]
        assert ": group 'team-web' may use 600.0 kB/s at most, its ceiling; " in found["sentence"]
        assert "All clients of group 'team-web' share that." in found["sentence"]
    assert [(one["entity"], one["ceiling"]) for one in rows] == [("group 'team-web'", 0.6 * MB)]
    assert both == pytest.approx(0.6 * MB, rel=0.3)

    with greedy(sluice, "a", "b", "web-1", "web-2"):
        until(lambda: capacity(sluice)["waiting"] == 3, "all wait")
        time.sleep(10)
        found = said("web-1")
    # Of 1.8 MB/s that are promised all is used; 0.2 MB/s are left, a third for each, below the ceiling.
    level = found["level"]
    assert (level["binds"], level["entity"], level["shared"]) == ("capacity", "group 'team-web'", True)
    assert level["has"] == pytest.approx(0.4 * MB, rel=0.1), found["sentence"]
    assert level["lent"] == pytest.approx(0.2 / 3 * MB, rel=0.4), found["sentence"]
    assert ": the brokers' 2.0 MB/s are used up; it had its 400.0 kB/s and " in found["sentence"]
    assert "All clients of group 'team-web' share that." in found["sentence"]


def divided_by(member: SluiceProcess) -> str:
    return str(member.document("/v1/capacities")["divided_by"])


def test_each_member_responds_for_the_fleet(members: tuple[SluiceProcess, SluiceProcess]) -> None:
    holder, other = members
    until(lambda: [divided_by(member) for member in members] == ["gw-1", "gw-1"])
    for member in members:
        found = member.document("/v1/capacities")
        assert (found["problem"], found["capacities"], found["missing"]) == ("", [], [])
    assert holder.stop() == 0
    until(
        lambda: bool(other.document("/v1/capacities")["problem"]), "it says that the holder does not respond"
    )
    assert divided_by(other) == ""
