"""The input of the sentence about one client."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proxy.explain.neighbours import Neighbour
from proxy.explain.own_time import OwnReport
from proxy.explain.report import BrokerReport, ClientReport
from proxy.explain.rules import InForce, Rule
from proxy.explain.wants import Wants


class Facts(NamedTuple):
    """The facts.

    Args:
        window: the window of the report (`windows`).
        times: the time in ms of the connection that waits longest, by part.
        waited_for: the rule that the client has waited for most; None if it has waited for none.
        found: the entity and value in force for that rule; None if its limit is gone.
        rule: the rule's document.
        neighbours: the clients that share the rule's budget, with this one.
        broker: the response times of that connection's broker.
        own: Sluice's own CPU time and delays.
        member: whether this is one member of a fleet, which has a part of the limit.
    """

    client: ClientReport
    window: int
    times: Sequence[float]
    waited_for: Rule | None = None
    found: InForce | None = None
    rule: Mapping[str, Any] | None = None
    asked: Wants | None = None
    neighbours: Sequence[Neighbour] = ()
    broker: BrokerReport | None = None
    own: OwnReport | None = None
    member: bool = False
