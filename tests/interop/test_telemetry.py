"""Clients that push metrics to a broker that asks for them (KIP-714), unchanged, through Sluice and over their quota.

What the broker's plugin has received is what Sluice says that the client's library says; and that is what Sluice has
written into responses, as a tap before the client has read it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from protocol.messages.telemetry import ThrottleTimes, throttle_times
from tests.cluster import Cluster, ClusterOptions, tools
from tests.cluster.jars import NEWEST, release
from tests.interop.conftest import DIRECT, available
from tests.interop.families import FAMILIES, broker_plugin
from tests.interop.fronts import Front, fill, front
from tests.interop.runs import Crowd, options
from tests.support.proxy_process import sluice as command
from tests.support.pushes import push_body
from tests.support.tap import FETCH, PRODUCE
from tests.support.waiting import until

pytestmark = [
    pytest.mark.skipif(release() != NEWEST, reason="the plugin is compiled with the newest classes"),
    pytest.mark.skipif(DIRECT, reason="there is no Sluice to ask"),
]

BYTES_PER_SECOND = 50_000
# Two windows of a second: a request of 20 kB is soon over the quota, and muted for less than a second.
WINDOWS = {"policy": "kip13", "window_samples": 2, "window_seconds": 1}
RECORD_BYTES = 20_000
STOCK_RECORDS = 500
INTERVAL_MS = 1_000
SEEN_SECONDS_MAX = 90.0
WANTED: Final = "[org.apache.kafka.producer.,org.apache.kafka.consumer.]"
# Which clients push throttle times of which requests.
PUSHING: Final = {
    "java-produce": ("java", "produce", PRODUCE),
    "java-consume": ("java", "consume", FETCH),
    "librdkafka-produce": ("librdkafka", "produce", PRODUCE),
    "franz-go-produce": ("franz-go", "produce", PRODUCE),
}
KINDS: Final = {PRODUCE: "produce", FETCH: "fetch"}


@dataclass(frozen=True, slots=True)
class Pushed:
    """What came of a crowd that pushes.

    Attributes:
        documents: by client id, `/v1/client` as soon as its library has said something.
        received: the file of the broker's plugin.
        lines: what `sluice explain` has printed of each.
    """

    place: Front
    documents: Mapping[str, Mapping[str, Any]]
    lines: Mapping[str, str]
    received: Path

    def of_plugin(self, client_id: str, kind: str) -> list[ThrottleTimes]:
        """What the broker has received of a client, in order."""
        found = []
        for line in self.received.read_text().splitlines():
            name, data = line.split(" ")
            if name == client_id:
                body = b"\0" + push_body(bytes.fromhex(data))
                found += [times for of, times in throttle_times(body, 0, len(body)).items() if of == kind]
        return found


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two workers"])
def pushed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushed]:
    directory = tmp_path_factory.mktemp("telemetry")
    received = directory / "received.txt"
    wanted = ClusterOptions(
        nodes=1,
        properties={"metric.reporters": "TelemetryReceiver"},
        classes=(broker_plugin(),),
        jvm_options=(*ClusterOptions().jvm_options, f"-Dtelemetry.file={received}"),
    )
    families = {family.name: family for family in FAMILIES}
    quota = {"producer_byte_rate": BYTES_PER_SECOND, "consumer_byte_rate": BYTES_PER_SECOND}
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(wanted))
        _subscribe(cluster)
        crowd = stack.enter_context(Crowd(directory))
        tools.create_topic(cluster.bootstrap(), "t")
        fill(cluster, crowd, "t", 1, STOCK_RECORDS, RECORD_BYTES, 10).wait(SEEN_SECONDS_MAX)
        place = stack.enter_context(
            front(
                cluster.bootstrap(),
                directory,
                "kip13",
                quotas=WINDOWS,
                client_quotas=dict.fromkeys(PUSHING, quota),
                sections={"process": {"workers": request.param}},
            )
        )
        for client_id, (family, word, _) in PUSHING.items():
            more = {"records": 0, "seconds": SEEN_SECONDS_MAX} if word == "produce" else {"seconds": 90}
            sized = {"size": RECORD_BYTES, "outstanding": 1} if word == "produce" else {}
            words = options(place.bootstrap, client_id, "t", partitions=1, **more, **sized)
            crowd.start(available(families[family]), word, *words)
        documents: dict[str, Mapping[str, Any]] = {}
        lines: dict[str, str] = {}

        def all_have_spoken() -> bool:
            for client_id in PUSHING.keys() - documents.keys():
                document = place.sluice.asked("/v1/client", client_id=client_id, window=60)
                if document and any(row["longest_ms"] for row in document["telemetry"]):
                    documents[client_id] = document
                    admin = f"127.0.0.1:{place.sluice.ports.admin}"
                    lines[client_id] = command("explain", "--client-id", client_id, "--admin", admin)
            return PUSHING.keys() == documents.keys()

        until(
            all_have_spoken,
            lambda: (
                f"{PUSHING.keys() - documents.keys()} have not spoken; "
                + "\n".join(run.describe() for run in crowd.runs)
            ),
            SEEN_SECONDS_MAX,
            1.0,
        )
        yield Pushed(place, documents, lines, received)


def _subscribe(cluster: Cluster) -> None:
    named = ("--entity-type", "client-metrics", "--entity-name", "throttle-times")
    added = f"interval.ms={INTERVAL_MS},metrics={WANTED}"
    tools.configs(cluster.bootstrap(), "--alter", *named, "--add-config", added)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("client_id", PUSHING)
def test_library_says_what_sluice_has_sent_and_the_brokers_plugin_has_received(
    pushed: Pushed, client_id: str
) -> None:
    _, _, api = PUSHING[client_id]
    kind = KINDS[api]
    (row,) = (row for row in pushed.documents[client_id]["telemetry"] if row["kind"] == kind)
    print(json.dumps(row), pushed.lines[client_id].splitlines()[:2])

    assert ThrottleTimes(row["average_ms"], row["longest_ms"]) in pushed.of_plugin(client_id, kind)
    # librdkafka's and franz-go's longest are whole ms, as those in responses are.
    sent = pushed.place.tap.of(client_id, api)
    assert 0 < row["average_ms"] <= row["longest_ms"] <= sent.throttle_ms_max
    assert row["longest_ms"] >= 0.1 * sent.throttle_ms_max
    assert 0 <= row["seconds_ago"] < 60
    assert (
        f"Its own client library says of its {kind.capitalize()} requests: throttled "
        in pushed.lines[client_id]
    )


def test_pushes_are_read_and_none_is_malformed(pushed: Pushed) -> None:
    metric = "sluice_telemetry_pushes_total"
    results = ("malformed", "compression", "large", "version")
    assert pushed.place.sluice.metric(metric, result="read") >= len(PUSHING)
    assert [pushed.place.sluice.metric(metric, result=result) for result in results] == [0, 0, 0, 0]
