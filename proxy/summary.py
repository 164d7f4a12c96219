"""The fields of the log line at start: ports, policy, scope, mode, store. Pure."""

from proxy.config import Config, ListenerOptions
from proxy.logs import Field


def summary(config: Config, quota_entries: int, problem: str = "") -> dict[str, Field]:
    """Return the fields for a configuration.

    Args:
        config: the configuration in force.
        quota_entries: the number of entities with quotas.
        problem: why the cluster cannot be served yet; "" for no such field.
    """
    quotas = config.quotas
    file = "none" if quotas.file is None else str(quotas.file)
    store = {"cluster": "the brokers", "topic": f"topic {quotas.topic}"}.get(quotas.store, file)
    found: dict[str, Field] = {
        "ports": "; ".join(map(_ports, config.listeners)),
        "admin": str(config.admin.bind or "none"),
        "policy": quotas.policy,
        "scope": quotas.scope,
        "mode": quotas.mode,
        "store": store,
        "quota_entries": quota_entries,
    }
    return {**found, "problem": problem} if problem else found


def _ports(listener: ListenerOptions) -> str:
    first, last = listener.broker_ids[0], listener.broker_ids[-1]
    ports = [] if listener.replicates else [f"bootstrap {listener.bootstrap_port}"]
    if listener.sidecar:
        ports += [f"broker {broker} {listener.broker_port(broker)}" for broker in listener.upstreams]
    else:
        ports.append(f"brokers {listener.broker_port(first)}-{listener.broker_port(last)}")
    return f"{listener.name} {listener.bind}: {', '.join(ports)}"
