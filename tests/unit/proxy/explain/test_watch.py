"""How visits attribute a connection's time: exact holds and mutes, sampled rest, parts that add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import api
from protocol.api import FETCH
from protocol.messages.telemetry import ThrottleTimes
from proxy.channel import (
    ASKED,
    AT_BROKER,
    AT_CLIENT,
    IN_SLUICE,
    UNASKED,
    UNREAD,
    Condition,
    Probe,
    Probed,
    ReplicaThrottle,
    Telemetry,
)
from proxy.channel.request_time import ANY_WAIT, RequestTimes
from proxy.explain import parts
from proxy.explain import watch as module
from proxy.explain.documents import PushedTimes
from proxy.explain.parts import MINUTE, QUARTER
from proxy.explain.report import BrokerReport, ClientReport, ConnectionsSum, brokers_of, merge, report
from proxy.explain.rules import Rule
from proxy.explain.watch import NO_PARTICULARS, TIMED_PART, Client, Meter, Particulars, Watch
from quotas.definitions.definitions import StaticQuotas
from quotas.throttles.client import ClientQuota
from tests.support.engines import engine_with
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


MS = 1_000_000
TICK_MS = 100
ENGINE = engine_with(static=StaticQuotas(producer_default=1000))
PRODUCE = Rule("produce", "producer_byte_rate")


def quota(client_id: str = "a") -> ClientQuota:
    return ENGINE.client("", client_id, broker=1)


def condition(activity: str = UNASKED, **fields: object) -> Condition:
    found = Condition(quota(), 1, activity, 0, 0, None)
    return found._replace(**fields)  # type: ignore[arg-type]


def visit(watch: Watch, condition: Condition, now_ms: int, connection: str = "c") -> None:
    watch.visit(connection, condition, "peer", TICK_MS, now_ms)


def visited(*visits: tuple[int, Condition]) -> Watch:
    """One connection that was visited at these times, in ms."""
    watch = Watch()
    for now_ms, seen in visits:
        visit(watch, seen, now_ms)
    return watch


def times(watch: Watch, now_ms: int, client_id: str = "a") -> list[float]:
    return watch.clients["", client_id].windows.sums(QUARTER, now_ms)


def only(**named: float) -> list[float]:
    return [named.get(name, 0.0) for name in parts.NAMES]


@pytest.mark.parametrize(
    ("activity", "part"),
    [
        (AT_CLIENT, "client"),
        (UNREAD, "client"),
        (IN_SLUICE, "sluice"),
        (AT_BROKER, "broker"),
        (ASKED, "broker"),
    ],
)
def test_time_since_the_last_visit_is_what_the_connection_does_now(activity: str, part: str) -> None:
    watch = visited((1000, condition()), (1250, condition(activity)), (1280, condition()))
    assert times(watch, 1280) == only(idle=TICK_MS + 30, **{part: 250})


def test_first_visit_stands_for_the_time_between_visits() -> None:
    watch = Watch()
    watch.visit("c", condition(AT_BROKER), "peer", 400, 1000)
    assert times(watch, 1000) == only(broker=400)


def test_holds_and_mutes_are_exact_and_the_rest_is_sampled() -> None:
    now = condition(AT_BROKER, held_ms=30, muted_ms=50, muting=quota().fetch)
    watch = visited((1000, condition()), (1100, now))
    assert times(watch, 1100) == only(idle=100, held=30, muted=50, broker=20)
    rules = watch.clients["", "a"].rules
    assert {rule: sums.sums(MINUTE, 1100) for rule, sums in rules.items()} == {
        PRODUCE: [30.0],
        Rule("fetch", "consumer_byte_rate"): [50.0],
    }


def test_probe_that_is_out_tells_a_wait_from_a_slow_broker() -> None:
    fetch = outstanding(sent_ns=1000 * MS, wait_ns=500 * MS)
    watch = visited(
        (1000, condition()),
        (1500, condition(ASKED, probe=fetch, asked_ms=500)),
        (1700, condition(ASKED, probe=fetch, asked_ms=700)),
    )
    assert times(watch, 1700) == only(idle=100, poll=500, broker=200)


def test_time_between_probes_divides_as_in_the_last_one() -> None:
    fetched = finished(took_ns=400 * MS, waited_ns=300 * MS)
    watch = visited((1000, condition()), (1100, condition(ASKED, probe=fetched, asked_ms=90)))
    assert times(watch, 1100) == only(idle=100, poll=75, broker=25)


def test_fetch_that_takes_longer_than_it_may_wait_is_the_brokers_time() -> None:
    fetched = finished(took_ns=400 * MS, waited_ns=400 * MS, wait_ns=500 * MS)
    watch = visited((1000, condition()), (1100, condition(ASKED, probe=fetched, asked_ms=501)))
    assert times(watch, 1100) == only(idle=100, broker=100)


def test_every_probe_that_is_over_is_counted_unless_it_only_waited() -> None:
    waited = finished(took_ns=400 * MS, waited_ns=400 * MS)
    assert visited((1000, condition(probed=Probed([waited])))).latencies.brokers() == []
    probes = [finished(took_ns=took_ms * MS) for took_ms in (8, 3)]
    watch = visited(
        (1000, condition(probe=probes[1], probed=Probed(probes))), (1100, condition(probe=probes[1]))
    )
    found = watch.latencies.times(1, MINUTE, 1200)
    assert (found.timed, sum(found.classes), found.ms) == (2, 2 / TIMED_PART, 11 / TIMED_PART)
    assert watch.clients["", "a"].brokers[1].sums(MINUTE, 1200) == [2 / TIMED_PART, 11 / TIMED_PART]


def test_connection_belongs_to_no_client_before_its_first_request() -> None:
    assert not visited((1000, condition(quota=None))).clients
    watch = visited((1000, condition(quota=None)), (1100, condition(AT_BROKER)))
    assert times(watch, 1100) == only(broker=100)


def test_connection_that_becomes_another_clients_is_counted_there() -> None:
    watch = visited((1000, condition()), (1100, condition(AT_BROKER, quota=quota("b"))))
    assert times(watch, 1100, "a") == only(idle=100)
    assert times(watch, 1100, "b") == only(broker=100)
    assert not watch.clients["", "a"].meters
    assert len(watch.clients["", "b"].meters) == 1


def test_connections_that_are_gone_are_forgotten_and_their_clients_later() -> None:
    watch = Watch()
    for name in ("c", "d"):
        visit(watch, condition(), 1000, name)
    watch.keep(["d"])
    assert len(watch) == 1
    watch.end("d")
    assert len(watch) == 0
    list(watch.expire(900_000))
    assert watch.clients
    list(watch.expire(901_001))
    assert not watch.clients


def test_clients_beyond_the_most_share_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)
    found = Watch()
    telemetry = Telemetry(900, {"produce": ThrottleTimes(1.0, None)})
    for name in "abcd":
        visit(found, condition(AT_BROKER, quota=quota(name), telemetry=telemetry), 1000, name)
    other = module.OTHER, module.OTHER
    assert set(found.clients) == {("", "a"), ("", "b"), other}
    assert found.clients[other].windows.sums(MINUTE, 1000) == only(broker=200)
    assert found.clients["", "a"].telemetry
    assert not found.clients[other].telemetry  # it would be another one's words


def test_responses_that_are_not_read_are_told_from_requests_that_arrive_slowly() -> None:
    unread = visited((1000, condition(AT_CLIENT)), (1030, condition(UNREAD))).clients["", "a"].unread
    assert unread is not None
    assert unread.sums(MINUTE, 1030) == [30]


def test_follower_is_a_client_that_waits_while_replicas_are_left_out() -> None:
    follower = condition(quota=None, broker=1, follower=3)
    leaving_out = follower._replace(leaving_out=ReplicaThrottle("leader", 1, 2e6))
    found = visited(
        (1000, follower._replace(activity=ASKED)),  # as it pleases
        (1100, leaving_out._replace(activity=ASKED)),  # others are fetched meanwhile
        (1200, leaving_out._replace(held_ms=70)),  # all are left out
    )
    client = found.clients[module.FOLLOWERS, "broker-3"]
    assert client.windows.sums(MINUTE, 1200) == only(poll=100, held=170, idle=30)
    rule = Rule("replication", "leader.replication.throttled.rate", "1", 2e6)
    assert client.rules[rule].sums(MINUTE, 1200) == [170]


def test_brokers_and_rules_of_one_client_are_bounded() -> None:
    client, meter = Client("", "a"), Meter("peer", 0, 0)
    for broker in range(10 * module.BROKERS_MAX):
        client.asked(broker, 1_000_000, 1.0, 0)
    assert len(client.brokers) == module.BROKERS_MAX + 1
    assert client.brokers[-1].sums(MINUTE, 0) == [9 * module.BROKERS_MAX, 9 * module.BROKERS_MAX]
    for number in range(10 * module.RULES_MAX):
        client.waited(Rule("topic", "producer_byte_rate", f"t{number}"), meter, 1.0, 0)
    assert len(client.rules) == module.RULES_MAX


@given(
    st.lists(
        st.tuples(
            st.sampled_from([AT_CLIENT, IN_SLUICE, AT_BROKER, ASKED, UNASKED]),
            st.integers(0, 3000),  # until this visit
            st.floats(0, 1),  # of it, how much was held or muted
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_parts_add_up_to_the_whole(visits: list[tuple[str, int, float, bool]]) -> None:
    watch, now_ms, held_ms, muted_ms = Watch(), 10_000, 0, 0
    watch.visit("c", condition(), "peer", 0, now_ms)
    for activity, pause_ms, waited, held in visits:
        now_ms += pause_ms
        if held:
            held_ms += int(waited * pause_ms)
        else:
            muted_ms += int(waited * pause_ms)
        now = condition(activity, held_ms=held_ms, muted_ms=muted_ms, muting=quota().produce)
        visit(watch, now, now_ms)
    found = times(watch, now_ms)
    assert sum(found) == pytest.approx(now_ms - 10_000)
    assert (found[parts.HELD], found[parts.MUTED]) == (held_ms, muted_ms)


def test_most_in_flight_is_of_the_last_two_minutes() -> None:
    owed = ((1_000, 2), (2_000, 5), (3_000, 0), (60_000, 1))
    watch = visited(*((now_ms, condition(ASKED, owed=count)) for now_ms, count in owed))
    (meter,) = watch.clients["", "a"].meters
    assert meter.in_flight_max == 5
    visit(watch, condition(ASKED, owed=1), 120_000)
    assert meter.in_flight_max == 1


@pytest.mark.parametrize(
    ("mean", "requests", "expected"),
    [
        (0.0, [(api.PRODUCE, 16_000, 60, 0)], 16_000),
        # 16,000 + (8,000 - 16,000) / 8 = 15,000; + (23,000 - 15,000) / 8 = 16,000
        (16_000.0, [(api.PRODUCE, 8_000, 60, 0), (api.PRODUCE, 23_000, 60, 0)], 16_000),
        (0.0, [(api.FETCH, 100, 50_000, 0), (api.FETCH, 100, 80, 500_000_000)], 50_000),
        (0.0, [(api.METADATA, 40, 3_000, 0)], 0),
    ],
    ids=[
        "the first",
        "the newest counts an eighth",
        "a Fetch's response unless it waited",
        "others have none",
    ],
)
def test_mean_of_batches(mean: float, requests: list[tuple[int, int, int, int]], expected: float) -> None:
    """Of requests with a key, bytes of request and response, and ns that it waited."""
    probes = []
    for key, request, response, waited_ns in requests:
        probe = outstanding(0)
        probe.key, probe.request_bytes, probe.response_bytes = key, request, response
        probe.waited_ns = waited_ns
        probes.append(probe)
    assert module.batch_bytes(mean, probes) == expected


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


QUICK = finished(took_ns=MS, wait_ns=0)


def asked(asked_ms: int, activity: str = ASKED, **fields: object) -> Condition:
    return condition(activity, **{"asked_ms": asked_ms, "probe": QUICK, **fields})


def broker_of(watch: Watch, now_ms: int) -> BrokerReport:
    (found,) = brokers_of(watch, MINUTE, now_ms)
    return found


def test_request_that_is_never_responded_to_counts_with_its_age_until_its_connection_ends() -> None:
    watch = visited((10_000, asked(5000)))
    broker = broker_of(watch, 10_000)
    assert (broker.under_way, broker.oldest_ms, broker.requests) == (1, 5000, 0)
    assert broker.percentile_ms(0.99) > 5000
    watch.end("c")
    assert brokers_of(watch, MINUTE, 10_000) == []


def test_request_that_is_younger_than_a_visit_is_left_to_the_timed_ones() -> None:
    assert brokers_of(visited((10_000, asked(TICK_MS - 1))), MINUTE, 10_000) == []


def test_long_request_counts_once_when_it_is_over_though_it_was_not_timed() -> None:
    ages = ((10_000 + age_ms, asked(age_ms)) for age_ms in (100, 200, 300))
    watch = visited(*ages, (10_400, asked(-1, UNASKED)))
    broker = broker_of(watch, 10_400)
    # It ended 300 to 400 ms after it began.
    assert (broker.under_way, broker.requests, broker.ms) == (0, 1, 350)
    assert watch.clients["", "a"].brokers[1].sums(MINUTE, 10_400) == [1, 350]


def test_long_request_that_was_timed_counts_once_with_its_time() -> None:
    probe = finished(took_ns=333 * MS, wait_ns=0)
    probe.sent_ns = 10_000 * MS
    broker = broker_of(visited((10_300, asked(300)), (10_400, asked(20, probed=Probed([probe])))), 10_400)
    assert (broker.timed, broker.requests, broker.ms) == (1, 1, 333)


def test_next_long_request_ends_the_one_before() -> None:
    broker = broker_of(visited((10_300, asked(300)), (10_600, asked(150))), 10_600)
    assert (broker.under_way, broker.oldest_ms, broker.requests) == (1, 150, 1)


def test_wait_that_the_request_asks_for_is_not_its_brokers() -> None:
    watch = Watch()
    visit(watch, asked(700, probe=finished(took_ns=1, wait_ns=500 * MS)), 10_000, "polls")
    visit(watch, asked(5000, probe=finished(took_ns=1, wait_ns=ANY_WAIT)), 10_000, "joins")
    visit(watch, asked(5000, probe=None), 10_000, "unknown")
    broker = broker_of(watch, 10_000)
    assert (broker.under_way, broker.oldest_ms) == (1, 200)


def test_timed_requests_stand_for_all_that_were_not() -> None:
    probes = [finished(took_ns=2 * MS, wait_ns=0) for _ in range(4)]
    broker = broker_of(visited((10_000, asked(0, probed=Probed(probes, missed=12)))), 10_000)
    assert (broker.timed, broker.requests) == (4, 16 / TIMED_PART)


def test_broker_that_stands_still_most_of_the_time_is_slow_by_time() -> None:
    # Of each half second it responds at once for 100 ms, then stands still for 400: as a stopped process would.
    watch = Watch()
    for turn in range(100):
        began_ms = 10_000 + 500 * turn
        visit(watch, asked(0, probed=Probed([finished(took_ns=MS, wait_ns=0)] * 12)), began_ms + 100)
        for age_ms in (100, 200, 300, 399):
            visit(watch, asked(age_ms), began_ms + 100 + age_ms)
    broker = broker_of(watch, 60_000)
    assert broker.percentile_ms(0.5) < 2
    assert broker.time_percentile_ms(0.5) > 400
    assert broker.slowest_ms > 400


def test_last_of_what_a_clients_library_has_pushed_is_kept_by_kind_for_a_quarter_of_an_hour() -> None:
    watch = Watch()
    for connection, at_ms, times in (
        ("one", 5_000, {"produce": ThrottleTimes(118.0, 480.0)}),
        ("other", 9_000, {"produce": ThrottleTimes(2.0, None), "fetch": ThrottleTimes(None, 7.0)}),
        ("third", 9_500, {}),  # nothing that could be read
        ("one", 5_000, {"produce": ThrottleTimes(118.0, 480.0)}),
    ):
        visit(watch, condition(telemetry=Telemetry(at_ms, times)), 10_000, connection)
    for connection in ("one", "other", "third"):
        watch.end(connection)
    client = watch.clients["", "a"]

    def pushed(now_ms: int) -> tuple[PushedTimes, ...]:
        return report(client, QUARTER, now_ms, ConnectionsSum()).telemetry

    assert pushed(21_000) == (
        PushedTimes(kind="fetch", longest_ms=7.0, seconds_ago=12.0),
        PushedTimes(kind="produce", average_ms=2.0, seconds_ago=12.0),
    )
    assert len(pushed(9_000 + 900_000)) == 2
    assert pushed(9_000 + 900_001) == ()


def test_what_was_pushed_last_to_any_process_is_reported() -> None:
    def of_process(telemetry: Telemetry) -> ClientReport:
        watch = visited((10_000, condition(telemetry=telemetry)))
        return report(watch.clients["", "a"], MINUTE, 10_000, ConnectionsSum())

    first = of_process(Telemetry(4_000, {"produce": ThrottleTimes(1.0, 2.0)}))
    later = of_process(Telemetry(9_000, {"produce": ThrottleTimes(3.0, 4.0)}))
    for reports in ((first, later), (later, first)):
        found = merge(reports)
        assert found is not None
        assert found.telemetry == (
            PushedTimes(kind="produce", average_ms=3.0, longest_ms=4.0, seconds_ago=1.0),
        )
