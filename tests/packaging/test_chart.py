"""The Helm chart: what it makes of its defaults and of each example, judged without a cluster.

Helm lints and renders it, kubeconform compares the manifests with Kubernetes' own description of three versions and the
example of a TLSRoute with the Gateway API's, kube-score says what a reviewer would, the API server's own code admits a
pod, and `sluice check` judges the configuration inside as the container finds it.
"""

import hashlib
import json
import os
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from proxy.config.options import TABLES
from release.build import SUMS
from tests.packaging.conftest import ROOT, bare_environment
from tests.packaging.conftest import run as run_command
from tests.packaging.kubernetes.manifests import (
    Manifest,
    admits,
    containers,
    documents,
    expanded,
    named,
    not_restricted,
    of_kind,
    pod_templates,
    selects,
)
from tests.packaging.kubernetes.package import package
from tests.packaging.kubernetes.render import (
    BIN,
    CHART,
    EXAMPLES,
    NAMESPACE,
    RENDERED,
    STATEFULSET,
    render,
    run,
)
from tests.packaging.kubernetes.schemas import SCHEMAS, VERSIONS
from tests.support.certificates import Authority
from tests.support.pods import Lifecycle
from tests.support.printed import fenced

pytestmark = pytest.mark.timeout(300)

DEFAULTS: Final = "defaults"
CASES: Final = (DEFAULTS, *sorted(path.stem for path in EXAMPLES.glob("*.yaml")))
SIDECARS: Final = ("sidecar", "strimzi")
ONE_PORT: Final = "one-port"
GATEWAYS: Final = tuple(case for case in CASES if case not in SIDECARS)
STRIMZI: Final = ROOT / "deploy" / "sidecar" / "strimzi" / "kafka.yaml"
TLS_ROUTE: Final = ROOT / "deploy" / "gateway-api" / "tlsroute.yaml"
SECRETS: Final = "/etc/sluice-secrets"
TOOLS: Final = ("admit", "helm", "kubeconform", "kube-score", "kustomize")
TOOLS_HINT: Final = f"build/bin has not all of {', '.join(TOOLS)}: run make chart-tools (Go)"
CLIENT: Final = ("shop", {"app": "orders"})
PROMETHEUS: Final = ("monitoring", {"app": "prometheus"})


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    if all((BIN / name).exists() for name in TOOLS):
        return
    if os.environ.get("CI") == "true":
        pytest.fail(TOOLS_HINT, pytrace=False)
    pytest.skip(TOOLS_HINT)


def _values(case: str) -> Path | None:
    return None if case == DEFAULTS else EXAMPLES / f"{case}.yaml"


@cache
def _text(case: str) -> str:
    return render(values=_values(case))


def _rendered(case: str, *words: str) -> list[Manifest]:
    return documents(render(*words, values=_values(case)) if words else _text(case))


def _configuration(manifests: list[Manifest]) -> dict[str, Any]:
    return tomllib.loads(named(manifests, "ConfigMap", "sluice")["data"]["sluice.toml"])


def _sluice(case: str) -> Manifest:
    """Return the pod's spec with Sluice's container: a gateway's, or the patch of brokers."""
    if case in SIDECARS:
        words = ("--set", "sidecar.patch=true", "--set", "sidecar.admission=false")
        (patch,) = _rendered(case, *words, "--show-only", "templates/sidecar-patch.yaml")
        return {"containers": [], **patch["spec"]["template"]["spec"]}
    pod: Manifest = named(_rendered(case), "StatefulSet", "sluice")["spec"]["template"]["spec"]
    return pod


# ----------------------------------------------------------------------------------------------------
# What the tools say


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_to_lint(case: str) -> None:
    values = _values(case)
    files = () if values is None else ("--values", str(values))
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", str(CHART), *files)


def _kubeconform(version: str, text: str, *, fails: bool = False) -> str:
    known = (SCHEMAS / f"v{version}").glob("mutatingadmissionpolic*")
    skipped = () if list(known) else ("-skip", "MutatingAdmissionPolicy,MutatingAdmissionPolicyBinding")
    places = (SCHEMAS / "{{ .NormalizedKubernetesVersion }}", SCHEMAS)
    locations = [
        word
        for place in places
        for word in ("-schema-location", f"{place}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json")
    ]
    words = ("-strict", "-summary", "-kubernetes-version", version, *skipped, *locations, "-")
    return run("kubeconform", *words, given=text, fails=fails)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    others = [*(ROOT / "docker").glob("kubernetes-*.yaml"), STATEFULSET / "kafka.yaml", TLS_ROUTE]
    texts = [*map(_text, CASES), *(path.read_text() for path in others)]

    said = _kubeconform(version, "\n---\n".join(texts))

    (counts,) = re.findall(r"Valid: (\d+), Invalid: 0, Errors: 0, Skipped: (\d+)", said)
    found = documents("\n---\n".join(texts))
    skipped = len([one for one in found if one["kind"].startswith("MutatingAdmission")])
    skipped *= not list((SCHEMAS / f"v{version}").glob("mutatingadmissionpolic*"))
    assert [int(count) for count in counts] == [len(found) - skipped, skipped]


