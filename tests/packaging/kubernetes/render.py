"""`python -m tests.packaging.kubernetes.render` writes the project's version into the chart, and the manifests from it.

    deploy/helm/sluice/Chart.yaml           its two versions, which are pyproject.toml's
    docker/kubernetes-gateway.yaml          the chart with examples/gateway.yaml
    docker/kubernetes-sidecar.yaml          the chart with examples/sidecar.yaml, and deploy/sidecar/statefulset
    deploy/sidecar/statefulset/patch.yaml   the sidecar as a patch

The manifests are for those who use no Helm, and are never edited.
"""

import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
BIN: Final = ROOT / "build" / "bin"
CHART: Final = ROOT / "deploy" / "helm" / "sluice"
EXAMPLES: Final = CHART / "examples"
STATEFULSET: Final = ROOT / "deploy" / "sidecar" / "statefulset"
NAMESPACE: Final = "kafka"
_SECONDS_MAX: Final = 60.0

_GATEWAY: Final = """\
# Three gateways in front of all brokers of a Kafka that is there already. They are a fleet: each client has one budget
# over all of them. Rendered from deploy/helm/sluice with examples/gateway.yaml by `make chart`, for the namespace
# kafka: change it there. docs/how-to/kubernetes.md says what it does, and how it is upgraded.
#
#   kubectl create secret generic sluice-cluster --namespace kafka --from-literal=password="$SLUICE_PASSWORD"
#   kubectl create secret generic sluice-fleet --namespace kafka --from-literal=secret="$(sluice fleet secret)"
#   kubectl apply --namespace kafka --filename docker/kubernetes-gateway.yaml
#
# Before: put your brokers into `bootstrap`; they need a listener with SASL, and a user `sluice` whose password is
# $SLUICE_PASSWORD, with rights on Sluice's own topics and group. The image is made from docker/Dockerfile.
# After: clients connect to sluice.kafka.svc:19090, and log in to the brokers as before. Close the brokers' own listener
# to them, or it is the way round. The user `admin` of your Kafka may change quotas:
#
#   kafka-configs.sh --bootstrap-server sluice:19090 --command-config admin.properties --alter \\
#     --entity-type users --entity-name reports --add-config producer_byte_rate=4000000
#
"""
_SIDECAR: Final = """\
# Kafka with a Sluice beside every broker: a StatefulSet of three combined nodes, node id = the pod's ordinal. The
# Sluices are a fleet: each client has one budget over all brokers. Rendered from deploy/helm/sluice with
# examples/sidecar.yaml, and from deploy/sidecar/statefulset, by `make chart`, for the namespace kafka: change it there.
#
#   kubectl create secret generic kafka-brokers --namespace kafka --from-literal=password="$(openssl rand -hex 16)"
#   kubectl create secret generic sluice-fleet --namespace kafka --from-literal=secret="$(sluice fleet secret)"
#   kubectl apply --namespace kafka --filename docker/kubernetes-sidecar.yaml
#
# Clients connect to sluice:9092; each broker advertises <pod>.kafka:910<ordinal>, where its own Sluice listens. kafka-0
# leases all Sluices their shares of every budget. While it restarts they keep them for 15 s, and have a third of each
# from then on. To see the shares:
#
#   kubectl exec kafka-0 --namespace kafka --container sluice -- sluice fleet --admin 127.0.0.1:19080
#
# Quotas are changed in the ConfigMap, which all sidecars read again.
"""
_PATCH: Final = """\
# Rendered from deploy/helm/sluice with examples/sidecar.yaml by `make chart`: change it there.
"""


def render(*words: str, values: Path | None = None, release: str = "sluice") -> str:
    """Return what `helm template` makes of the chart, with a file of values and further arguments."""
    files = () if values is None else ("--values", str(values))
    return run("helm", "template", release, str(CHART), "--namespace", NAMESPACE, *files, *words)


def run(tool: str, *words: str, fails: bool = False, given: str = "") -> str:
    """Run one of the programs of tools/ and return what it printed.

    Args:
        fails: whether it must end with an error; both outputs are then returned.
        given: its standard input.

    Raises:
        AssertionError: it ended otherwise.
    """
    # Its own directories, so that no plugin or repository of this machine's user is read.
    place = ROOT / "build" / "helm"
    places = {f"HELM_{name}_HOME": str(place / name.lower()) for name in ("CONFIG", "CACHE", "DATA")}
    done = subprocess.run(
        [str(BIN / tool), *words],
        cwd=ROOT,
        env={**os.environ, **places},
        input=given,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"{tool} {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr if fails else done.stdout


def _chart() -> str:
    """Return Chart.yaml with the project's version; Helm wants 1.2.0-dev0 for 1.2.0.dev0."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    of = {"version": re.sub(r"\.?(?=[a-z])", "-", version, count=1), "appVersion": version}
    text = (CHART / "Chart.yaml").read_text()
    return re.sub(
        r"^(version|appVersion): .*$", lambda line: f"{line[1]}: {of[line[1]]}", text, flags=re.MULTILINE
    )


def _gateway() -> str:
    return _GATEWAY + tidy(render(values=EXAMPLES / "gateway.yaml"))


def _sidecar() -> str:
    chart = tidy(render(values=EXAMPLES / "sidecar.yaml"))
    return _SIDECAR + chart + "---\n" + run("kustomize", "build", str(STATEFULSET))


def _patch() -> str:
    words = ("--set", "sidecar.patch=true", "--show-only", "templates/sidecar-patch.yaml")
    return _PATCH + tidy(render(*words, values=EXAMPLES / "sidecar.yaml")).removeprefix("---\n")


def tidy(manifests: str) -> str:
    """Return what Helm has rendered without the lines that name templates, and without blanks at the ends of lines."""
    return re.sub(
        r"[ \t]+$", "", re.sub(r"^# Source: .*\n", "", manifests, flags=re.MULTILINE), flags=re.MULTILINE
    )


RENDERED: Final[Mapping[Path, Callable[[], str]]] = {
    CHART / "Chart.yaml": _chart,  # first: the others are made of it
    STATEFULSET / "patch.yaml": _patch,  # before the one that is made of it
    ROOT / "docker" / "kubernetes-sidecar.yaml": _sidecar,
    ROOT / "docker" / "kubernetes-gateway.yaml": _gateway,
}
"""By path, what makes the file anew."""


def main() -> None:
    """Write all files anew."""
    for path, make in RENDERED.items():
        path.write_text(make())
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
