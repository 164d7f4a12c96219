"""Keeps what a release writes, so that tests of later ones read it (tests/packaging/test_samples.py).

    sluice.toml, fleet.toml     two configurations
    quotas.toml                 the quotas file, after an alteration
    capture/                    rows and frames
    gateway-state/              of the gateway with files: the switch of enforcement, the journal of a reassignment
    fleet-state/                of the member of a fleet: the snapshot of the quota topic
    topics/NAME.jsonl           the records of Sluice's topics
    v1/NAME.json                the documents of the admin port
    fleet-hello.bin             how a member begins, to another one
    names.json                  keys, metrics and commands, from their tables in the documents

The rest is written by the installed release before real brokers; nothing is made by hand.
"""

import http.client
import json
import re
import shutil
import socket
import sys
import tempfile
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

from packaging.utils import parse_wheel_filename

from release.build import ReleaseError
from release.check import ROOT, command, fits, install
from tests.cluster import HOST, Cluster, free_ports, processes, tools
from tests.support.printed import overrides
from tests.support.waiting import until

TOPICS: Final = ("__sluice-quotas", "__sluice-audit", "__sluice-reassignments")
SECRET: Final = "the secret of a sample, which keeps nothing secret"
DOCUMENTS: Final = {
    "clients": "clients",
    "client": "client?client_id=reports",
    "user": "clients?user=ANONYMOUS",
    "rules": "rules",
    "fleet": "fleet",
    "brokers": "brokers",
    "status": "status",
    "events": "events",
}
TABLES: Final = ("configuration", "metrics", "commands")
_LENGTH_BYTES: Final = 4  # before a member's hello, whose length is in it (proxy.fleet.messages)
_COMMON: Final = """\
[cluster]
bootstrap = "kafka1:9092,kafka2:9092,kafka3:9092"

[[listeners]]
bind = "0.0.0.0"
advertised_host = "gw-1"
broker_id_max = 3

[limits]
drain_seconds = 1

[state]
directory = "state"

[reassignment]
mode = "batch"
"""
_FILES: Final = f"""{_COMMON}
[quotas]
file = "quotas.toml"
policy = "schedule"
scope = "cluster"

[capture]
directory = "capture"
frames = "keep"
"""
_FLEET: Final = f"""{_COMMON}journal = "topic"

[quotas]
store = "topic"
policy = "kip13"
scope = "cluster"

[fleet]
name = "gw-1"
members_max = 2
bind = "0.0.0.0:19070"
secret_file = "fleet.secret"
"""
_QUOTAS: Final = """\
[[quota]]
client_id = "reports"
producer_byte_rate = "2M"

[[quota]]
user = "<default>"
request_percentage = 200
"""