def test_kubernetes_would_not_know_a_misspelt_field_or_another_type() -> None:
    text = _text(DEFAULTS)

    assert "additional properties 'replicaz' not allowed" in _kubeconform(
        VERSIONS[-1], text.replace("  replicas: 3", "  replicaz: 3"), fails=True
    )
    assert "Invalid: 1" in _kubeconform(
        VERSIONS[-1], text.replace("  replicas: 3", "  replicas: three"), fails=True
    )


def test_gateway_api_would_not_know_a_misspelt_field_or_another_name() -> None:
    text = TLS_ROUTE.read_text()

    for old, new, said in (
        ("hostnames:", "hostnamez:", "additional properties 'hostnamez' not allowed"),
        ('"*.kafka.example.org"', '"b*.kafka.example.org"', "'b*.kafka.example.org' does not match pattern"),
        ("mode: Passthrough", "mode: PassThrough", "value must be one of 'Terminate', 'Passthrough'"),
    ):
        assert old in text
        assert said in _kubeconform(VERSIONS[-1], text.replace(old, new), fails=True)


@pytest.mark.parametrize("case", CASES)
def test_a_reviewer_finds_nothing_critical(case: str) -> None:
    # No CPU limit: values.yaml says why. A tag is a version, which never changes: a pod that starts must not depend on
    # the registry, so the image is not always pulled.
    accepted = ["--ignore-container-cpu-limit", "--ignore-test", "container-image-pull-policy"]
    if case in (*SIDECARS, "enforce"):  # the brokers' pods are not the chart's
        accepted += ["--ignore-test", "networkpolicy-targets-pod", "--ignore-test", "service-targets-pod"]

    said = run("kube-score", "score", "--output-format", "ci", *accepted, "-", given=_text(case))

    assert "[OK]" in said
    assert "[CRITICAL]" not in said


def test_a_reviewer_would_find_a_writable_root() -> None:
    text = _text(DEFAULTS).replace("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false")
    assert "[CRITICAL] sluice apps/v1/StatefulSet: (sluice) The pod has a container with a writable" in run(
        "kube-score", "score", "--output-format", "ci", "-", given=text, fails=True
    )


def test_rendered_files_are_what_the_chart_makes() -> None:
    for path, make in RENDERED.items():
        assert path.read_text() == make(), (
            f"{path.relative_to(ROOT)} is not what the chart makes: run make chart"
        )


# ----------------------------------------------------------------------------------------------------
# Sluice's configuration


def _secret_files(pod: Manifest, place: Path) -> None:
    """Make the mounted Secrets: passwords and tokens, or certificates where the name says so."""
    authority = Authority.make(place)
    for volume in pod["volumes"]:
        if "secret" not in volume:
            continue
        mounted = place / volume["name"]
        mounted.mkdir()
        if volume["name"].endswith("-tls"):
            issued = authority.issue(volume["name"])
            (mounted / "tls.crt").write_bytes(issued.cert_file.read_bytes())
            (mounted / "tls.key").write_bytes(issued.key_file.read_bytes())
            (mounted / "ca.crt").write_bytes(authority.cert_file.read_bytes())
        else:
            for name in ("password", "secret", "token"):
                (mounted / name).write_text("5b" * 32)
                (mounted / name).chmod(0o440)


@pytest.mark.parametrize("case", CASES)
def test_configuration_is_right(case: str, tmp_path: Path) -> None:
    pod = _sluice(case)
    (sluice,) = containers(pod)
    (tmp_path / "secrets").mkdir()
    _secret_files(pod, tmp_path / "secrets")
    for name, text in named(_rendered(case), "ConfigMap", "sluice")["data"].items():
        here = text.replace(SECRETS, str(tmp_path / "secrets")).replace("/var/lib/sluice", str(tmp_path))
        (tmp_path / name).write_text(here)
    first = expanded(
        sluice, _pod({"sidecar": "kafka-0", "strimzi": "my-cluster-broker-0"}.get(case, "sluice-0"))
    )
    words = (sys.executable, "-m", "proxy", "check", "--offline", "--config", tmp_path / "sluice.toml")

    said = run_command(*words, cwd=ROOT, env={**bare_environment(), **first})

    assert "is right" in said
    # By default the network policy, and neither TLS nor a token, guards the admin port.
    assert re.findall(r"^warning: (?!admin\.).*", said, re.MULTILINE) == []
    if case in SIDECARS:
        assert f"in front of broker 0 at {first['SLUICE_LISTENERS__0__UPSTREAMS'].partition('=')[2]}" in said
        assert "the holder is this process" in said


def _pod(name: str) -> dict[str, str]:
    """Return the fields of a pod that its containers ask for."""
    node_id = name.rpartition("-")[2]
    labels = ("apps.kubernetes.io/pod-index", "sluice/node-id")
    return {"metadata.name": name, **{f"metadata.labels['{label}']": node_id for label in labels}}


