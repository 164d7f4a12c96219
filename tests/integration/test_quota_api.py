"""`kafka-configs` and the quota API against Sluice in front of real brokers: set, described, removed, durable."""

import secrets
import time
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from proxy.cli import main
from tests.cluster import Cluster, tools
from tests.conftest import CreateTopic
from tests.support.gateway_fixture import gateway_fixture
from tests.support.numbered import NumberedProducer
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.quota_client import set_rates
from tests.support.waiting import until
from tests.support.workers import ALIKE

FILE = """\
# Kept by hand.

# All other clients.
[[quota]]
client_id = "<default>"      # one for all
producer_byte_rate = "1G"
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quotas")


@pytest.fixture(scope="module")
def sluice(kafka: Cluster, directory: Path) -> Iterator[SluiceProcess]:
    """A gateway with a quotas file that was written by hand."""
    settings = SluiceSettings(kafka.bootstrap())
    path = settings.write(directory)
    (directory / "quotas.toml").write_text(FILE)
    with SluiceProcess(["--config", str(path)], settings.ports, directory) as process:
        yield process


def quotas(directory: Path) -> list[dict[str, object]]:
    """What the file says now."""
    found: list[dict[str, object]] = tomllib.loads((directory / "quotas.toml").read_text()).get("quota", [])
    return found


def entry(directory: Path, **names: str) -> dict[str, object] | None:
    """The limits of one entity in the file."""
    for table in quotas(directory):
        parts = {key: table[key] for key in ("user", "client_id", "ip") if key in table}
        if parts == names:
            return {key: value for key, value in table.items() if key not in names}
    return None


# Each type, by its name and its default; all: tests/unit/quotas/definitions/test_alterations.py.
ENTITIES = [
    (["--entity-type", "clients", "--entity-name", "c"], {"client_id": "c"}, "client-id 'c'"),
    pytest.param(
        ["--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-default"],
        {"user": "u", "client_id": "<default>"},
        "default client-id",
        marks=ALIKE,
    ),
    pytest.param(
        ["--entity-type", "users", "--entity-default"],
        {"user": "<default>"},
        "default user-principal",
        marks=ALIKE,
    ),
    pytest.param(
        ["--entity-type", "ips", "--entity-name", "127.0.0.9"],
        {"ip": "127.0.0.9"},
        "ip '127.0.0.9'",
        marks=ALIKE,
    ),
]


@pytest.mark.parametrize(("words", "names", "said"), ENTITIES, ids=lambda one: str(one)[:40])
def test_kafka_configs_sets_describes_and_removes(
    sluice: SluiceProcess, directory: Path, words: list[str], names: dict[str, str], said: str
) -> None:
    before = entry(directory, **names)
    key, value = ("connection_creation_rate", 5) if "ip" in names else ("consumer_byte_rate", 123_456)
    printed = tools.configs(sluice.bootstrap, "--alter", *words, "--add-config", f"{key}={value}")
    assert "Completed updating" in printed
    assert entry(directory, **names) == {**(before or {}), key: value}
    printed = tools.configs(sluice.bootstrap, "--describe", *words)
    assert said in printed
    assert f"{key}={float(value)}" in printed
    printed = tools.configs(sluice.bootstrap, "--alter", *words, "--delete-config", key)
    assert "Completed updating" in printed
    assert entry(directory, **names) == before
    assert "# one for all" in (directory / "quotas.toml").read_text()


def test_kafka_configs_gets_the_validation_error(sluice: SluiceProcess, directory: Path) -> None:
    words = ["--alter", "--entity-type", "clients", "--entity-name", "wrong", "--add-config"]
    with pytest.raises(tools.ToolError, match="Quota producer_byte_rate must be greater than 0"):
        tools.configs(sluice.bootstrap, *words, "producer_byte_rate=-1")
    with pytest.raises(tools.ToolError, match="consumer_byte_rate cannot be a fractional value"):
        tools.configs(sluice.bootstrap, *words, "consumer_byte_rate=1.5")
    with pytest.raises(tools.ToolError, match="Invalid config"):
        tools.configs(sluice.bootstrap, *words[:-1], "--delete-config", "producer_byte_rate")
    assert entry(directory, client_id="wrong") is None


def test_ten_thousand_alterations_in_one_request(sluice: SluiceProcess, directory: Path) -> None:
    names = [f"many-{number}" for number in range(10_000)]
    results = set_rates(sluice.bootstrap, **dict.fromkeys(names, 1e6))
    assert results == [(0, "")] * 10_000
    assert {table.get("client_id") for table in quotas(directory)} >= set(names)
    assert set_rates(sluice.bootstrap, **dict.fromkeys(names)) == [(0, "")] * 10_000
    assert "many-" not in (directory / "quotas.toml").read_text()


def test_acknowledged_quotas_survive_a_kill(kafka: Cluster, tmp_path: Path) -> None:
    settings = SluiceSettings(kafka.bootstrap())
    path = settings.write(tmp_path)
    sluice = SluiceProcess(["--config", str(path)], settings.ports, tmp_path)
    try:
        sluice.wait_ready()
        for number in range(5):
            set_rates(sluice.bootstrap, **{f"kept-{number}": 1000.0 + number})
    finally:
        sluice.kill()
    again = SluiceProcess(["--config", str(path)], settings.ports, tmp_path)
    with again:
        printed = tools.configs(again.bootstrap, "--describe", "--entity-type", "clients")
        for number in range(5):
            assert f"'kept-{number}' are producer_byte_rate={1000.0 + number}" in printed


def test_rate_of_a_running_producer_follows_within_two_seconds(
    sluice: SluiceProcess, create_topic: CreateTopic
) -> None:
    name = f"followed-{secrets.token_hex(3)}"
    topic = create_topic()

    def rate(seconds: float) -> float:
        before, began = sluice.metric("sluice_client_bytes_total", client_id=name), time.monotonic()
        time.sleep(seconds)
        return (sluice.metric("sluice_client_bytes_total", client_id=name) - before) / (
            time.monotonic() - began
        )

    with NumberedProducer(
        sluice.bootstrap, topic, partitions=1, client_id=name, records_per_second=2000
    ) as producer:
        producer.wait_for(2000)
        free = rate(2)
        low = free / 10
        entity = ("--entity-type", "clients", "--entity-name", name)
        tools.configs(sluice.bootstrap, "--alter", *entity, "--add-config", f"producer_byte_rate={int(low)}")
        time.sleep(2)  # within two seconds
        limited = rate(4)
        tools.configs(sluice.bootstrap, "--alter", *entity, "--delete-config", "producer_byte_rate")
        time.sleep(2)
        assert limited < 2 * low
        assert rate(2) > free / 2


mirroring = gateway_fixture("function", quotas={"store": "cluster"})


def test_brokers_own_quotas_are_mirrored_and_altered_there(
    mirroring: SluiceProcess, kafka: Cluster, topic: str
) -> None:
    words = ["--entity-type", "clients", "--entity-name", "mirrored"]
    tools.configs(mirroring.bootstrap, "--alter", *words, "--add-config", "producer_byte_rate=12345000")
    try:
        assert "producer_byte_rate=1.2345E7" in tools.configs(kafka.bootstrap(), "--describe", *words)
        assert "producer_byte_rate=1.2345E7" in tools.configs(mirroring.bootstrap, "--describe", *words)
        with NumberedProducer(mirroring.bootstrap, topic, client_id="mirrored"):
            rate = partial(mirroring.metric, "sluice_client_quota_byte_rate", client_id="mirrored")
            until(lambda: rate() == 12_345_000, "the quota is shown, since the client is there")
    finally:
        tools.configs(kafka.bootstrap(), "--alter", *words, "--delete-config", "producer_byte_rate")
    assert mirroring.metric("sluice_quota_requests_total") == 0
    assert mirroring.metric("sluice_enforcing") == 0  # the brokers do


def test_sluice_quotas_works_on_sluice_and_on_brokers(
    sluice: SluiceProcess, kafka: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tmp_path / "wanted.toml"
    wanted.write_text(
        '[[quota]]\nclient_id = "as-code"\nproducer_byte_rate = "3M"\n'
        '[[quota]]\nuser = "<default>"\nclient_id = "as-code"\nrequest_percentage = 12.5\n'
        '[[quota]]\nip = "127.0.0.8"\nconnection_creation_rate = 7\n'
    )
    for server in (sluice.bootstrap, kafka.bootstrap()):

        def run(name: str, *words: object, server: str = server) -> str:
            assert main(["quotas", name, "--bootstrap-server", server, *map(str, words)]) == 0
            return capsys.readouterr().out

        assert len(run("apply", str(wanted)).splitlines()) == 3
        # The brokers' own image follows their controller a moment later.
        shown = partial(run, "show", "--client-id", "as-code", "--strict")
        until(lambda shown=shown: "as-code" in shown(), "it is shown")  # type: ignore[misc]  # bound early
        assert run("diff", str(wanted)) == "nothing to change\n"
        assert run("set", "--client-id", "as-code", "producer_byte_rate=3000000") == "nothing to change\n"
        assert "producer_byte_rate=3000000.0" in tools.configs(
            server, "--describe", "--entity-type", "clients", "--entity-name", "as-code"
        )
        for words in (["--client-id", "as-code"], ["--user", "<default>", "--client-id", "as-code"]):
            run("remove", *words)
        run("remove", "--ip", "127.0.0.8")
