"""The images of docker/Dockerfile: built instruction by instruction, and run before real brokers as engines run them.

Each runs as an ordinary user on a read-only root (tests/support/images.py). `make test` builds those that are cheap,
without the compiled data path; `make images-check` builds all, with it: IMAGES names them, COMPILED is 1.
"""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
import yaml

from release.images import TARGETS, labels, version
from tests.cluster import HOST, Cluster, free_ports, processes
from tests.cluster.sasl import SASL, client_properties, password
from tests.conftest import CreateTopic
from tests.packaging.conftest import ROOT
from tests.support.images import Container, Image, Images, what_is_missing
from tests.support.numbered import write_all
from tests.support.printed import overrides
from tests.support.synthetic import Client, write_capture
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)

_BUILT: Final = tuple(os.environ.get("IMAGES", "proxy fleet").split())
_COMPILED: Final = os.environ.get("COMPILED", "0")
_GATEWAYS: Final = tuple(target for target in _BUILT if target in ("proxy", "fleet", "capture"))
# Spark's own scripts need a shell.
_WITHOUT_SHELL: Final = tuple(target for target in _BUILT if target != "offline")
_STATE: Final = "/var/lib/sluice"
_ETC: Final = "/etc/sluice"
_USER: Final = 10001
_GRACE_SECONDS: Final = 30.0
_SHELLS_AND_INSTALLERS: Final = frozenset(
    {*("sh", "bash", "dash", "busybox", "perl", "apt", "apt-get", "dpkg", "pip", "pip3", "gcc", "cc")}
)
_TOKEN: Final = "a token of at least 16 characters"
_LOCKS: Final = {
    "proxy": ("run",),
    "fleet": ("run", "fleet"),
    "capture": ("run", "fleet", "capture"),
    "console": ("run", "operator"),
    "offline": ("run", "offline"),
}

Mounted = Mapping[str, Image]


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    """The images, built."""
    missing = what_is_missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    if missing:
        pytest.skip(missing)
    made = Images(ROOT / "build" / "containers")
    try:
        made.build(_BUILT, {"COMPILED": _COMPILED})
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def mounted(images: Images) -> Iterator[Mounted]:
    with contextlib.ExitStack() as stack:
        yield {target: stack.enter_context(images.mounted(target)) for target in _BUILT}


class Gateway:
    """A configuration for a gateway in a container, with free ports.

    Args:
        directory: gets `etc`, which the container reads, and `state`, which it writes.
        sections: of the configuration, beside the listener's and the admin port's.
    """

    def __init__(self, directory: Path, bootstrap: str, sections: str) -> None:
        first, *_, self.admin, self.member = free_ports(11)
        self.bootstrap = f"{HOST}:{first}"
        self.etc, self.state = directory / "etc", directory / "state"
        self.etc.mkdir()
        (self.etc / "sluice.toml").write_text(
            f'[cluster]\nbootstrap = "{bootstrap}"\n'
            f'[[listeners]]\nbind = "{HOST}"\nbootstrap_port = {first}\nfirst_broker_port = {first + 1}\n'
            f'broker_id_max = 7\n[admin]\nbind = "{HOST}:{self.admin}"\n'
            f'[state]\ndirectory = "{_STATE}"\n{sections.format(member=self.member)}'
        )
        self.environment = {"HEALTH_URL": f"http://{HOST}:{self.admin}/healthz"}

    def container(self, image: Image) -> Container:
        """Return a container of it."""
        return image.container({_ETC: self.etc}, {_STATE: self.state}, self.environment)


