"""The files under docker/, as text. test_images.py builds the images and runs them.

Files parse, paths exist, the configurations inside are judged by `sluice check`, and the ports that one file gives are
the ports that the other expects. Those for Kubernetes are rendered from the Helm chart, and judged in `test_chart`.
"""

import base64
import fnmatch
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from release.images import DEFAULT, TARGETS, tags
from tests.packaging.conftest import ROOT, bare_environment, run
from tests.support.gateways import available_haproxy

_DOCKER: Final = ROOT / "docker"
_COMPOSE: Final = ("compose.yaml", "compose.sidecar.yaml", "compose.fleet.yaml")


def _load(name: str) -> Any:
    return yaml.safe_load((_DOCKER / name).read_text())


def check_configuration(config: Path, environment: dict[str, str]) -> str:
    """Let `sluice check` judge a configuration; return what it says."""
    words = (sys.executable, "-m", "proxy", "check", "--offline", "--config", config)
    return run(*words, cwd=ROOT, env={**bare_environment(), **environment})


def _sidecars() -> dict[int, tuple[dict[str, str], dict[str, Any]]]:
    """Return, by broker id, the environment of the sidecar and that of its broker."""
    services = _load("compose.sidecar.yaml")["services"]
    found = {}
    for name, service in services.items():
        if name.startswith("broker-"):
            sluice = services[service["network_mode"].removeprefix("service:")]
            broker = service["environment"]
            found[int(broker["KAFKA_NODE_ID"])] = sluice["environment"], broker
    return found


def _listeners(text: str) -> dict[str, tuple[str, int]]:
    """Parse Kafka's `NAME://host:port,…`."""
    parts = [re.fullmatch(r"([A-Z]+)://([^:]*):(\d+)", part) for part in text.split(",")]
    return {part[1]: (part[2], int(part[3])) for part in parts if part is not None}


@pytest.mark.parametrize("path", sorted(_DOCKER.rglob("*.y*ml")), ids=lambda path: path.name)
def test_yaml_parses(path: Path) -> None:
    assert [document for document in yaml.safe_load_all(path.read_text()) if document]


def test_dockerfile_copies_what_exists_and_what_the_ignore_file_lets_in() -> None:
    text = (_DOCKER / "Dockerfile").read_text()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)

    assert "." in copied
    for source in {*copied} - {"."}:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, rule) or source.startswith(f"{rule}/") for rule in let_in), source
    for rule in let_in:
        assert list(ROOT.glob(rule)), rule


def test_every_package_of_the_wheel_gets_into_the_build() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)

    assert {*wheel["packages"]} <= {*let_in}


def test_dockerfile_has_the_images_and_builds_the_proxy_where_none_is_asked_for() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", (_DOCKER / "Dockerfile").read_text(), re.MULTILINE)

    assert {*TARGETS} <= {name for _, name in stages}
    assert stages[-1] == (DEFAULT, "")


def test_images_are_based_on_one_image_by_its_digest() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", (_DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for _, name in stages} | {"scratch", "${PYTHON_IMAGE}", "${OF}"}
    outside = [base for base, _ in stages if base not in names]

    assert len(outside) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", outside[0])


def test_images_have_locked_packages_only() -> None:
    text = (_DOCKER / "Dockerfile").read_text()
    installs = re.findall(r"bin/pip (?:--python \S+ )?install (.+)$", text, re.MULTILINE)

    assert len(installs) == text.count("pip install") + text.count("python install")
    assert all("--require-hashes" in install for install in installs)


@pytest.mark.parametrize("name", _COMPOSE)
def test_compose_mounts_and_builds_what_exists(name: str) -> None:
    compose = _load(name)
    for service in compose["services"].values():
        if "build" in service:
            context = (_DOCKER / service["build"]["context"]).resolve()
            assert (context / service["build"]["dockerfile"]).is_file()
            target = service["build"]["target"]
            assert service["image"] in tags("sluice", target) or (service["image"], target) == (
                "sluice",
                DEFAULT,
            )
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            exists = (_DOCKER / source).is_dir() if source.startswith(".") else source in compose["volumes"]
            assert exists, source
        used = service.get("networks", ())
        assert set(used) <= set(compose.get("networks", ()))


