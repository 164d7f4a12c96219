"""An explanation in one or two sentences of plain English."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from commandline.amounts import rate as byte_rate
from proxy.explain import parts
from proxy.explain.report import BrokerReport, ClientReport, part_of, waited_part
from proxy.explain.rules import InForce
from proxy.explain.wants import Wants
from proxy.explain.windows import SECONDS

__all__ = ["Facts", "amount", "sentence"]

_WINDOWS: Final = {10: "the last 10 s", 60: "the last minute", 900: "the last quarter of an hour"}
_BYTES: Final = frozenset(("produce", "fetch", "topic"))
_MOSTLY: Final = 0.5
_SLOW_MS: Final = 100.0


class Window(Protocol):
    """The window of the report."""

    @property
    def window(self) -> int:
        """Its place in `windows.SECONDS`."""


class Facts(NamedTuple):
    """What the sentence is about.

    Args:
        times: of the connection that waits longest, by part.
        rule: the rule's document.
        broker: the connection's broker.
    """

    client: ClientReport
    times: Sequence[float]
    context: Window
    found: InForce | None
    rule: Mapping[str, Any] | None
    asked: Wants | None
    broker: BrokerReport | None


def sentence(facts: Facts) -> str:
    """Return the sentence."""
    name = facts.client.client_id or "(no client id)"
    if facts.client.user not in ("", "ANONYMOUS"):
        name = f"{name} of {facts.client.user}"
    waited = waited_part(facts.times)
    if facts.found is not None and facts.rule is not None:
        return " ".join(filter(None, (_throttled(name, waited, facts), _asks(facts), _broker(facts))))
    return f"{name} is not throttled: {_not_throttled(facts)}"


def amount(kind: str, value: float) -> str:
    """Return a limit or rate with its unit.

    >>> amount("produce", 2e6), amount("request", 12.5), amount("mutation", 5)
    ('2.0 MB/s', '12.5 %', '5 partitions/s')
    """
    if kind in _BYTES:
        return byte_rate(value)
    unit = {"request": " %", "mutation": " partitions/s", "connection": " connections/s"}[kind]
    return f"{value:.3g}{unit}" if kind != "request" else f"{value:g}{unit}"


def _throttled(name: str, waited: float, facts: Facts) -> str:
    found, rule = facts.found, facts.rule
    assert found is not None, "the caller has looked"
    assert rule is not None, "the caller has looked"
    when = _WINDOWS[SECONDS[facts.context.window]]
    limit = f"{found.rule.key} {amount(found.rule.kind, found.value)} of {rule['entity']}"
    by = f" by {rule['set_by']}" if rule["set_by"] else ""
    at = f" {rule['set_at']}" if rule["set_at"] else ""
    return f"{name} waited {waited:.0%} of {when} for {limit}{f', set{at}{by}' if at or by else ''}."


def _asks(facts: Facts) -> str:
    if facts.asked is None or facts.found is None:
        return ""
    about = "at least" if facts.asked.at_least else "about"
    return f"It asks for {about} {amount(facts.found.rule.kind, facts.asked.rate)}."


def _broker(facts: Facts) -> str:
    """Say what part of a request's time is the broker's."""
    client = facts.client
    part = part_of(facts.times, parts.BROKER)
    if not client.probes or part <= 0:
        return ""
    broker_ms = client.broker_ms / client.probes
    return f"The broker takes {_ms(broker_ms)} of {_ms(broker_ms / part)} per request."


def _not_throttled(facts: Facts) -> str:
    times = facts.times
    if not sum(times):
        return "nothing was seen of it yet."
    index = max(range(len(parts.NAMES)), key=lambda part: times[part])
    asked = [part for part in range(len(parts.NAMES)) if part != parts.IDLE]
    busiest = max(asked, key=lambda part: times[part])
    if index == parts.IDLE and part_of(times, busiest) >= (1 - _MOSTLY) / 2:
        index = busiest
    share = f"{part_of(times, index):.0%} of the time"
    if index == parts.BROKER and facts.broker is not None:
        broker = facts.broker
        return f"{share} is broker {broker.broker}, whose p99 is {_ms(broker.percentile_ms(0.99))} for all clients."
    return {
        parts.BROKER: f"{share} is the broker.",
        parts.POLL: f"{share} its Fetches wait for records, or its group for members.",
        parts.CLIENT: f"{share} the client is slow: it does not read its responses, or sends requests slowly.",
        parts.SLUICE: f"{share} its requests are in Sluice.",
        parts.IDLE: f"{share} it asks for nothing.",
    }.get(index, f"{share} it waited, and the limit is gone now.")


def _ms(ms: float) -> str:
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"
