"""`python -m tests.packaging.kubernetes.schemas` writes schemas/: JSON schemas of the kinds that the chart uses.

They are made of Kubernetes' own API description and of the CRDs of the Prometheus operator and of the Gateway API. All
are in Go modules; those that kubeconform would fetch are on a host that tests must not need. An object may have no
field that is not described. What Kubernetes defines beyond a schema, such as formats of names and rules in CEL, is not
checked.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

SCHEMAS: Final = Path(__file__).parent / "schemas"
VERSIONS: Final = ("1.30.14", "1.34.3", "1.37.2")
"""The oldest Kubernetes that the chart takes, one between, and the newest."""

OPERATOR: Final = "0.85.0"
GATEWAY_API: Final = "1.5.1"
"""Of the first line whose standard channel has TLSRoute."""

KINDS: Final = {
    "io.k8s.api.core.v1": ("ConfigMap", "Service", "ServiceAccount"),
    "io.k8s.api.apps.v1": ("Deployment", "StatefulSet"),
    "io.k8s.api.networking.v1": ("NetworkPolicy",),
    "io.k8s.api.policy.v1": ("PodDisruptionBudget",),
    # Of Kubernetes 1.36 and later.
    "io.k8s.api.admissionregistration.v1": ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
}
CRDS: Final = {
    f"github.com/prometheus-operator/prometheus-operator@v{OPERATOR}": [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{name}.yaml"
        for name in ("podmonitors", "prometheusrules", "servicemonitors")
    ],
    f"sigs.k8s.io/gateway-api@v{GATEWAY_API}": [
        f"config/crd/standard/gateway.networking.k8s.io_{name}.yaml" for name in ("gateways", "tlsroutes")
    ],
}
"""Files by Go module."""
_AMOUNT: Final = {"type": ["string", "number"]}
_IRREGULAR: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _AMOUNT,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _AMOUNT,
}
_KEPT: Final = ("$ref", "type", "enum", "required", "pattern", "minimum", "maximum", "minLength", "maxLength")
_INNER: Final = ("items", "additionalProperties")
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")


def main() -> None:
    """Write the schemas of all versions anew."""
    shutil.rmtree(SCHEMAS, ignore_errors=True)
    for version in VERSIONS:
        module = _module(f"k8s.io/kubernetes@v{version}")
        _write_version(version, json.loads((module / "api/openapi-spec/swagger.json").read_text()))
    for name, paths in CRDS.items():
        module = _module(name)
        for path in paths:
            _write_crd(yaml.safe_load((module / path).read_text()))


def _module(name: str) -> Path:
    """Return the directory of a Go module, which is downloaded if it is not there."""
    with tempfile.TemporaryDirectory() as outside:
        words = ["go", "mod", "download", "-json", name]
        done = subprocess.run(words, cwd=outside, stdout=subprocess.PIPE, check=True, timeout=600)
    return Path(json.loads(done.stdout)["Dir"])


def _write_version(version: str, described: dict[str, Any]) -> None:
    definitions = described["definitions"]
    needed: dict[str, Any] = {}
    for group, kinds in KINDS.items():
        for kind in kinds:
            name = f"{group}.{kind}"
            if name not in definitions:
                continue
            _collect(definitions, name, needed)
            parts = group.removeprefix("io.k8s.api.").split(".")
            suffix = parts[1] if parts[0] == "core" else "-".join(parts)
            reference = {"$ref": f"definitions.json#/definitions/{name}"}
            _write(SCHEMAS / f"v{version}" / f"{kind.lower()}-{suffix}.json", reference)
    _write(SCHEMAS / f"v{version}" / "definitions.json", {"definitions": needed})


def _collect(definitions: dict[str, Any], name: str, needed: dict[str, Any]) -> None:
    """Add a definition, and all that it refers to."""
    if name in needed:
        return
    needed[name] = _IRREGULAR.get(name) or pruned(definitions[name])
    for reference in _references(needed[name]):
        _collect(definitions, reference.rpartition("/")[2], needed)


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def pruned(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without descriptions, in which no field may be that has no description.

    >>> pruned({"type": "object", "properties": {"a": {"type": "string", "description": "A."}}})
    {'type': 'object', 'properties': {'a': {'type': 'string'}}, 'additionalProperties': False}
    """
    found: dict[str, Any] = {name: schema[name] for name in _KEPT if name in schema}
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return dict(_AMOUNT)
    for name in _INNER:
        if isinstance(schema.get(name), dict):
            found[name] = pruned(schema[name])
    for name in _ALTERNATIVES:
        if name in schema:
            found[name] = [pruned(one) for one in schema[name]]
    if "properties" in schema:
        found["properties"] = {name: pruned(one) for name, one in schema["properties"].items()}
        found["additionalProperties"] = False
    return found


def _write_crd(crd: dict[str, Any]) -> None:
    kind = crd["spec"]["names"]["kind"].lower()
    group = crd["spec"]["group"].partition(".")[0]
    (stored,) = (version for version in crd["spec"]["versions"] if version["storage"])
    schema = pruned(stored["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    _write(SCHEMAS / f"{kind}-{group}-{stored['name']}.json", schema)


def _write(path: Path, schema: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(schema, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
