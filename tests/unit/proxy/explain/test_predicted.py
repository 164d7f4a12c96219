"""proxy.explain.latencies: a connection's waits that would have been, as a part of its time."""

from proxy.explain.latencies import PredictedWaits, Predictions
from proxy.explain.parts import MINUTE, TEN_SECONDS
from proxy.explain.rules import Rule
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.engine import Engine
from quotas.limiters.virtual_time import ConnectionTime
from quotas.options import EngineOptions


def test_waits_are_a_part_of_the_time_that_passes_for_them() -> None:
    waits, time = PredictedWaits(), ConnectionTime()
    time.hold(3000)
    assert waits.update(time, 1000, 5000) == 3000
    assert waits.part(TEN_SECONDS, 5000) == 0.75  # 3 of 1 + 3 s
    assert waits.update(time, 1000, 6000) == 0
    assert waits.part(TEN_SECONDS, 6000) == 0.6
    assert waits.part(TEN_SECONDS, 60_000) == 0.0


def test_waits_belong_to_the_rule_that_would_make_them() -> None:
    static = StaticQuotas(producer_default=1000)
    throttle = Engine(EngineOptions(mode="observe"), Definitions(static=static)).client("", "a", 1).produce
    predictions, time = Predictions(), ConnectionTime()
    predictions.add(time, 5, 0)
    assert predictions.rules == []
    time.count(throttle, 5)
    predictions.add(time, 5, 0)
    found = predictions.report([0.1, 0.4], MINUTE, 0)
    assert found.part == 0.4
    assert found.waits == ((Rule("produce", "producer_byte_rate"), 5.0),)
