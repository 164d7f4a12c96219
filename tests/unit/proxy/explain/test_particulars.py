"""What is known of a connection beside its time."""

from typing import Any

from protocol import api
from proxy.channel import Probed
from proxy.explain.condition import UNASKED, Condition
from proxy.explain.watch import NO_PARTICULARS, Particulars, batch_bytes
from tests.support.probes import outstanding


def sizes(mean: float, *requests: tuple[int, int, int, int]) -> float:
    """Of requests with a key, bytes of request and response, and ns that it waited."""
    probes = []
    for key, request, response, waited_ns in requests:
        probe = outstanding(0)
        probe.key, probe.request_bytes, probe.response_bytes, probe.waited_ns = (
            key,
            request,
            response,
            waited_ns,
        )
        probes.append(probe)
    return batch_bytes(mean, probes)


def test_first_batch_is_the_mean() -> None:
    assert sizes(0.0, (api.PRODUCE, 16_000, 60, 0)) == 16_000


def test_newest_counts_an_eighth() -> None:
    # 16,000 + (8,000 - 16,000) / 8 = 15,000; + (23,000 - 15,000) / 8 = 16,000
    assert sizes(16_000.0, (api.PRODUCE, 8_000, 60, 0), (api.PRODUCE, 23_000, 60, 0)) == 16_000


def test_of_a_fetch_the_response_counts_unless_it_waited() -> None:
    assert sizes(0.0, (api.FETCH, 100, 50_000, 0), (api.FETCH, 100, 80, 500_000_000)) == 50_000


def test_other_requests_have_no_batches() -> None:
    assert sizes(0.0, (api.METADATA, 40, 3_000, 0)) == 0


def condition(**fields: Any) -> Condition:
    return Condition(None, 1, UNASKED, 0, 0, None)._replace(**fields)


def test_visit_notes_what_is_so_now() -> None:
    probe = outstanding(0)
    probe.key, probe.request_bytes = api.PRODUCE, 4_000
    seen = condition(library="librdkafka 2.3.0", owed=5, waits_until_ms=70_000, probed=Probed([probe]))
    assert NO_PARTICULARS.after(seen) == Particulars("librdkafka 2.3.0", 4_000, 5, 70_000)
    probe.acks_all = True
    waits_for_all = NO_PARTICULARS.after(seen)
    assert waits_for_all.acks_all
    assert waits_for_all.after(condition()).acks_all  # until another Produce is timed


def test_visit_without_a_change_makes_no_object() -> None:
    seen = Particulars("librdkafka 2.3.0", 4_000.0, 0, 0)
    assert seen.after(condition(library="librdkafka 2.3.0")) is seen
