"""TLS on both sides of a real broker: whose data passes, as whom, and who is refused.

The broker's listener SECURE demands a certificate, and gets Sluice's own; clients speak TLS to Sluice with theirs.
Two authorities: `servers` vouches for the broker and for Sluice's front, `people` for clients and for Sluice towards
the broker.
"""

import os
import shutil
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import HOST, Cluster, ClusterOptions
from tests.cluster.options import Listener
from tests.support.certificates import Authority, Certificate
from tests.support.numbered import NumberedProducer, lost, read_all, write_all
from tests.support.proxy_process import SluiceProcess, SluiceSettings
from tests.support.raw_topics import create
from tests.support.round_trips import ROUND_TRIPS
from tests.support.waiting import until
from tests.support.workers import ALIKE

RULES = r"RULE:^CN=([^,]+),OU=ops,.*$/$1/L,DEFAULT"
MB = 1_000_000
# Larger than a TLS record, larger than Sluice's buffer, and as large as a broker takes.
VALUES = [b"", b"a" * 10, os.urandom(20_000), os.urandom(300_000), *(os.urandom(990_000) for _ in range(12))]
LINES = [b"%d-" % number + b"x" * 5000 for number in range(1000)]
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


@dataclass(frozen=True)
class Person:
    """A client with a certificate, or without one; of Python's clients the version may be given."""

    site: Site
    name: str = ""
    version: ssl.TLSVersion | None = None

    def librdkafka(self) -> dict[str, Any]:
        found = {"security.protocol": "SSL", "ssl.ca.location": str(self.site.servers.cert_file)}
        if self.name:
            own = self.site.person(self.name)
            found |= {"ssl.certificate.location": str(own.cert_file), "ssl.key.location": str(own.key_file)}
        return found

    def python(self, _provider: object) -> dict[str, Any]:
        own = self.site.person(self.name)
        context = ssl.create_default_context(cafile=self.site.servers.cert_file)
        context.load_cert_chain(own.cert_file, own.key_file)
        if self.version is not None:
            context.minimum_version = context.maximum_version = self.version
        return {"security_protocol": "SSL", "ssl_context": context}

    def java(self, directory: Path) -> str:
        stores = (self.site.person(self.name).store_file, self.site.servers.cert_file)
        keys = ("security.protocol=SSL", "ssl.keystore.type=PEM", "ssl.truststore.type=PEM")
        lines = (*keys, f"ssl.keystore.location={stores[0]}", f"ssl.truststore.location={stores[1]}")
        (directory / "java.properties").write_text("\n".join(lines))
        return str(directory / "java.properties")


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


@pytest.mark.parametrize(
    ("family", "version"),
    [
        ("librdkafka", None),
        pytest.param("kafka-python", ssl.TLSVersion.TLSv1_2, marks=ALIKE),
        pytest.param("kafka-python", ssl.TLSVersion.TLSv1_3, marks=ALIKE),
        pytest.param("aiokafka", None, marks=ALIKE),
        ("java", None),
    ],
)
def test_records_pass_both_ways_unchanged(
    site: Site,
    secure: Cluster,
    sluice: SluiceProcess,
    topic: str,
    tmp_path: Path,
    family: str,
    version: ssl.TLSVersion | None,
) -> None:
    values = LINES if family == "java" else VALUES
    alice = Person(site, "Alice", version)
    assert ROUND_TRIPS[family](sluice.bootstrap, topic, "tls", alice, tmp_path, values) == values
    assert read_all(secure.bootstrap(), topic) == values
    assert sluice.metric("sluice_spliced_bytes_total") == 0
    assert sluice.metric("sluice_client_bytes_total", user="alice", type="Produce") > sum(map(len, values))


def test_throttled_records_pass_both_ways_unchanged(
    site: Site, secure: Cluster, sluice: SluiceProcess, topic: str
) -> None:
    """Carol's 3 MB at 500 KB/s: held and muted in the middle of what TLS has buffered, and nothing is lost."""
    values = [os.urandom(100_000) for _ in range(30)]
    config = Person(site, "Carol").librdkafka() | {"fetch.message.max.bytes": 200_000}
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
        NumberedProducer(sluice.bootstrap, topic, settings=Person(site).librdkafka()) as load,
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
        until(lambda: "unreachable" in sluice.readiness(), "it says that the cluster is unreachable")
    finally:
        assert sluice.stop() == 0