def test_every_key_can_be_given_and_arrives_as_it_is(tmp_path: Path) -> None:
    text = (ROOT / "sluice.example.toml").read_text(encoding="utf-8")
    given = tomllib.loads(re.sub(r"^# (\w+ = |\[)", r"\1", text, flags=re.MULTILINE))
    given["listeners"][0].pop("upstreams")
    for table in (
        given["cluster"],
        given["cluster"]["tls"],
        given["listeners"][0]["tls"],
        given["fleet"]["tls"],
    ):
        for name in table.keys() & {"password", "key_password"}:
            del table[name]
    given["quotas"]["producer_override"] = 'a "b" \\ <c> & \u00fc:4M'
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"config": given}))

    found = _configuration(documents(render(values=tmp_path / "values.yaml")))

    found["admin"]["hosts"] = [name for name in found["admin"]["hosts"] if "sluice-members" not in name]
    for table, written in given.items():
        if table == "listeners":
            assert [one.items() <= made.items() for one, made in zip(written, found[table], strict=True)] == [
                True
            ]
        else:
            assert written.items() <= found[table].items(), table


def test_quotas_are_observed_in_a_fleet_of_three_by_default() -> None:
    manifests = _rendered(DEFAULTS)
    config = _configuration(manifests)

    assert named(manifests, "StatefulSet", "sluice")["spec"]["replicas"] == 3
    assert config["fleet"]["members_max"] == 3
    assert config["quotas"]["store"] == "topic"
    assert config["quotas"]["mode"] == "observe"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("fleet.enabled=false", "each pod would give every client its whole budget"),
        ("config.limit.drain_seconds=1", "limit"),
        ("replicaCount=0", "replicaCount"),
        ("fleet.secrets.secretName=a", "secrets"),
        ("config.listeners[0].upstreams.1=a:1", "set mode: sidecar"),
        ("networkPolicy.brokers.enabled=true", "must be the labels of the brokers' pods"),
        ("sidecar.patch=true", "needs mode: sidecar"),
        ("mode=sidecar", "sidecar.podLabels: must be"),
        ("listeners.client.tls.secretName=a", "listeners.client: config.listeners has none of this name"),
        ("image.tag=0.1.0", "use 0.1.0-fleet"),
        ("image.tag=0.1.0,image.target=capture", "use 0.1.0-capture"),
        ("console.enabled=true,console.image.tag=v0.1", "use v0.1-console"),
    ],
)
def test_wrong_values_are_refused(given: str, said: str) -> None:
    assert said in run("helm", "template", "sluice", str(CHART), "--set", given, fails=True)


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("config.cluster.password", "SLUICE_CLUSTER__PASSWORD"),
        ("config.cluster.tls.key_password", "SLUICE_CLUSTER__TLS__KEY_PASSWORD"),
        ("config.fleet.cluster.password", "SLUICE_FLEET__CLUSTER__PASSWORD"),
        ("config.admin.tls.key_password", "SLUICE_ADMIN__TLS__KEY_PASSWORD"),
        ("config.listeners[0].tls.key_password", "SLUICE_LISTENERS__0__TLS__KEY_PASSWORD"),
    ],
)
def test_passwords_are_refused_in_the_configuration(key: str, variable: str) -> None:
    said = run("helm", "template", "sluice", str(CHART), "--set", f"{key}=bees", fails=True)

    assert f"{key.replace('[0]', '.0')}: would be clear text in a ConfigMap" in said
    assert "cluster.password.secretName" in said
    assert f", as {variable}\n" in said
    assert "bees" not in said
    assert render("--set", f"{key}_file=/run/password")


def test_tag_of_an_image_is_taken_as_it_is() -> None:
    for given in ("0.1.0-fleet", "0.1.0@sha256:" + "a1" * 32, "ours"):
        spec = named(_rendered(DEFAULTS, "--set", f"image.tag={given}"), "StatefulSet", "sluice")["spec"]
        assert spec["template"]["spec"]["containers"][0]["image"] == f"sluice:{given}"


def test_values_of_the_documents_are_taken(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    blocks = [yaml.safe_load(block) for block in fenced(page, "yaml")]
    given = [block for block in blocks if "networkPolicyPeers" not in block]

    assert len(given) == len(blocks) - 1 == 4
    for values in given:
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        assert documents(render(values=tmp_path / "values.yaml"))


def test_schema_knows_the_tables_of_the_configuration() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["config"]["propertyNames"]["enum"]) == set(TABLES)


