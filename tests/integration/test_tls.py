"""TLS on both sides of a real broker: whose data passes, as whom, and who is refused.

The broker's listener SECURE demands a certificate, and gets Sluice's own; clients speak TLS to Sluice with theirs.
Two authorities: `servers` vouches for the broker and for Sluice's front, `people` for clients and for Sluice towards
the broker.
"""

import asyncio
import os
import shutil
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from tests.cluster import HOST, Cluster, ClusterOptions, tools
from tests.cluster.options import Listener
from tests.support.certificates import Authority, Certificate
from tests.support.numbered import NumberedProducer, lost, read_all, write_all
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import create
from tests.support.waiting import until

SECONDS_MAX = 60
RULES = r"RULE:^CN=([^,]+),OU=ops,.*$/$1/L,DEFAULT"
MB = 1_000_000
# Larger than a TLS record, larger than Sluice's buffer, and as large as a broker takes.
VALUES = [b"", b"a" * 10, os.urandom(20_000), os.urandom(300_000), *(os.urandom(990_000) for _ in range(12))]
RATE = 500_000


@dataclass
class Site:
    """Everything that one run of these tests needs."""

    directory: Path
    servers: Authority = field(init=False)
    people: Authority = field(init=False)
    own: Certificate = field(init=False)

    def __post_init__(self) -> None:
        self.servers = Authority.make(self.directory, "servers")
        self.people = Authority.make(self.directory, "people")
        self.own = self.people.issue("sluice", "/O=Example/CN=sluice")

    def person(self, name: str) -> Certificate:
        """Issue a client's certificate; the same again for the same name."""
        if not (self.directory / f"{name}.pem").exists():
            self.people.issue(name, f"/O=Example/OU=ops/CN={name}")
        base = self.directory / name
        return Certificate(base.with_suffix(".pem"), base.with_suffix(".key"), base.with_suffix(".store.pem"))

    def broker_properties(self) -> dict[str, str]:
        broker = self.servers.issue("broker")
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(broker.store_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.people.cert_file),
            "ssl.client.auth": "required",
        }

    def librdkafka(self, bootstrap: str, who: str | None = "Alice", **more: object) -> dict[str, object]:
        """Its configuration for a client with this person's certificate."""
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.servers.cert_file),
            "log_level": 0,
            **more,
        }
        if who is not None:
            person = self.person(who)
            settings["ssl.certificate.location"] = str(person.cert_file)
            settings["ssl.key.location"] = str(person.key_file)
        return settings

    def context(self, who: str | None = "Alice", version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """Python's own, for the clients that are written in it."""
        context = ssl.create_default_context(cafile=self.servers.cert_file)
        if who is not None:
            context.load_cert_chain(self.person(who).cert_file, self.person(who).key_file)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(site: Site) -> Iterator[Cluster]:
    """One broker with a listener that demands certificates."""
    options = ClusterOptions(
        nodes=1, listeners=(Listener("SECURE", protocol="SSL", properties=site.broker_properties()),)
    )
    with Cluster(options) as cluster:
        yield cluster


def settings(site: Site, secure: Cluster, front: Certificate) -> SluiceSettings:
    quotas = site.directory / "users.toml"
    quotas.write_text(
        f'[[quota]]\nuser = "carol"\nproducer_byte_rate = {RATE}\nconsumer_byte_rate = {RATE}\n'
        f'[[quota]]\nuser = "ANONYMOUS"\nproducer_byte_rate = {RATE}\n'
    )
    return SluiceSettings(
        secure.bootstrap("SECURE"),
        quotas={"file": str(quotas), "policy": "schedule"},
        sections={
            "cluster.tls": {
                "ca_file": str(site.servers.cert_file),
                "cert_file": str(site.own.cert_file),
                "key_file": str(site.own.key_file),
            },
            "listeners.tls": {
                "cert_file": str(front.cert_file),
                "key_file": str(front.key_file),
                "client_ca_file": str(site.people.cert_file),
                "client_auth": "required",
                "principal_mapping_rules": RULES,
            },
        },
    )


@pytest.fixture(scope="module")
def sluice(site: Site, secure: Cluster) -> Iterator[SluiceProcess]:
    """TLS towards clients and towards the broker."""
    directory = site.directory / "gateway"
    directory.mkdir()
    front = site.servers.issue("front")
    with SluiceProcess.configured(settings(site, secure, front), directory) as process:
        yield process


@pytest.fixture
def topic(secure: Cluster) -> str:
    name = f"t-{os.urandom(4).hex()}"
    create(secure, name, partitions=1, replication=1, configs={})
    return name


def throttled(sluice: SluiceProcess, user: str, kind: str) -> float:
    return sluice.metric("sluice_client_throttled_requests_total", user=user, type=kind)


def test_librdkafkas_records_pass_both_ways_unchanged(
    site: Site, secure: Cluster, sluice: SluiceProcess, topic: str
) -> None:
    config = site.librdkafka(sluice.bootstrap)
    write_all(sluice.bootstrap, topic, VALUES, settings=config)
    assert read_all(secure.bootstrap(), topic) == VALUES
    assert read_all(sluice.bootstrap, topic, settings=config) == VALUES
    assert sluice.metric("sluice_spliced_bytes_total") == 0
    assert sluice.metric("sluice_client_bytes_total", user="alice", type="Produce") > 12 * MB


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_kafka_pythons_records_pass_both_ways_unchanged(
    site: Site, sluice: SluiceProcess, topic: str, version: ssl.TLSVersion
) -> None:
    common = {
        "bootstrap_servers": sluice.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": site.context("Alice", version),
    }
    producer = KafkaProducer(**common, max_request_size=2 * MB)
    sent = [producer.send(topic, value) for value in VALUES]
    for one in sent:
        one.get(timeout=SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(
        topic, **common, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=SECONDS_MAX * 1000
    )
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


async def test_aiokafkas_records_pass_both_ways_unchanged(
    site: Site, sluice: SluiceProcess, topic: str
) -> None:
    common = {
        "bootstrap_servers": sluice.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": site.context(),
    }
    async with asyncio.timeout(SECONDS_MAX):
        async with AIOKafkaProducer(**common, max_request_size=2 * MB) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, **common, auto_offset_reset="earliest") as consumer:
            assert [(await consumer.getone()).value for _ in VALUES] == VALUES


def test_javas_records_pass_both_ways_unchanged(
    site: Site, secure: Cluster, sluice: SluiceProcess, topic: str
) -> None:
    person = site.person("Alice")
    config = site.directory / "java.properties"
    config.write_text(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={person.store_file}\nssl.truststore.location={site.servers.cert_file}\n"
    )
    lines = [f"{number}-{'x' * 5000}" for number in range(1000)]
    common = ("--bootstrap-server", sluice.bootstrap, "--topic", topic, "--command-config", str(config))
    tools.run(tools.CONSOLE_PRODUCER, *common, text="\n".join(lines) + "\n")
    assert read_all(secure.bootstrap(), topic) == [line.encode() for line in lines]
    found = tools.run(tools.CONSOLE_CONSUMER, *common, "--from-beginning", "--max-messages", "1000")
    assert [line for line in found.splitlines() if "-x" in line] == lines


def test_throttled_records_pass_both_ways_unchanged(
    site: Site, secure: Cluster, sluice: SluiceProcess, topic: str
) -> None:
    """Carol's 3 MB at 500 KB/s: held and muted in the middle of what TLS has buffered, and nothing is lost."""
    values = [os.urandom(100_000) for _ in range(30)]
    config = site.librdkafka(sluice.bootstrap, "Carol", **{"fetch.message.max.bytes": 200_000})
    started = time.monotonic()
    write_all(sluice.bootstrap, topic, values, settings={**config, "batch.size": 200_000})
    # 3 MB at 0.5 MB/s are 6 s, less the bursts of one second and the last request.
    assert time.monotonic() - started > 3.5
    assert read_all(secure.bootstrap(), topic) == values
    started = time.monotonic()
    assert read_all(sluice.bootstrap, topic, settings=config) == values
    assert time.monotonic() - started > 3.5
    assert throttled(sluice, "carol", "Fetch") > 0


def shown(port: int) -> int:
    """The serial number of the certificate that a port shows."""
    pem = ssl.get_server_certificate((HOST, port), timeout=10)
    return hash(pem)


def test_certificate_is_swapped_under_a_producer_that_does_not_notice(
    site: Site, secure: Cluster, topic: str, tmp_path: Path
) -> None:
    """Behind a symbolic link, as Kubernetes mounts it; clients need show none here."""
    link = tmp_path / "now"

    def point_to(name: str) -> None:
        made, target = site.servers.issue(name), tmp_path / f"of-{name}"
        target.mkdir()
        shutil.copy(made.cert_file, target / "tls.pem")
        shutil.copy(made.key_file, target / "tls.key")
        (tmp_path / "new").symlink_to(target)
        (tmp_path / "new").rename(link)

    point_to("one")
    front = Certificate(link / "tls.pem", link / "tls.key", link / "tls.pem")
    made = settings(site, secure, front)
    made.sections["listeners.tls"]["client_auth"] = "none"  # type: ignore[index]  # it is a dict here
    with (
        SluiceProcess.configured(made, tmp_path) as sluice,
        NumberedProducer(sluice.bootstrap, topic, settings=site.librdkafka(sluice.bootstrap, None)) as load,
    ):
        load.wait_for(100)
        before, opened = shown(sluice.ports.bootstrap), sluice.metric("sluice_connections_opened_total")
        point_to("two")
        until(lambda: shown(sluice.ports.bootstrap) != before, "the new certificate is shown")
        load.wait_for(100)
        assert sluice.metric("sluice_certificate_reloads_total", result="ok") == 1
        (tmp_path / "of-two" / "tls.key").write_text("nonsense")
        until(
            lambda: sluice.metric("sluice_certificate_reloads_total", result="refused") == 1, "it is refused"
        )
        load.wait_for(100)
        # `shown` has opened some; the producer none.
        assert opened <= sluice.metric("sluice_connections_opened_total")
        assert sluice.metric("sluice_connections") >= 1
        load.stop()
    assert (load.failed, lost(load, secure.bootstrap())) == ([], [])


def test_broker_that_does_not_know_sluice_is_named_as_the_reason(
    site: Site, secure: Cluster, tmp_path: Path
) -> None:
    """Without its own certificate Sluice cannot log in at the broker: it never becomes ready, and logs why."""
    made = settings(site, secure, site.servers.issue("front2"))
    made.sections["cluster.tls"].clear()  # type: ignore[attr-defined]  # it is a dict here
    made.sections["cluster.tls"]["ca_file"] = str(site.servers.cert_file)  # type: ignore[index]
    sluice = SluiceProcess(["--config", str(made.write(tmp_path))], made.ports, tmp_path)
    try:
        until(lambda: "unreachable" in page(sluice), "it says that the cluster is unreachable")
    finally:
        assert sluice.stop() == 0


def page(sluice: SluiceProcess) -> str:
    try:
        return sluice.get("/readyz")[1]
    except OSError:
        return ""