@contextlib.contextmanager
def running(container: Container, log: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a container, wait until it is healthy, and end it as an engine does: SIGTERM, and 0 within the grace."""
    child = container.start(log, words or None)
    try:
        until(lambda: container.healthy() or child.poll() is not None, log.read_text, pause=0.2)
        yield child
        os.killpg(child.pid, signal.SIGTERM)
        assert child.wait(_GRACE_SECONDS) == 0, log.read_text()
    except BaseException:
        print(f"--- {log}\n{log.read_text()[-4000:]}")
        raise
    finally:
        processes.kill(child)


def page(port: int, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Return the status and the text of a page."""
    with contextlib.closing(HTTPConnection(HOST, port, timeout=10)) as connection:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode()


def ready(port: int) -> bool:
    """Return whether a gateway is ready."""
    return page(port, "/readyz")[0] == 200


@pytest.mark.parametrize("target", _BUILT)
def test_image_says_what_it_is_and_runs_as_an_ordinary_user(mounted: Mounted, target: str) -> None:
    configuration = mounted[target].configuration
    said = configuration["Labels"]

    assert configuration["User"] == f"{_USER}:{_USER}"
    assert configuration["Entrypoint"] == ["sluice-offline" if target == "offline" else "sluice"]
    for key, value in labels().items():
        assert said[f"org.opencontainers.image.{key}"] == value
    assert said["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert (
        "luice" in said["org.opencontainers.image.description"]
        or "Kafka" in said["org.opencontainers.image.description"]
    )
    assert (configuration.get("Healthcheck") or {"Test": ["NONE"]})["Test"][0] == (
        "NONE" if target == "offline" else "CMD"
    )
    if target in _GATEWAYS:
        assert configuration["StopSignal"] == "SIGTERM"
        assert [*configuration["Volumes"]] == [_STATE]


@pytest.mark.parametrize("target", _WITHOUT_SHELL)
def test_image_has_no_shell_and_no_installer(mounted: Mounted, target: str) -> None:
    names = {path.name for path in mounted[target].root.rglob("*") if not path.is_dir()}

    assert "sluice" in names
    assert names & _SHELLS_AND_INSTALLERS == set()


@pytest.mark.parametrize("target", _WITHOUT_SHELL)
def test_image_has_nothing_that_its_user_may_write_but_the_state(mounted: Mounted, target: str) -> None:
    root = mounted[target].root
    found = {root, *root.rglob("*")}
    writable = set()
    for path in found:
        status = path.lstat()
        assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID), path
        if _USER in (status.st_uid, status.st_gid) or status.st_mode & stat.S_IWOTH:
            writable |= set() if path.is_symlink() else {f"/{path.relative_to(root)}"}

    assert writable == {_STATE, "/tmp"}


