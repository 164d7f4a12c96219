"""Whose rate a series is and what it counts, by its metric's name and its labels.

A broker has one MBean for each client under a quota, `kafka.server:type=Produce|Fetch,user=..,client-id=..` with the
attributes byte-rate and throttle-time (`type=Request` with request-time). Exporters name them in two ways, in upper or
lower case:

- the type in a label, with the name in the form `kafka_server_quota_byte_rate{resource="Produce", user, clientId}`:
  the rules that the JMX exporter has as an example;
- the type in the name, as `kafka_server_produce_byte_rate{user, client_id}`: the JMX exporter without a rule, Strimzi's
  Metrics Reporter, Confluent. (Strimzi's example rules for the JMX exporter leave these MBeans out.)

Sluice's own counters, `sluice_client_bytes_total{type="Produce", user, client_id}`, are of the first form.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

Direction = Literal["produce", "fetch"]
Kind = Literal["bytes", "throttle"]

NAME: Final = "__name__"
_TYPE_LABELS: Final = ("resource", "type", "direction")
# By role, the labels that have its value, the first that is there; compared without case.
LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("user",),
    "client-id": ("client_id", "clientid", "client-id"),
    "broker": ("broker", "broker_id", "node_id", "kubernetes_pod_name", "pod", "instance"),
}
_NAME: Final = re.compile(
    r"(?:^|_)(?:(?P<type>produce|fetch|request)_)?"
    r"(?P<what>byte_rate|bytes_total|throttle_time|throttle_seconds_total|request_time)$"
)
_SLUICES_LIMIT: Final = "sluice_client_quota_byte_rate"  # the quota, not what is used of it
_QUOTED: Final = re.compile(r"\\(.)")
_ORDINAL: Final = re.compile(r"(?:[^.:]*-(\d+)(?:[.:].*)?|(\d+))")
NO_BROKER: Final = -1
_ID_MAX: Final = 2**31 - 1


class Client(NamedTuple):
    """Whose series it is: one client's, in one direction, at one broker; "" for a part that is not known."""

    direction: Direction
    user: str
    client_id: str
    broker: str


class Meaning(NamedTuple):
    """What a series is.

    Attributes:
        kind: `bytes`, or `throttle`: above 0 (or growing) while its client is throttled.
        counter: whether it is the sum since its process started, and not a rate.
    """

    client: Client
    kind: Kind
    counter: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """How the operator wants series to be read.

    Attributes:
        direction: of series whose name and labels do not say it; "" for none.
        labels: by role (`user`, `client-id`, `broker`), the label that has its value, instead of the usual ones.
    """

    direction: Literal["produce", "fetch", ""] = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def meaning(self, labels: Mapping[str, str]) -> Meaning | str:
        """Return what a series is; or why it is not read, as text.

        >>> kafka = {"__name__": "kafka_server_quota_byte_rate", "resource": "Produce", "clientId": "web"}
        >>> Reading().meaning(kafka).client
        Client(direction='produce', user='', client_id='web', broker='')
        >>> Reading().meaning({"__name__": "kafka_server_fetch_throttle_time", "user": "CN%3Dann"}).client.user
        'CN=ann'
        >>> Reading().meaning({"client_id": "web"})
        'neither its name nor a label says whether it is of produce or of fetch: use --direction'
        """
        low = {name.lower(): value for name, value in labels.items()}
        user, client_id, broker = (
            _unquoted(low.get(name, "")) for name in (self._label(low, role) for role in LABELS)
        )
        if not user and not client_id:
            return "no label names a user or a client id"
        metric = low.get(NAME, "").lower()
        found = _NAME.search(metric) if metric != _SLUICES_LIMIT else None
        if metric and not found and not self.direction:
            return "its name is not known as a client's rate: --direction takes others"
        types = ((found and found["type"]) or "", *(low.get(name, "").lower() for name in _TYPE_LABELS))
        said = next((text for text in types if text), "")
        what = found["what"] if found else ""
        if said == "request" or what == "request_time":
            return "it is of the request quota, which no stage sizes"
        if said not in ("produce", "fetch"):
            if said and found:
                return f"it is of {said}, and not of produce or fetch"
            said = self.direction
        if not said:
            return "neither its name nor a label says whether it is of produce or of fetch: use --direction"
        client = Client("produce" if said == "produce" else "fetch", unquote(user), client_id, broker)
        counter = metric.endswith("_total")
        return Meaning(client, "throttle" if what.startswith("throttle") else "bytes", counter)

    def _label(self, low: Mapping[str, str], role: str) -> str:
        """Return the name (in lower case) of the label that has the value of a role."""
        if role in self.labels:
            return self.labels[role].lower()
        return next((name for name in LABELS[role] if name in low), "")


def _unquoted(text: str) -> str:
    r"""Return a value of an MBean's name without the quotes that JMX puts around special characters.

    >>> _unquoted('"a\\*b"'), _unquoted("web")
    ('a*b', 'web')
    """
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _QUOTED.sub(lambda match: "\n" if match[1] == "n" else match[1], text[1:-1])
    return text


def broker_ids(names: Sequence[str]) -> dict[str, int]:
    """Return an id for each broker's name; NO_BROKER for "".

    The id is the number that the name is or ends in before its domain and port, as in Strimzi's and other stateful
    sets. If a name has no such number, or two have the same, brokers are numbered from 0 by their names.

    >>> broker_ids(["kafka-2.kafka:9404", "kafka-10.kafka:9404"])
    {'kafka-10.kafka:9404': 10, 'kafka-2.kafka:9404': 2}
    >>> broker_ids(["10.0.0.2:9404", "10.0.0.1:9404", ""])
    {'10.0.0.1:9404': 0, '10.0.0.2:9404': 1, '': -1}
    """
    named = sorted({name for name in names if name})
    numbers = [int(match[1] or match[2]) for name in named if (match := _ORDINAL.fullmatch(name))]
    if len(set(numbers)) < len(named) or max(numbers, default=0) > _ID_MAX:
        numbers = list(range(len(named)))
    ids = dict(zip(named, numbers, strict=True))
    return ids | ({"": NO_BROKER} if "" in names else {})
