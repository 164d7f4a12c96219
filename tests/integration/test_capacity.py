"""A capacity before real brokers: the sentence, `/v1`, the metrics and an event say what the clients have.

Rates are those of the acknowledged records; bounds are wide, since the brokers share the machine with everything else.
One process, groups, and clients without a limit: `tests/component/proxy/process/test_capacities.py`.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.conftest import CreateTopic
from tests.support.load import Load, rate
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.waiting import until

MB = 1_000_000
CAPACITY = 2 * MB
# Both want more than there is. a is promised 1, b is promised 0.4; 0.6 are left, 0.3 for each.
TERMS: dict[str, dict[str, float]] = {
    "a": {"producer_byte_rate": 1 * MB, "producer_byte_rate_ceiling": CAPACITY},
    "b": {"producer_byte_rate": 0.4 * MB, "producer_byte_rate_ceiling": CAPACITY},
}
LOADS = 4  # of each client


@pytest.fixture
def sluice(kafka: Cluster, tmp_path: Path) -> Iterator[SluiceProcess]:
    settings = SluiceSettings(
        kafka.bootstrap(),
        quotas={"policy": "schedule", "scope": "cluster"},
        client_quotas=TERMS,
        quotas_text=f'[[capacity]]\nscope = "cluster"\nin = {CAPACITY}\n',
        sections={"process": {"workers": 2}},
    )
    with SluiceProcess.configured(settings, tmp_path) as process:
        yield process


def loads(sluice: SluiceProcess, topic: str, client_id: str, stack: ExitStack) -> Sequence[Load]:
    found = [Load(sluice.bootstrap, topic, client_id) for _ in range(LOADS)]
    for one in found:
        stack.callback(one.stop)
    return found


def capacity(sluice: SluiceProcess) -> dict[str, Any]:
    """The one capacity; the one that is not used is not listed."""
    found = sluice.document("/v1/capacities")["capacities"]
    return found[0] if found else {"classes": [], "waiting": 0}


def test_what_is_said_of_a_capacity_is_what_clients_have(
    sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=3)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        a, b = (loads(sluice, topic, name, stack) for name in ("a", "b"))
        until(lambda: capacity(sluice)["waiting"] == 2, "both wait")
        time.sleep(10)  # the window that is asked for
        # Together, since either may use what the other leaves for a moment.
        of_all, of_b = rate([*a, *b], 10.0), rate(b, 5.0)

        # Of one moment: neither client may be between two requests that a broker was slow with.
        def both_wait() -> bool:
            rows.append(capacity(sluice))
            return bool(rows[-1]["waiting"] == 2)

        until(both_wait, "both wait again")
        row = rows[-1]
        documents = {name: sluice.document(f"/v1/client?client_id={name}&window=10") for name in ("a", "b")}
        metrics = {
            name: sluice.metric(f"sluice_capacity_{name}_byte_rate", type="Produce")
            for name in ("promised", "lent", "left")
        }
        allowed = sluice.metric("sluice_class_byte_rate", **{"class": "client-id 'b'"})
        text = f"{row} {of_all} {of_b} {documents['b']['sentence']}"
        until(lambda: "capacity_used_up" in events(sluice), "the event has come")
    assert row["key"] == "producer_byte_rate", text
    assert (row["value"], row["broker"], row["shrunk"]) == (CAPACITY, -1, 1.0)
    assert row["promised"] == pytest.approx(1.4 * MB, rel=0.1), text
    assert row["lent"] == pytest.approx(0.6 * MB, rel=0.25), text
    assert metrics["promised"] + metrics["lent"] + metrics["left"] == pytest.approx(CAPACITY, rel=0.05)
    first, second = row["classes"]
    assert (first["entity"], second["entity"]) == ("client-id 'a'", "client-id 'b'")
    assert first["waits"], text
    assert of_all < 1.15 * CAPACITY, text
    assert of_b == pytest.approx(second["has"] + second["lent"], rel=0.35), text
    assert allowed == pytest.approx(second["has"] + second["lent"], rel=0.25), text
    for name, promised in (("a", 1.0), ("b", 0.4)):
        level = documents[name]["level"]
        assert (level["binds"], level["rate"], level["broker"]) == ("capacity", promised * MB, -1), text
        assert level["has"] == pytest.approx(promised * MB, rel=0.1), text
        assert level["lent"] == pytest.approx(0.3 * MB, rel=0.4), text
        sentence = documents[name]["sentence"]
        assert ": the brokers' 2.0 MB/s are used up; it had its " in sentence, text
        assert "that others left." in sentence, text


def events(sluice: SluiceProcess) -> set[str]:
    return {one["kind"] for one in sluice.document("/v1/events")["events"]}
