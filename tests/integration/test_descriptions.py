"""What Kafka's own tools show of the brokers through a gateway: everything but where they listen."""

import re

from tests.cluster import Cluster, tools
from tests.support.gateway_fixture import gateway_fixture
from tests.support.proxy_process import SluiceProcess

sluice = gateway_fixture()


def ports(text: str) -> set[int]:
    """What may be a port of this machine in it."""
    return {int(number) for number in re.findall(r"(?:127\.0\.0\.1|localhost):(\d+)", text)}


def described(bootstrap: str, kind: str = "brokers", name: str = "1") -> str:
    return tools.configs(bootstrap, "--describe", "--all", "--entity-type", kind, "--entity-name", name)


def test_brokers_configs_are_shown_without_addresses(kafka: Cluster, sluice: SluiceProcess) -> None:
    direct, through = described(kafka.bootstrap()), described(sluice.bootstrap)
    assert kafka.address(1)[1] in ports(direct), "Kafka itself tells"
    assert not ports(through)
    assert "advertised.listeners=null sensitive=true" in through
    names = [{line.split("=")[0] for line in text.splitlines()} for text in (direct, through)]
    assert names[0] == names[1], "every config is there"


def test_quorum_is_shown_without_addresses(kafka: Cluster, sluice: SluiceProcess) -> None:
    for words in (("--status",), ("--replication",)):
        direct, through = (
            tools.run(tools.METADATA_QUORUM, "--bootstrap-server", bootstrap, "describe", *words)
            for bootstrap in (kafka.bootstrap(), sluice.bootstrap)
        )
        assert not ports(through), words
        assert len(through.splitlines()) == len(direct.splitlines())


def test_topics_configs_pass(sluice: SluiceProcess, topic: str) -> None:
    assert "max.message.bytes" in described(sluice.bootstrap, "topics", topic)