@pytest.mark.parametrize("name", _COMPOSE)
def test_compose_publishes_on_loopback_only(name: str) -> None:
    published = [port for service in _load(name)["services"].values() for port in service.get("ports", ())]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_gateway_configuration_is_right_and_its_ports_are_published() -> None:
    config = tomllib.loads((_DOCKER / "gateway" / "sluice.toml").read_text())
    compose = _load("compose.yaml")["services"]
    (listener,) = config["listeners"]
    first, last = listener["first_broker_port"], listener["first_broker_port"] + listener["broker_id_max"]
    brokers = [service["environment"] for name, service in compose.items() if name.startswith("broker-")]
    advertised = [_listeners(broker["KAFKA_ADVERTISED_LISTENERS"])["CLIENTS"] for broker in brokers]
    quotas = {"SLUICE_QUOTAS__FILE": str(_DOCKER / "gateway" / "quotas.toml")}

    said = check_configuration(
        _DOCKER / "gateway" / "sluice.toml", {"SLUICE_CLUSTER__PASSWORD": "secret", **quotas}
    )

    assert "gateway" in said
    assert "scope cluster" in said
    assert set(compose["sluice"]["ports"]) == {
        f"127.0.0.1:{port}:{port}" for port in (listener["bootstrap_port"], f"{first}-{last}", 19080)
    }
    assert config["cluster"]["bootstrap"] == ",".join(f"{host}:{port}" for host, port in advertised)
    assert all(int(broker["KAFKA_NODE_ID"]) <= listener["broker_id_max"] for broker in brokers)


def test_haproxy_finds_its_configuration_right() -> None:
    # Names of containers are not known here, which is a warning: it would ask for them again (init-addr none).
    run(available_haproxy(), "-c", "-f", _DOCKER / "haproxy" / "haproxy.cfg", cwd=ROOT)


def test_haproxy_stands_before_both_gateways_on_all_ports_that_they_advertise() -> None:
    config = tomllib.loads((_DOCKER / "fleet" / "sluice.toml").read_text())
    services = _load("compose.fleet.yaml")["services"]
    text = (_DOCKER / "haproxy" / "haproxy.cfg").read_text()
    (listener,) = config["listeners"]
    first, last = listener["first_broker_port"], listener["first_broker_port"] + listener["broker_id_max"]
    published = {f"127.0.0.1:{port}:{port}" for port in (listener["bootstrap_port"], f"{first}-{last}")}
    gateways = {name: service for name, service in services.items() if name.startswith("gateway-")}

    assert f"bind :{listener['bootstrap_port']},:{first}-{last}\n" in text
    assert set(services["haproxy"]["ports"]) == published
    assert all(port.startswith(f"{listener['advertised_host']}:") for port in published)
    # Without a port: each connection goes to the one that the client asked for.
    assert re.findall(r"^    server (\S+) (\S+)$", text, re.MULTILINE) == [(name, name) for name in gateways]
    assert "check port 19080" in text
    for service in gateways.values():
        assert [port.rpartition(":")[2] for port in service["ports"]] == ["19080"]
        assert "./fleet:/etc/sluice:ro" in service["volumes"]
        assert service["image"] == "sluice:fleet"


@pytest.mark.parametrize("name", ["gateway-1", "gateway-2"])
def test_gateways_behind_haproxy_are_one_fleet_with_the_clients_addresses(name: str, tmp_path: Path) -> None:
    services = _load("compose.fleet.yaml")["services"]
    config = tomllib.loads((_DOCKER / "fleet" / "sluice.toml").read_text())
    secret = tmp_path / "fleet.secret"
    secret.write_text("5b" * 32)  # as `sluice fleet secret` prints it
    balancer = services["haproxy"]["networks"]["gateways"]["ipv4_address"]
    environment = {
        "SLUICE_CLUSTER__PASSWORD": "secret",
        "SLUICE_FLEET__NAME": services[name]["hostname"],  # in the container it is the host's
        "SLUICE_FLEET__SECRET_FILE": str(secret),
    }

    said = check_configuration(_DOCKER / "fleet" / "sluice.toml", environment)

    assert f"fleet: '{name}', one of at most 2 members; the holder is chosen by the group __sluice" in said
    assert f"members reach it at {name}:19070: 0.0.0.0:19070, signed" in said
    assert f"PROXY protocol, trusted from {balancer}/32" in said
    assert "kept in topic __sluice-quotas" in said
    assert "scope cluster" in said
    assert re.findall(r"^warning: (\S+):", said, re.MULTILINE) == ["admin.bind"]  # open to what reaches it
    assert config["fleet"]["secret_file"] == "/etc/sluice/fleet.secret"
    assert config["fleet"]["members_max"] == len([one for one in services if one.startswith("gateway-")])
    assert "send-proxy-v2" in (_DOCKER / "haproxy" / "haproxy.cfg").read_text()


