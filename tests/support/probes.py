"""Probes as a channel would have made them."""

from protocol.api import FETCH
from proxy.channel import Probe
from proxy.channel.request_time import RequestTimes
from tests.support.playbook import channel_machine


def outstanding(sent_ns: int, wait_ns: int = 0) -> Probe:
    """A request that the broker has."""
    requests = channel_machine().requests
    return Probe(
        None, RequestTimes(), requests, FETCH, 100, wait_ns, 0, acks_all=False, sent_ns=sent_ns, _depth=1
    )


def finished(took_ns: int, waited_ns: int = 0, wait_ns: int = 1_000_000_000) -> Probe:
    """A request whose response has come."""
    probe = outstanding(0, wait_ns)
    probe.took_ns, probe.waited_ns = took_ns, waited_ns
    return probe
