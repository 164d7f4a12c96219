"""quotas.limiters.flow: one channel's place at a throttle."""

from quotas.limiters.flow import Flow


def test_flow_begins_with_nothing_held_and_nothing_admitted() -> None:
    flow = Flow()
    assert (flow.limiter, flow.held_since_ms, flow.admitted, flow.queued) == (None, -1, -1, False)


def test_flow_forgets_its_place_and_keeps_the_size_of_the_last_fetch() -> None:
    flow = Flow()
    flow.tag, flow.queued, flow.held_since_ms, flow.expected, flow.passed = 7, True, 5, 1000, True
    flow.forget()
    assert (flow.tag, flow.queued, flow.held_since_ms, flow.passed) == (0, False, -1, False)
    assert flow.expected == 1000
