"""What manifests say: whose labels a selector selects, what network policies admit, which variables a container has."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

Manifest = dict[str, Any]
Labels = Mapping[str, str]

_RESTRICTED_VOLUMES: Final = frozenset(
    {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
)


def documents(text: str) -> list[Manifest]:
    """Return the manifests of a text."""
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(manifests: Iterable[Manifest], kind: str) -> list[Manifest]:
    """Return the manifests of one kind."""
    return [one for one in manifests if one["kind"] == kind]


def named(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """Return the only manifest of this kind and name."""
    (found,) = (one for one in of_kind(manifests, kind) if one["metadata"]["name"] == name)
    return found


def pod_templates(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the templates of pods of all workloads."""
    return [one["spec"]["template"] for one in manifests if one["kind"] in ("StatefulSet", "Deployment")]


def containers(pod: Manifest) -> list[Manifest]:
    """Return all containers of a pod's spec."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


def selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    """Whether a selector with `matchLabels`, or an empty one, selects these labels.

    >>> selects({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}), selects({}, {})
    (True, True)
    """
    assert selector.keys() <= {"matchLabels"}
    wanted = selector.get("matchLabels", {})
    return all(labels.get(name) == value for name, value in wanted.items())


def expanded(container: Manifest, pod: Labels) -> dict[str, str]:
    """Return a container's variables as the kubelet sets them: $(NAME) is the value of one before.

    Args:
        pod: what fields of the pod and keys of Secrets have, by the field's path or the key.
    """
    values: dict[str, str] = {}
    for variable in container["env"]:
        if "valueFrom" in variable:
            (source,) = variable["valueFrom"].values()
            values[variable["name"]] = pod[source.get("fieldPath") or source["key"]]
        else:
            text = variable["value"]
            values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], text)
    return values


def admits(
    policies: Iterable[Manifest], target: tuple[str, Labels], source: tuple[str, Labels], port: int
) -> bool:
    """Whether network policies let a pod reach a port of another: each pod is its namespace and its labels.

    A policy without a namespace is of that of its target. A pod that no policy selects admits all; else at least one
    rule of all policies together must.
    """
    applied = [
        one["spec"]
        for one in policies
        if one["metadata"].get("namespace", target[0]) == target[0]
        and selects(one["spec"]["podSelector"], target[1])
    ]
    rules = [rule for spec in applied for rule in spec["ingress"]]
    return not applied or any(_rule_admits(rule, target[0], source, port) for rule in rules)


def _rule_admits(rule: Manifest, namespace: str, source: tuple[str, Labels], port: int) -> bool:
    ports = rule.get("ports")
    peers = rule.get("from")
    return (
        ports is None or any(one["port"] <= port <= one.get("endPort", one["port"]) for one in ports)
    ) and (peers is None or any(_is_peer(peer, namespace, source) for peer in peers))


def _is_peer(peer: Manifest, namespace: str, source: tuple[str, Labels]) -> bool:
    if "namespaceSelector" in peer:
        inside = selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": source[0]})
    else:
        inside = source[0] == namespace
    return inside and selects(peer.get("podSelector", {}), source[1])


def not_restricted(pod: Manifest) -> Iterator[str]:
    """Yield what a pod's spec has that Pod Security's standard "restricted" forbids."""
    whole = pod.get("securityContext", {})
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield name
    for volume in pod.get("volumes", ()):
        if not volume.keys() - {"name"} <= _RESTRICTED_VOLUMES:
            yield f"volume {volume['name']}"
    for container in containers(pod):
        own = container.get("securityContext", {})
        both = {**whole, **own}
        allowed = {
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "privileged": not own.get("privileged"),
            "runAsNonRoot": both.get("runAsNonRoot") is True,
            "runAsUser": both.get("runAsUser", 1) != 0,
            "seccompProfile": both.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "capabilities.drop": own.get("capabilities", {}).get("drop") == ["ALL"],
            "capabilities.add": set(own.get("capabilities", {}).get("add", ())) <= {"NET_BIND_SERVICE"},
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", ())),
            "procMount": own.get("procMount", "Default") == "Default",
        }
        yield from (f"{container['name']}: {name}" for name, right in allowed.items() if not right)