@pytest.mark.parametrize("target", _BUILT)
def test_image_has_bytecode_of_all_modules_of_ours(mounted: Mounted, target: str) -> None:
    (packages,) = mounted[target].root.glob("opt/sluice/lib/python3*/site-packages")
    modules = [path for name in ("proxy", "quotas", "protocol") for path in (packages / name).rglob("*.py")]

    assert modules
    for module in modules:
        assert list((module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc")), module


@pytest.mark.parametrize("target", _BUILT)
def test_bill_of_materials_lists_what_is_locked_and_what_is_debians(
    images: Images, mounted: Mounted, target: str
) -> None:
    bill = json.loads((images.bills / f"{target}.cdx.json").read_text())
    found = {
        kind: {
            one["name"]: one["version"] for one in bill["components"] if f"pkg:{kind}/" in one.get("purl", "")
        }
        for kind in ("pypi", "deb")
    }
    pins: dict[str, str] = {}
    for lock in _LOCKS[target]:
        text = (ROOT / "requirements" / f"{lock}.txt").read_text()
        pins |= dict(re.findall(r"^([a-z0-9][a-z0-9.-]*)==([^\s;]+) \\$", text, re.MULTILINE))

    ours = found["pypi"].pop("kafka-sluice")
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"] == ours == version()
    assert pins.items() <= found["pypi"].items()
    assert {"libc6", "ca-certificates"} <= found["deb"].keys()
    assert {"libssl3", "libssl3t64"} & found["deb"].keys()  # as the base calls it
    assert [one["version"] for one in bill["components"] if one["name"] == "python"]
    if target in _WITHOUT_SHELL:
        records = mounted[target].root / "var/lib/dpkg/status.d"
        assert {path.name for path in records.iterdir()} == found["deb"].keys()
        assert not {"bash", "dash", "apt", "dpkg", "perl-base"} & found["deb"].keys()


@pytest.mark.parametrize("target", _GATEWAYS)
def test_data_path_is_as_the_build_was_asked(mounted: Mounted, tmp_path: Path, target: str) -> None:
    gateway = Gateway(tmp_path, "127.0.0.1:9", "")
    said = gateway.container(mounted[target]).run("check", "--offline", "--config", f"{_ETC}/sluice.toml")

    assert said.returncode == 0, said.stdout
    assert f"data path: {'compiled' if _COMPILED == '1' else 'interpreted'}\n" in said.stdout


@pytest.mark.skipif("proxy" not in _BUILT, reason="not asked for")
def test_proxy_relays_as_compose_starts_it(
    mounted: Mounted, kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    """docker/compose.yaml's two containers, one after the other, with the ports and brokers of this place."""
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    bootstrap, first, *_, admin = free_ports(12)
    environment = {
        **overrides(bootstrap, first, admin),
        "SLUICE_CLUSTER__BOOTSTRAP": kafka.bootstrap(SASL),
        "SLUICE_CLUSTER__PASSWORD": password("sluice"),
        "HEALTH_URL": f"http://{HOST}:{admin}/healthz",
    }
    container = mounted["proxy"].container(
        {_ETC: ROOT / "docker" / "gateway"}, {_STATE: tmp_path / "state"}, environment
    )
    assert not container.healthy()  # it does not run yet
    prepared = container.run(*services["quotas"]["command"], entrypoint=services["quotas"]["entrypoint"])
    assert prepared.returncode == 0, prepared.stdout
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reports",
        "sasl.password": password("reports"),
    }

    with running(container, tmp_path / "log"):
        until(lambda: ready(admin), (tmp_path / "log").read_text)
        write_all(f"{HOST}:{bootstrap}", create_topic(), [b"x" * 100_000], settings=sasl)
        _, metrics = page(admin, "/metrics")
        assert re.search(r'^sluice_client_bytes_total\{[^}]*user="reports"', metrics, re.MULTILINE), metrics
        properties = tmp_path / "etc"
        properties.mkdir()
        (properties / "admin.properties").write_text(client_properties("admin"))
        operator = mounted["proxy"].container({_ETC: properties}, {_STATE: tmp_path / "other"}, {})
        words = ("--bootstrap-server", f"{HOST}:{bootstrap}", "--command-config", f"{_ETC}/admin.properties")
        altered = operator.run("quotas", "set", *words, "--user", "reports", "producer_byte_rate=3M")
        assert altered.returncode == 0, altered.stdout

    kept = tomllib.loads((tmp_path / "state" / "quotas.toml").read_text())["quota"]
    assert {"user": "reports", "producer_byte_rate": "3M", "consumer_byte_rate": "4M"} in kept


@pytest.mark.parametrize("target", [target for target in _GATEWAYS if target != "proxy"])
def test_gateway_of_a_fleet_keeps_quotas_in_a_topic(
    mounted: Mounted, kafka: Cluster, create_topic: CreateTopic, tmp_path: Path, target: str
) -> None:
    topic = create_topic()
    gateway = Gateway(
        tmp_path,
        kafka.bootstrap(),
        f'[quotas]\nstore = "topic"\ntopic = "__{topic}"\nscope = "cluster"\n'
        f'[fleet]\nname = "gw-1"\nmembers_max = 2\nbind = "{HOST}:{{member}}"\ngroup = "__{topic}-fleet"\n'
        f'secret_file = "fleet.secret"\n',
    )
    made = mounted[target].container({}, {_STATE: gateway.state}, {}).run("fleet", "secret")
    (gateway.etc / "fleet.secret").write_text(made.stdout)
    container = gateway.container(mounted[target])

    with running(container, tmp_path / "log"):
        until(lambda: ready(gateway.admin), (tmp_path / "log").read_text)
        words = ("--bootstrap-server", gateway.bootstrap, "--client-id", "reports")
        altered = container.run("quotas", "set", *words, "producer_byte_rate=2M")
        assert altered.returncode == 0, altered.stdout
        write_all(gateway.bootstrap, topic, [b"x" * 1000], settings={"client.id": "reports"})
        shown = container.run("quotas", "show", *words)
        assert "producer_byte_rate" in shown.stdout, shown.stdout
        members = container.run("fleet", "--admin", f"{HOST}:{gateway.admin}")
        assert "gw-1" in members.stdout, members.stdout


@pytest.mark.skipif("console" not in _BUILT, reason="not asked for")
def test_console_serves_its_page_to_those_who_have_the_token(
    mounted: Mounted, kafka: Cluster, tmp_path: Path
) -> None:
    gateway = Gateway(tmp_path, kafka.bootstrap(), "")
    (port,) = free_ports(1)
    etc = tmp_path / "console"
    etc.mkdir()
    (etc / "console.token").write_text(_TOKEN)
    console = mounted["console"].container(
        {_ETC: etc}, {_STATE: tmp_path / "other"}, {"HEALTH_URL": f"http://{HOST}:{port}/healthz"}
    )
    words = [
        word.replace("0.0.0.0:9190", f"{HOST}:{port}") for word in mounted["console"].configuration["Cmd"]
    ]

    with (
        running(gateway.container(mounted[_GATEWAYS[0]]), tmp_path / "log"),
        running(console, tmp_path / "console.log", *words, "--admin", f"{HOST}:{gateway.admin}"),
    ):
        status, text = page(port, "/", {"Authorization": f"Bearer {_TOKEN}"})
        assert (status, page(port, "/")[0]) == (200, 401)
        assert "<html" in text


@pytest.mark.skipif("capture" not in _BUILT, reason="only make images-check builds it")
def test_capture_records_requests(
    mounted: Mounted, kafka: Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    gateway = Gateway(tmp_path, kafka.bootstrap(), f'[capture]\ndirectory = "{_STATE}/capture"\n')
    topic = create_topic()

    with running(gateway.container(mounted["capture"]), tmp_path / "log"):
        until(lambda: ready(gateway.admin), (tmp_path / "log").read_text)
        write_all(gateway.bootstrap, topic, [b"x" * 1000], settings={"client.id": "captured"})

    rows: list[dict[str, Any]] = []
    for path in (gateway.state / "capture").rglob("*.parquet"):
        rows += pq.read_table(path).to_pylist()
    assert [row for row in rows if row["client_id"] == "captured" and row["api_key"] == 0]


@pytest.mark.skipif("offline" not in _BUILT, reason="only make images-check builds it")
def test_offline_works_out_quotas_from_a_capture(mounted: Mounted, tmp_path: Path) -> None:
    captured = tmp_path / "capture"
    write_capture(captured, (Client(name="reports", shape="steady", rate=1_000_000),), 20.0)
    container = mounted["offline"].container({}, {_STATE: tmp_path / "state", "/tmp": tmp_path / "tmp"}, {})
    captured.rename(tmp_path / "state" / "capture")

    assert "usage: sluice-offline" in container.run("--help").stdout
    words = ("--input", f"{_STATE}/capture", "--output", f"{_STATE}/work")
    done = container.run("run", *words, "--capacity-in", "80M", "--capacity-out", "200M")

    assert done.returncode == 0, done.stdout
    assert (tmp_path / "state" / "work" / "report" / "report.html").is_file()


def test_every_image_is_of_one_of_the_kinds_that_are_tried() -> None:
    assert {*_LOCKS} == {*TARGETS}
