"""tests.cluster.options: the properties that make brokers listen and advertise as a test wants."""

from pathlib import Path

from tests.cluster.options import (
    CLIENTS,
    ClusterOptions,
    Host,
    Listener,
    NodeAddresses,
    defaults,
    server_properties,
)

_ADDRESSES = NodeAddresses(
    ports={CLIENTS: 21001, "SIDECAR": 21011},
    advertised={CLIENTS: ("127.0.0.1", 21001), "SIDECAR": ("127.0.0.1", 22001)},
)


def _properties(options: ClusterOptions) -> dict[str, str]:
    text = server_properties(1, _ADDRESSES, {1: 21091, 2: 21092}, Path("home"), options)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_listener_advertises_where_clients_shall_go() -> None:
    properties = _properties(ClusterOptions(nodes=2))

    assert properties["listeners"] == (
        "CLIENTS://127.0.0.1:21001,SIDECAR://127.0.0.1:21011,CONTROLLER://127.0.0.1:21091"
    )
    assert properties["advertised.listeners"] == "CLIENTS://127.0.0.1:21001,SIDECAR://127.0.0.1:22001"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:21091,2@127.0.0.1:21092"


def test_broker_listens_at_its_host_and_finds_the_others_at_theirs() -> None:
    hosts = (Host("198.18.0.11"), Host("198.18.0.12"))
    properties = _properties(ClusterOptions(nodes=2, hosts=hosts))

    assert properties["listeners"] == (
        "CLIENTS://198.18.0.11:21001,SIDECAR://198.18.0.11:21011,CONTROLLER://198.18.0.11:21091"
    )
    assert properties["controller.quorum.voters"] == "1@198.18.0.11:21091,2@198.18.0.12:21092"


def test_listener_speaks_what_it_is_told_to() -> None:
    options = ClusterOptions(nodes=2, listeners=(Listener("SIDECAR", protocol="SSL"),))

    assert _properties(options)["listener.security.protocol.map"] == (
        "CONTROLLER:PLAINTEXT,CLIENTS:PLAINTEXT,SIDECAR:SSL"
    )


def test_given_property_beats_a_default() -> None:
    options = ClusterOptions(nodes=2, properties={"num.io.threads": "9"})

    assert _properties(options)["num.io.threads"] == "9"


def test_internal_topics_fit_the_number_of_brokers() -> None:
    replication = [defaults(nodes)["offsets.topic.replication.factor"] for nodes in (1, 2, 3, 5)]
    in_sync = [defaults(nodes)["transaction.state.log.min.isr"] for nodes in (1, 2, 3, 5)]

    assert replication == ["1", "2", "3", "3"]
    assert in_sync == ["1", "2", "2", "2"]