def test_what_a_fleet_keeps_in_kafka_is_closed_to_all_others_before_gateways_start() -> None:
    services = _load("compose.fleet.yaml")["services"]
    (words,) = services["acls"]["command"]

    for name in ("topic", "group", "transactional-id"):
        assert f"--{name} __sluice " in words
    assert "--allow-principal User:sluice " in words
    assert "--resource-pattern-type prefixed" in words
    for name, service in services.items():
        if name.startswith("broker-"):
            broker = service["environment"]
            assert broker["KAFKA_AUTHORIZER_CLASS_NAME"].endswith(".StandardAuthorizer")
            assert broker["KAFKA_SUPER_USERS"] == "User:ANONYMOUS;User:admin"
        if name.startswith("gateway-"):
            assert service["depends_on"] == {"acls": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize("node", sorted(_sidecars()))
def test_broker_advertises_the_port_that_its_sidecar_binds(node: int) -> None:
    sluice, broker = _sidecars()[node]
    (listener,) = tomllib.loads((_DOCKER / "sidecar" / "sluice.toml").read_text())["listeners"]
    upstream = sluice[f"SLUICE_LISTENERS__0__UPSTREAMS__{node}"]

    said = check_configuration(_DOCKER / "sidecar" / "sluice.toml", sluice)

    assert f"in front of broker {node} at {upstream}" in said
    assert _listeners(broker["KAFKA_LISTENERS"])["CLIENTS"] == ("127.0.0.1", int(upstream.split(":")[1]))
    advertised = (sluice["SLUICE_LISTENERS__0__ADVERTISED_HOST"], listener["first_broker_port"] + node)
    assert _listeners(broker["KAFKA_ADVERTISED_LISTENERS"])["CLIENTS"] == advertised


def test_listeners_that_no_sidecar_stands_before_ask_for_the_brokers_password() -> None:
    for _, broker in _sidecars().values():
        protocols = dict(one.split(":") for one in broker["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
        for name, (host, _) in _listeners(broker["KAFKA_LISTENERS"]).items():
            assert host == "127.0.0.1" or protocols[name] == "SASL_PLAINTEXT", name
            if host != "127.0.0.1":
                jaas = broker[f"KAFKA_LISTENER_NAME_{name}_PLAIN_SASL_JAAS_CONFIG"]
                assert re.search(r'password="([^"]+)"', jaas)
                assert re.search(r'user_broker="([^"]+)"', jaas)


def test_quotas_of_the_gateway_are_kept_on_a_volume_and_altered_by_a_user() -> None:
    volumes = {one.split(":")[1]: one for one in _load("compose.yaml")["services"]["sluice"]["volumes"]}
    quotas = tomllib.loads((_DOCKER / "gateway" / "sluice.toml").read_text())["quotas"]
    place = str(Path(quotas["file"]).parent)

    assert volumes[place].endswith(f":{place}")  # not :ro
    assert quotas["alter_principals"] == ["admin"]
    assert quotas["scope"] == "cluster"


def test_cluster_ids_are_sixteen_bytes() -> None:
    text = "".join(path.read_text() for path in _DOCKER.glob("*.yaml"))
    ids = re.findall(r"CLUSTER_ID(?:: |\n +value: )([\w-]+)", text)

    assert len(ids) == 4
    assert all(len(base64.urlsafe_b64decode(found + "==")) == 16 for found in ids)