def test_schema_describes_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def described(value: object, of: dict[str, Any], path: str) -> None:
        if "$ref" in of:
            of = schema["definitions"][of["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and "properties" in of and path != ".config":
            assert value.keys() <= of["properties"].keys(), path
            for name, inner in value.items():
                described(inner, of["properties"][name], f"{path}.{name}")

    described(values, schema, "")


# ----------------------------------------------------------------------------------------------------
# Workloads


@pytest.mark.parametrize("case", [*CASES, "docker"])
def test_pods_are_restricted(case: str) -> None:
    if case == "docker":
        files = sorted((ROOT / "docker").glob("kubernetes-*.yaml"))
        pods = [one["spec"] for path in files for one in pod_templates(documents(path.read_text()))]
        assert len(pods) == len(files) == 2
    else:
        pods = [one["spec"] for one in pod_templates(_rendered(case))]
        assert bool(pods) == (case in GATEWAYS)

    assert [problem for pod in pods for problem in not_restricted(pod)] == []


def test_a_pod_that_is_not_restricted_is_found() -> None:
    pod = _sluice(DEFAULTS)
    changed = json.loads(json.dumps(pod))
    del changed["securityContext"]["seccompProfile"]
    changed["containers"][0]["securityContext"]["capabilities"] = {"add": ["SYS_ADMIN"]}
    changed["volumes"].append({"name": "host", "hostPath": {"path": "/"}})

    wrong = ["volume host", "sluice: seccompProfile", "sluice: capabilities.drop", "sluice: capabilities.add"]
    assert list(not_restricted(changed)) == wrong


@pytest.mark.parametrize("case", CASES)
def test_root_is_read_only_and_no_shell_is_needed(case: str) -> None:
    pods = [one["spec"] for one in pod_templates(_rendered(case))] or [_sluice(case)]
    for container in (one for pod in pods for one in containers(pod)):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert "command" not in container
        assert "cpu" not in container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@pytest.mark.parametrize("case", CASES)
def test_memory_suffices_for_all_connections(case: str) -> None:
    (sluice,) = containers(_sluice(case))
    config = _configuration(_rendered(case))
    connections = config["limits"]["connections_max"]
    workers = config.get("process", {}).get("workers", 1)
    words = ("--connections", str(connections), "--members-min", "1", "--format", "json")

    said = run_command(sys.executable, "-m", "proxy", "size", *words, cwd=ROOT, env=bare_environment())

    member = json.loads(said)["member"]
    assert member["connections"] == connections
    takes = member["memory_bytes_max"] + member["kernel_memory_bytes"]
    takes += (workers - 1) * 64 * 1024**2  # more processes than the load above needs
    assert takes < _bytes(sluice["resources"]["limits"]["memory"])


def _bytes(quantity: str) -> int:
    """Return the bytes of a quantity of Kubernetes in Mi or Gi."""
    return int(quantity[:-2]) << {"Mi": 20, "Gi": 30}[quantity[-2:]]


def test_state_without_a_volume_is_as_large_as_the_pod_may_be() -> None:
    def size(*words: str) -> str:
        (pod,) = pod_templates(_rendered(DEFAULTS, "--set", "persistence.enabled=false", *words))
        (data,) = [one for one in pod["spec"]["volumes"] if one["name"] == "data"]
        found: str = data["emptyDir"]["sizeLimit"]
        return found

    assert size("--set", "resources.limits.ephemeral-storage=300Mi") == "300Mi"
    assert size("--set", "resources.limits.ephemeral-storage=null") == "1Gi"


@pytest.mark.parametrize("case", GATEWAYS)
def test_grace_is_longer_than_waiting_draining_and_writing(case: str) -> None:
    pod = _sluice(case)
    config = _configuration(_rendered(case))
    (sluice,) = pod["containers"]
    waits = sluice["lifecycle"]["preStop"]["sleep"]["seconds"]
    takes = waits + config["limits"]["drain_seconds"] + (10 if "capture" in config else 0)

    assert pod["terminationGracePeriodSeconds"] == takes + 5


def test_pods_of_the_rolling_upgrade_live_as_those_of_the_chart() -> None:
    """What `make fleet ARGS=upgrade` measures is this chart's upgrade, not another one."""
    spec = named(_rendered(DEFAULTS), "StatefulSet", "sluice")["spec"]
    (sluice,) = spec["template"]["spec"]["containers"]

    assert Lifecycle() == Lifecycle(
        pre_stop=sluice["lifecycle"]["preStop"]["sleep"]["seconds"],
        grace=spec["template"]["spec"]["terminationGracePeriodSeconds"],
        drain=_configuration(_rendered(DEFAULTS))["limits"]["drain_seconds"],
        min_ready=spec["minReadySeconds"],
    )


def test_grace_follows_a_longer_drain() -> None:
    words = ("--set", "config.limits.drain_seconds=120.5", "--set", "preStopSeconds=15")
    pod = named(_rendered(DEFAULTS, *words), "StatefulSet", "sluice")["spec"]["template"]["spec"]

    assert pod["terminationGracePeriodSeconds"] == 121 + 15 + 5


def test_grace_of_brokers_has_time_for_the_drain() -> None:
    (statefulset,) = of_kind(
        documents((ROOT / "docker" / "kubernetes-sidecar.yaml").read_text()), "StatefulSet"
    )
    drain = _configuration(_rendered("sidecar"))["limits"]["drain_seconds"]

    assert statefulset["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drain


@pytest.mark.parametrize("case", CASES)
def test_probes_ask_the_admin_port_and_are_not_alike(case: str) -> None:
    (sluice,) = containers(_sluice(case))
    ports = {port["name"]: port["containerPort"] for port in sluice["ports"]}
    admin = _configuration(_rendered(case))["admin"]
    scheme = "HTTPS" if "tls" in admin else "HTTP"

    assert admin["bind"] == f"0.0.0.0:{ports['admin']}"
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert sluice[probe]["httpGet"] == {"path": path, "port": "admin", "scheme": scheme}


def test_changed_configuration_replaces_the_pods_unless_it_shall_not() -> None:
    def annotations(*words: str) -> dict[str, str]:
        pod = named(_rendered(DEFAULTS, *words), "StatefulSet", "sluice")["spec"]["template"]
        found: dict[str, str] = pod["metadata"].get("annotations", {})
        return found

    before = annotations()
    assert before.keys() == {"checksum/config"}
    assert annotations("--set", "config.quotas.mode=enforce") != before
    assert annotations("--set", "serviceMonitor.enabled=true") == before
    assert annotations("--set", "rollOnConfigChange=false") == {}


def test_members_have_state_and_names_of_their_own() -> None:
    manifests = _rendered(DEFAULTS)
    spec = named(manifests, "StatefulSet", "sluice")["spec"]
    (sluice,) = spec["template"]["spec"]["containers"]
    variables = expanded(sluice, _pod("sluice-1"))
    members = named(manifests, "Service", "sluice-members")["spec"]

    assert [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]] == ["data"]
    assert {"name": "data", "mountPath": "/var/lib/sluice"} in sluice["volumeMounts"]
    assert _configuration(manifests)["state"]["directory"] == "/var/lib/sluice"
    assert spec["serviceName"] == "sluice-members"
    assert members["clusterIP"] == "None"
    assert members["publishNotReadyAddresses"] is True
    assert variables["SLUICE_FLEET__NAME"] == "sluice-1"
    assert variables["SLUICE_FLEET__ADVERTISED"] == f"sluice-1.sluice-members.{NAMESPACE}.svc:19070"


@pytest.mark.parametrize("case", CASES)
def test_image_is_a_target_of_the_dockerfile_in_this_version(case: str) -> None:
    (sluice,) = containers(_sluice(case))
    config = _configuration(_rendered(case))
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    name, _, tag = sluice["image"].partition(":")
    target = tag.removeprefix(version).removeprefix("-") or "proxy"

    assert name == "sluice"
    assert tag.startswith(version)
    assert re.search(rf"^FROM \S+ AS {target}$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    if "fleet" in config or config["quotas"]["store"] == "topic":
        assert target == "fleet"
    if "capture" in config:
        assert target == "capture"


# ----------------------------------------------------------------------------------------------------
# Services and network


@pytest.mark.parametrize("case", [case for case in GATEWAYS if case != ONE_PORT])
def test_each_listener_has_a_service_that_it_advertises_with_a_port_for_every_broker(case: str) -> None:
    manifests = _rendered(case)
    listeners = _configuration(manifests)["listeners"]
    for index, listener in enumerate(listeners):
        name = "sluice" if index == 0 else f"sluice-{listener['name']}"
        service = named(manifests, "Service", name)["spec"]
        first = listener["first_broker_port"]
        wanted = {"bootstrap": listener["bootstrap_port"]}
        wanted |= {f"broker-{broker}": first + broker for broker in range(listener["broker_id_max"] + 1)}

        assert {port["name"]: port["port"] for port in service["ports"]} == wanted
        assert not any("targetPort" in port for port in service["ports"])
        if service["type"] == "ClusterIP":
            assert listener["advertised_host"] == f"{name}.{NAMESPACE}.svc"


def test_node_ports_are_what_the_listener_advertises() -> None:
    manifests = _rendered("nodeport")
    (listener,) = _configuration(manifests)["listeners"]
    ports = {
        port["name"]: port["nodePort"] for port in named(manifests, "Service", "sluice")["spec"]["ports"]
    }

    assert listener["advertised_host"] == "nodes.example.org"
    assert listener["advertised_bootstrap_port"] == ports["bootstrap"] == 30090
    first = listener["advertised_first_broker_port"]
    assert [ports[f"broker-{broker}"] for broker in range(6)] == [*range(first, first + 6)]


@pytest.mark.parametrize("case", GATEWAYS)
def test_every_selector_selects_a_pod(case: str) -> None:
    manifests = _rendered(case)
    pods = [pod["metadata"]["labels"] for pod in pod_templates(manifests)]
    selectors = [{"matchLabels": one["spec"]["selector"]} for one in of_kind(manifests, "Service")]
    selectors += [one["spec"]["selector"] for one in of_kind(manifests, "PodDisruptionBudget")]
    selectors += [
        one["spec"]["selector"] for one in manifests if one["kind"] in ("StatefulSet", "Deployment")
    ]
    selectors += [
        one["spec"]["podSelector"]
        for one in of_kind(manifests, "NetworkPolicy")
        if not one["metadata"]["name"].endswith("-brokers")
    ]

    for selector in selectors:
        assert len([labels for labels in pods if selects(selector, labels)]) == 1, selector


def _gateway_labels(manifests: list[Manifest]) -> dict[str, str]:
    labels: dict[str, str] = named(manifests, "StatefulSet", "sluice")["spec"]["template"]["metadata"][
        "labels"
    ]
    return labels


def test_gateways_are_reached_by_clients_at_listeners_alone() -> None:
    manifests = _rendered("monitoring")
    policies = of_kind(manifests, "NetworkPolicy")
    labels = _gateway_labels(manifests)
    gateway = (NAMESPACE, labels)
    (console,) = (
        pod["metadata"]["labels"] for pod in pod_templates(manifests) if pod["metadata"]["labels"] != labels
    )

    assert all(admits(policies, gateway, CLIENT, port) for port in (19090, 19100, 19109))
    assert not any(admits(policies, gateway, CLIENT, port) for port in (19070, 19080, 19110))
    assert admits(policies, gateway, gateway, 19070)
    assert not admits(policies, gateway, (NAMESPACE, {"app": "other"}), 19070)
    assert admits(policies, gateway, PROMETHEUS, 19080)
    assert admits(policies, gateway, (NAMESPACE, console), 19080)
    assert not admits(policies, (NAMESPACE, console), CLIENT, 9190)
    assert admits(policies, (NAMESPACE, console), ("ingress", {}), 9190)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fleet", ["true", "false"])
def test_no_policy_opens_every_port_to_others(case: str, fleet: str) -> None:
    words = ("--set", f"fleet.enabled={fleet},config.quotas.scope=broker")
    rules = [
        (policy["metadata"]["name"], rule)
        for policy in of_kind(_rendered(case, *words), "NetworkPolicy")
        for rule in policy["spec"]["ingress"]
    ]

    everywhere = [name for name, rule in rules if not rule.get("ports")]
    assert everywhere == (["sluice-brokers"] if case == "enforce" else [])  # the brokers, among themselves
    assert rules


def test_brokers_of_strimzi_admit_gateways_and_not_the_console() -> None:
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    (peers,) = [yaml.safe_load(block) for block in fenced(page, "yaml") if "networkPolicyPeers" in block]
    (peer,) = peers["networkPolicyPeers"]
    pods = [pod["metadata"]["labels"] for pod in pod_templates(_rendered("monitoring"))]

    assert len(pods) == 2
    selected = [labels for labels in pods if selects(peer["podSelector"], labels)]
    assert selected == [_gateway_labels(_rendered("monitoring"))]


def test_brokers_are_closed_to_all_but_sluice_each_other_and_administrators() -> None:
    manifests = _rendered("enforce")
    policies = of_kind(manifests, "NetworkPolicy")
    broker = ("kafka", {"app.kubernetes.io/name": "kafka"})

    assert not admits(policies, broker, CLIENT, 9092)
    assert not admits(policies, broker, ("kafka", {"app": "orders"}), 9092)
    assert admits(policies, broker, (NAMESPACE, _gateway_labels(manifests)), 9092)
    assert not admits(policies, broker, (NAMESPACE, _gateway_labels(manifests)), 9093)
    assert all(admits(policies, broker, broker, port) for port in (9092, 9093, 9094))
    assert admits(policies, broker, ("kafka-admin", {}), 9092)


def test_brokers_with_sidecars_are_reached_at_the_sidecars_alone() -> None:
    text = (ROOT / "docker" / "kubernetes-sidecar.yaml").read_text()
    policies = of_kind(documents(text), "NetworkPolicy")
    broker = (NAMESPACE, {"app.kubernetes.io/name": "kafka"})

    assert all(admits(policies, broker, CLIENT, port) for port in (9092, 9100, 9101, 9102))
    assert not any(admits(policies, broker, CLIENT, port) for port in (9093, 9094, 19070, 19080, 29392))
    assert all(admits(policies, broker, broker, port) for port in (9093, 9094, 19070))
    assert admits(policies, broker, PROMETHEUS, 19080)


# ----------------------------------------------------------------------------------------------------
# Sidecars


def _listeners(text: str) -> dict[str, tuple[str, int]]:
    """Parse Kafka's `NAME://host:port,…`."""
    parts = [re.fullmatch(r"([A-Z]+)://([^:]*):(\d+)", part) for part in text.split(",")]
    return {part[1]: (part[2], int(part[3])) for part in parts if part is not None}


@pytest.mark.parametrize("node", range(3))
def test_broker_advertises_its_sidecar(node: int) -> None:
    manifests = documents((ROOT / "docker" / "kubernetes-sidecar.yaml").read_text())
    (statefulset,) = of_kind(manifests, "StatefulSet")
    pod = statefulset["spec"]["template"]["spec"]
    (sluice,), (kafka,) = pod["initContainers"], pod["containers"]
    ordinal = _pod(f"kafka-{node}") | {"password": "secret"}
    sidecar, broker = expanded(sluice, ordinal), expanded(kafka, ordinal)
    (listener,) = _configuration(manifests)["listeners"]
    advertised = (sidecar["SLUICE_LISTENERS__0__ADVERTISED_HOST"], listener["first_broker_port"] + node)

    assert sluice["restartPolicy"] == "Always"  # starts before the broker, stops after it
    assert _listeners(broker["KAFKA_ADVERTISED_LISTENERS"])["CLIENTS"] == advertised
    upstream = "{}={}:{}".format(node, *_listeners(broker["KAFKA_LISTENERS"])["CLIENTS"])
    assert sidecar["SLUICE_LISTENERS__0__UPSTREAMS"] == upstream
    assert advertised[1] in {port["port"] for port in named(manifests, "Service", "kafka")["spec"]["ports"]}


def test_listeners_that_no_sidecar_stands_before_ask_for_the_brokers_password() -> None:
    (statefulset,) = of_kind(documents((STATEFULSET / "kafka.yaml").read_text()), "StatefulSet")
    (kafka,) = statefulset["spec"]["template"]["spec"]["containers"]
    broker = expanded(kafka, _pod("kafka-0") | {"password": "secret"})
    protocols = dict(one.split(":") for one in broker["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))

    for name, (host, _) in _listeners(broker["KAFKA_LISTENERS"]).items():
        if host != "127.0.0.1":
            assert protocols[name] == "SASL_PLAINTEXT"
            jaas = broker[f"KAFKA_LISTENER_NAME_{name}_PLAIN_SASL_JAAS_CONFIG"]
            assert re.search(r'password="([^"]+)"', jaas)
            assert re.search(r'user_broker="([^"]+)"', jaas)


@pytest.mark.parametrize("spec", [{}, {"initContainers": [{"name": "init"}], "volumes": [{"name": "data"}]}])
def test_admission_policy_adds_the_container_of_the_patch(spec: dict[str, Any]) -> None:
    manifests = _rendered("strimzi")
    (policy,) = of_kind(manifests, "MutatingAdmissionPolicy")
    (binding,) = of_kind(manifests, "MutatingAdmissionPolicyBinding")
    values = yaml.safe_load((EXAMPLES / "strimzi.yaml").read_text())["sidecar"]
    kafka = {"name": "kafka", "resources": {}}
    labels = values["podLabels"]
    pod = {
        "metadata": {"name": f"{values['podPrefix']}-12", "labels": labels},
        "spec": {"containers": [kafka], **spec},
    }

    admitted = json.loads(run("admit", given=json.dumps({"policy": policy, "pod": pod})))

    patch = _sluice("strimzi")
    added = {
        name: admitted["spec"][name][len(spec.get(name, ())) :] for name in ("initContainers", "volumes")
    }
    assert added == {name: patch[name] for name in added}
    assert admitted["metadata"]["labels"] == {**labels, values["nodeIdLabel"]: "12"}
    assert [one["name"] for one in admitted["spec"]["containers"]] == ["kafka"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["matchResources"]["objectSelector"]["matchLabels"] == labels


def test_brokers_of_strimzi_advertise_their_sidecars() -> None:
    kafka = named(documents(STRIMZI.read_text()), "Kafka", "my-cluster")["spec"]["kafka"]
    (plain,) = kafka["listeners"]
    values = yaml.safe_load((EXAMPLES / "strimzi.yaml").read_text())
    (listener,) = values["config"]["listeners"]
    (broker,) = [one for one in documents(STRIMZI.read_text()) if one["spec"].get("roles") == ["broker"]]
    prefix = f"my-cluster-{broker['metadata']['name']}"

    assert plain["port"] == values["sidecar"]["upstreamPort"]
    told = plain["configuration"]
    assert told["advertisedHostTemplate"] == f"{{nodePodName}}.{values['sidecar']['domain']}"
    assert told["advertisedPortTemplate"] == f"{listener['first_broker_port']} + {{nodeId}}"
    assert values["sidecar"]["podPrefix"] == prefix
    assert len(values["sidecar"]["nodeIds"]) == broker["spec"]["replicas"]
    (peer,) = plain["networkPolicyPeers"]
    assert peer["podSelector"]["matchLabels"] == values["sidecar"]["podLabels"]
    assert named(documents(STRIMZI.read_text()), "KafkaUser", values["config"]["cluster"]["username"])


# ----------------------------------------------------------------------------------------------------
# Monitoring and console


def test_alerts_and_dashboard_are_those_of_docker() -> None:
    manifests = _rendered("monitoring")
    (rule,) = of_kind(manifests, "PrometheusRule")
    dashboard = named(manifests, "ConfigMap", "sluice-dashboard")["data"]["sluice.json"]

    assert rule["spec"] == yaml.safe_load((ROOT / "docker" / "prometheus" / "alerts.yml").read_text())
    assert json.loads(dashboard) == json.loads(
        (ROOT / "docker" / "grafana" / "dashboards" / "sluice.json").read_text()
    )


def test_metrics_are_read_from_every_member() -> None:
    manifests = _rendered("monitoring")
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    selected = [
        one["metadata"]["name"]
        for one in of_kind(manifests, "Service")
        if selects(monitor["spec"]["selector"], one["metadata"]["labels"])
    ]

    assert selected == ["sluice-members"]
    assert [(one["port"], one["path"]) for one in monitor["spec"]["endpoints"]] == [("admin", "/metrics")]


def test_console_asks_every_member_by_a_name_that_the_admin_port_takes() -> None:
    manifests = _rendered("monitoring")
    (console,) = named(manifests, "Deployment", "sluice-console")["spec"]["template"]["spec"]["containers"]
    asked = [word.removeprefix("--admin=http://") for word in console["args"] if word.startswith("--admin=")]

    assert asked == [f"sluice-{member}.sluice-members.{NAMESPACE}.svc:19080" for member in range(3)]
    assert [name.rpartition(":")[0] for name in asked] == _configuration(manifests)["admin"]["hosts"]


def test_guarded_admin_port_is_known_to_prometheus_and_console() -> None:
    manifests = _rendered("admin")
    (monitor,) = of_kind(manifests, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    (console,) = named(manifests, "Deployment", "sluice-console")["spec"]["template"]["spec"]["containers"]
    config = _configuration(manifests)["admin"]

    assert config["tls"]["cert_file"] == f"{SECRETS}/admin-tls/tls.crt"
    assert config["token_file"] == f"{SECRETS}/admin-token/token"
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == config["hosts"][0]
    assert endpoint["authorization"]["credentials"] == {"name": "sluice-admin-token", "key": "token"}
    assert f"--admin=https://{config['hosts'][0]}:19080" in console["args"]
    assert f"--admin-token-file={SECRETS}/admin-token/token" in console["args"]


@pytest.mark.parametrize("more", ["console.enabled=true", "serviceMonitor.enabled=true"])
def test_certificate_is_not_asked_of_those_who_have_none(more: str) -> None:
    tls = f"admin.tls.secretName=a,admin.tls.clientCa=clients.crt,{more}"
    both = f"{tls},admin.token.secretName=b"
    for given in (tls, f"{both},config.admin.tls.client_auth=required"):
        said = run("helm", "template", "sluice", str(CHART), "--set", given, fails=True)
        assert "admin.tls.clientCa: the console and Prometheus have no client certificate" in said

    config = _configuration(_rendered(DEFAULTS, "--set", both))["admin"]
    assert config["tls"]["client_ca_file"] == f"{SECRETS}/admin-tls/clients.crt"
    assert config["tls"]["client_auth"] == "requested"


# ----------------------------------------------------------------------------------------------------
# What is printed


def _notes(*words: str, values: Path | None = None) -> str:
    """Return what Helm prints when it has installed the chart."""
    files = () if values is None else ("--values", str(values))
    said = run(
        "helm", "install", "sluice", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", *files, *words
    )
    return said.rpartition("\nNOTES:\n")[2]


def test_printed_commands_reach_a_guarded_admin_port() -> None:
    notes = _notes(values=EXAMPLES / "admin.yaml")
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    (sluice,) = _sluice("admin")["containers"]
    variables = expanded(sluice, _pod("sluice-0"))
    mounted = {mount["mountPath"] for mount in sluice["volumeMounts"]}
    address = "https://127.0.0.1:19080"

    printed = re.findall(r"exec sluice-0 -- sluice (\w+) .*--admin (\S+)$", notes, re.MULTILINE)
    assert printed == [("fleet", address), ("explain", address)]
    for command in ("fleet", "enforcement off .*"):
        assert re.search(rf"exec sluice-0 -- sluice {command} --admin {address}$", page, re.MULTILINE)
    options = run_command(sys.executable, "-m", "proxy", "fleet", "--help", cwd=ROOT, env=bare_environment())
    for variable, path in (("CA", "admin-tls/ca.crt"), ("TOKEN", "admin-token/token")):
        assert f"$SLUICE_ADMIN_{variable}_FILE" in options
        assert variables[f"SLUICE_ADMIN_{variable}_FILE"] == f"{SECRETS}/{path}"
        assert f"{SECRETS}/{path.partition('/')[0]}" in mounted


def test_printed_commands_name_another_port_and_nothing_by_default() -> None:
    assert "-- sluice fleet\n" in _notes()
    assert "-- sluice fleet --admin 127.0.0.1:1980\n" in _notes("--set", "admin.port=1980")
    asked = _notes("--set", "admin.tls.secretName=a,admin.tls.clientCa=ca.crt")
    assert "exec" not in asked
    assert "sluice fleet --admin https://127.0.0.1:19080 --admin-ca-file FILE --admin-cert-file FILE" in asked


def test_notes_name_what_is_missing() -> None:
    notes = _notes(values=EXAMPLES / "admin.yaml")
    secrets = "sluice-admin-tls, sluice-admin-token, sluice-console, sluice-fleet"

    assert f"Pods wait until these Secrets exist: {secrets}.\n" in notes
    for name in ("admin-token", "console", "fleet"):
        assert f" create secret generic sluice-{name} --from-literal=" in notes
    assert "names no registry: unless the nodes have sluice:" in notes
    assert "names no registry" not in _notes("--set", "image.repository=images.example.org/sluice")
    assert "names no registry" in _notes("--set", "image.repository=team/sluice")


# ----------------------------------------------------------------------------------------------------
# The archive


def test_archive_is_the_same_bytes_each_time_and_installs_as_the_directory(tmp_path: Path) -> None:
    archive = package(tmp_path / "once")

    assert archive.name == f"sluice-{yaml.safe_load((CHART / 'Chart.yaml').read_text())['version']}.tgz"
    assert package(tmp_path / "twice").read_bytes() == archive.read_bytes()
    words = ("--namespace", NAMESPACE, "--values", str(EXAMPLES / "monitoring.yaml"))
    assert run("helm", "template", "sluice", str(archive), *words) == _text("monitoring")


def test_checksums_of_a_release_have_the_archive_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / SUMS).write_text("what make release has written\n")
    archive = package(tmp_path)

    assert (tmp_path / SUMS).read_text() == "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in (tmp_path / "a.whl", archive)
    )


def test_tls_route_leads_to_the_one_port_by_all_names() -> None:
    manifests = _rendered(ONE_PORT)
    (listener,) = _configuration(manifests)["listeners"]
    gateway, route = documents(TLS_ROUTE.read_text())

    (at,) = gateway["spec"]["listeners"]
    assert (at["port"], at["tls"]) == (listener["advertised_bootstrap_port"], {"mode": "Passthrough"})
    brokers = f"*.{listener['broker_host'].partition('.')[2]}"
    assert route["spec"]["hostnames"] == [listener["advertised_host"], brokers]
    assert route["spec"]["parentRefs"] == [{"name": gateway["metadata"]["name"], "sectionName": at["name"]}]
    (rule,) = route["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    service = named(manifests, "Service", backend["name"])
    assert (
        [one["port"] for one in service["spec"]["ports"]] == [backend["port"]] == [listener["bootstrap_port"]]
    )
    (policy,) = of_kind(manifests, "NetworkPolicy")
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": backend["port"]}]