def write(dist: Path, samples: Path) -> Path:
    """Write the samples of the release in `dist`; return their directory.

    Raises:
        ReleaseError: there is no release, or this Python cannot install it.
    """
    for wheel in sorted(dist.glob("*-none-any.whl")):
        if fits(wheel, ".".join(map(str, sys.version_info[:3]))):
            break
    else:
        raise ReleaseError(f"{dist} has no wheel: make release")
    target = samples / parse_wheel_filename(wheel.name)[1].public
    with tempfile.TemporaryDirectory(prefix="sluice-sample-") as name, Cluster() as cluster:
        home = Path(name)
        command([sys.executable, "-m", "venv", home / "venv"], home)
        pip = (home / "venv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
        for lock in ("fleet", "capture"):
            install(dist, wheel, home / "links", pip, lock)
        made = home / "made"
        made.mkdir()
        sluice = home / "venv" / "bin" / "sluice"
        tools.create_topic(cluster.bootstrap(), "orders", partitions=2)
        _with_files(sluice, cluster, home / "files", made)
        _with_topics(sluice, cluster, home / "fleet", made)
        (made / "names.json").write_text(json.dumps(names(ROOT / "docs"), indent=1) + "\n")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    return target


def names(docs: Path) -> dict[str, list[str]]:
    """Return the names in the first columns of the reference's tables, by document."""
    return {
        table: sorted(
            name
            for cell in re.findall(r"^\| (`.+?) \|", (docs / f"{table}.md").read_text(), re.MULTILINE)
            for name in re.findall(r"`([^`]+)`", cell)
        )
        for table in TABLES
    }


def _with_files(sluice: Path, cluster: Cluster, directory: Path, made: Path) -> None:
    directory.mkdir()
    (directory / "quotas.toml").write_text(_QUOTAS)
    with _Gateway(sluice, cluster, directory, _FILES).serving() as gateway:
        gateway.use()
        gateway.move(cluster)
        gateway.run("enforcement", "off", "--admin", gateway.admin, "--reason", "a sample")
    shutil.copy(directory / "sluice.toml", made)
    shutil.copy(directory / "quotas.toml", made)
    for name, kept in (("capture", "capture"), ("state", "gateway-state")):
        ignored = shutil.ignore_patterns("*.lock", "*.inprogress")
        shutil.copytree(directory / name, made / kept, ignore=ignored)


def _with_topics(sluice: Path, cluster: Cluster, directory: Path, made: Path) -> None:
    directory.mkdir()
    (directory / "fleet.secret").write_text(f"{SECRET}\n")
    snapshot = directory / "state" / "quotas-of-topic.json"
    with _Gateway(sluice, cluster, directory, _FLEET).serving() as gateway:
        gateway.use()
        until(
            lambda: snapshot.exists() and '"reports"' in snapshot.read_text(),
            "the snapshot has the quotas",
            90,
        )
        (made / "v1").mkdir()
        with gateway.writing():
            for name, path in DOCUMENTS.items():
                (made / "v1" / f"{name}.json").write_text(gateway.document(path))
        (made / "fleet-hello.bin").write_bytes(gateway.hello())
        gateway.move(cluster)
    shutil.copy(directory / "sluice.toml", made / "fleet.toml")
    shutil.copytree(directory / "state", made / "fleet-state", ignore=shutil.ignore_patterns("*.lock"))
    (made / "topics").mkdir()
    for topic in TOPICS:
        (made / "topics" / f"{topic}.jsonl").write_text(_records(cluster, topic))


class _Gateway:
    """One `sluice serve` of the release.

    Args:
        directory: with its files; `sluice.toml` is written there.
        configuration: with the addresses of the documents, which the environment replaces.
    """

    def __init__(self, sluice: Path, cluster: Cluster, directory: Path, configuration: str) -> None:
        ports = free_ports(8)
        self.bootstrap, self.admin = f"{HOST}:{ports[0]}", f"{HOST}:{ports[6]}"
        self._fleet = ports[7]
        self._sluice = sluice
        self._directory = directory
        (directory / "sluice.toml").write_text(configuration)
        self._environment = {
            **overrides(ports[0], ports[1], ports[6]),
            "SLUICE_CLUSTER__BOOTSTRAP": cluster.bootstrap(),
            **({"SLUICE_FLEET__BIND": f"{HOST}:{ports[7]}"} if "[fleet]" in configuration else {}),
        }

    @contextmanager
    def serving(self) -> Iterator["_Gateway"]:
        """Serve during the block, and end as an operator does."""
        words = [f"{name}={value}" for name, value in self._environment.items()]
        log = self._directory / "serve.log"
        child = processes.start(
            ["/usr/bin/env", *words, str(self._sluice), "serve", "--config", "sluice.toml"],
            log=log,
            cwd=self._directory,
        )
        try:
            until(
                lambda: self._get("/readyz")[0] == http.client.OK or child.poll() is not None, log.read_text
            )
            yield self
        finally:
            code = processes.end(child, seconds=40.0)
        if code != 0:
            raise ReleaseError(f"sluice serve ended with {code}:\n{log.read_text()}")

    def use(self) -> None:
        """Alter two quotas, and write and read records."""
        for words in (("clients", "--entity-name", "reports"), ("users", "--entity-default")):
            added = "request_percentage=250" if "--entity-default" in words else "producer_byte_rate=3000000"
            tools.configs(
                self.bootstrap, "--alter", "--entity-type", words[0], *words[1:], "--add-config", added
            )
        tools.run(*self._producer("--num-records", "60", "--record-size", "100"))
        tools.run(
            tools.CONSOLE_CONSUMER,
            *("--bootstrap-server", self.bootstrap, "--topic", "orders", "--from-beginning"),
            *("--max-messages", "20", "--consumer-property", "client.id=reader"),
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Have a client during the block that writes 100 MB, at 3 MB/s: it waits for its quota."""
        words = self._producer("--num-records", "1000", "--record-size", "100000")
        child = processes.start(tools.command(*words))
        try:
            path = "/v1/client?client_id=reports"
            until(lambda: self._get(path)[0] == http.client.OK, "the client is seen", 60)
            yield
        finally:
            processes.kill(child)

    def _producer(self, *words: str) -> tuple[str, ...]:
        client = ("--producer-props", f"bootstrap.servers={self.bootstrap}", "client.id=reports")
        return (tools.PRODUCER_PERFORMANCE, "--topic", "orders", "--throughput", "-1", *words, *client)

    def move(self, cluster: Cluster) -> None:
        """Move a partition, in steps, until it is done."""
        topic = f"moved-{self._directory.name}"
        tools.run(
            tools.TOPICS,
            *("--bootstrap-server", cluster.bootstrap(), "--create", "--topic", topic),
            *("--replica-assignment", "1,2"),
        )
        plan = self._directory / "plan.json"
        wanted = [{"topic": topic, "partition": 0, "replicas": [2, 3]}]
        plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
        move = ("--bootstrap-server", self.bootstrap, "--reassignment-json-file", str(plan))
        tools.run(tools.REASSIGN_PARTITIONS, *move, "--execute")
        until(
            lambda: (
                "is completed"
                in tools.run(tools.REASSIGN_PARTITIONS, *move, "--verify", "--preserve-throttles")
            ),
            "the partition has moved",
            90,
            1.0,
        )

    def run(self, *words: str) -> str:
        """Run a command of the release."""
        return command([self._sluice, *words], self._directory)

    def document(self, path: str) -> str:
        """Return a document of `/v1`."""
        status, text = self._get(f"/v1/{quote(path, safe='?=&_')}")
        if status != http.client.OK:
            raise ReleaseError(f"/v1/{path}: {status} {text}")
        return text

    def hello(self) -> bytes:
        """Return the first frame of this member to another one."""
        with socket.create_connection((HOST, self._fleet), timeout=10) as peer, peer.makefile("rb") as stream:
            length = stream.read(_LENGTH_BYTES)
            return length + stream.read(int.from_bytes(length))

    def _get(self, path: str) -> tuple[int, str]:
        host, _, port = self.admin.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()


def _records(cluster: Cluster, topic: str) -> str:
    """Return all records of a topic, one JSON object a line, with the topic's id."""
    from confluent_kafka import Consumer, TopicPartition

    described = tools.run(
        tools.TOPICS, "--bootstrap-server", cluster.bootstrap(), "--describe", "--topic", topic
    )
    topic_id = urlsafe_b64decode(described.partition("TopicId: ")[2].split()[0] + "==").hex()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap(),
            "group.id": "sample",
            "isolation.level": "read_uncommitted",
        }
    )
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    end = consumer.get_watermark_offsets(place, timeout=30)[1]
    lines = []
    while True:
        found = consumer.consume(1000, timeout=3)
        if not found:
            break
        for record in found:
            headers: list[tuple[str, bytes]] = cast("Any", record.headers()) or []
            marks = [value.hex() for name, value in headers if name == "sluice-signature"]
            key, value = record.key(), record.value()
            lines.append(
                {
                    "topic_id": topic_id,
                    "offset": record.offset(),
                    "key": None if key is None else key.decode(),
                    "value": None if value is None else value.decode(),
                    "mark": "".join(marks),
                }
            )
    consumer.close()
    if not lines:
        raise ReleaseError(f"{topic} has no records up to {end}")
    return "".join(json.dumps(line) + "\n" for line in lines)
