"""Loans from the holder to a limiter: they are leased as shares are, and lapse LOAN_MS after the report."""

import pytest

from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, BucketKey, Entity
from quotas.definitions.kinds import CATCH_UP_BYTE_RATE, CEILINGS, EXEMPT, PRODUCE
from quotas.engine import CLIENT_ID_CHARACTERS_MAX, EXPIRE_MS, NEWCOMERS_AT_ONCE, Engine
from quotas.limiters.limiter import ADMITTED, Flow
from quotas.limiters.schedule import ScheduledLimiter
from quotas.options import EngineOptions, Policy
from quotas.sharing.budgets import Budgets, budget_key, limiter_key_of
from quotas.sharing.capacities import Capacities
from quotas.sharing.lease_values import (
    DEFAULT_KEY,
    LOAN_MS,
    Grants,
    LeaseTerms,
    LesseeId,
    Report,
    Wish,
    loan_key,
)
from quotas.sharing.lessee import Lessee
from quotas.sharing.lessor import Lessor
from quotas.sharing.member import Member
from quotas.throttles.bandwidth import Throttle

TERMS = LeaseTerms(15_000, 1000, 4)
ALONE = LeaseTerms(15_000, 100, 1, never_lent=0.0)
LIMITER_KEY = (PRODUCE.key, BucketKey(None, "a"), -1)
KEY = budget_key(LIMITER_KEY)
LOAN = loan_key(KEY)
MB = 1_000_000
WAITS = Wish(1.0, 1.0)


def leased(shares: dict[str, float | None]) -> Lessee:
    """A process with these shares since 0 ms."""
    one = Lessee(TERMS, LesseeId("w", 1), 0)
    one.report(0)
    assert one.take(Grants(1, 1, 1, 1, 15_000, {DEFAULT_KEY: 0.25, **shares}, True, 4), 0)
    return one


# -- the lessee


def test_a_loan_without_a_grant_is_nothing() -> None:
    assert leased({}).share(LOAN, 0) == 0.0


def test_a_loan_lapses_a_second_after_the_report_and_the_share_does_not() -> None:
    one = leased({LOAN: 0.5, KEY: 0.75})
    assert (one.share(LOAN, LOAN_MS - 1), one.share(LOAN, LOAN_MS)) == (0.5, 0.0)
    assert one.share(KEY, LOAN_MS) == 0.75
    assert one.usable_until_ms == LOAN_MS


def test_grants_that_change_nothing_renew_a_loan() -> None:
    one = leased({LOAN: 0.5})
    one.report(900)
    assert one.take(Grants(1, 1, 2, 2, 15_000, {}, False, 4), 910)
    assert one.share(LOAN, 900 + LOAN_MS - 1) == 0.5


def test_grants_for_an_old_report_renew_no_loan() -> None:
    one = leased({LOAN: 0.5})
    assert one.lapse(LOAN_MS)
    one.report(1100)
    assert one.take(Grants(1, 1, 2, 2, 15_000, {}, False, 4), 1100 + LOAN_MS)
    assert one.share(LOAN, 1100 + LOAN_MS) == 0.0


@pytest.mark.parametrize(("now_ms", "held"), [(LOAN_MS - 1, 0.5), (LOAN_MS, None)])
def test_a_loan_that_has_lapsed_is_not_held_when_a_session_is_opened_again(
    now_ms: int, held: float | None
) -> None:
    one = leased({LOAN: 0.5, KEY: 0.75})
    one.lose()
    opening = one.report(now_ms)
    assert (opening.held.get(LOAN), opening.held[KEY]) == (held, 0.75)


def test_a_process_with_a_loan_reports_four_times_before_it_lapses() -> None:
    one = leased({LOAN: 0.5})
    one.report(1000)
    assert not one.due(1000 + LOAN_MS // 4 - 1)
    assert one.due(1000 + LOAN_MS // 4)


def test_a_process_that_is_cut_off_borrows_nothing() -> None:
    one = leased({LOAN: 0.5})
    assert one.share(LOAN, 15_000) == 0.0
    assert one.share(KEY, 15_000) == 0.25


def test_a_request_after_the_end_of_loans_does_not_forget_the_end_of_the_lease() -> None:
    lessee = leased({LOAN: 0.5, KEY: 0.75})
    engine = Engine(EngineOptions(policy="schedule", scope="cluster"), stated())
    engine.share(Budgets(engine, lessee, 0))
    engine.refresh(lessee.usable_until_ms)
    client = engine.client("", "a", 1).produce
    flow = client.flow()
    client.produce(flow, 1, 0)
    client.produce(flow, 1, LOAN_MS)
    # It is suspended now, before it has reported; others have its share then, and it is cut off.
    client.produce(flow, 2 * MB, 16_000)
    # Beyond the burst of a quarter of 2 MB/s.
    assert client.debt_bytes(16_000) == pytest.approx(2 * MB - 0.4 * 0.5 * MB, rel=0.01)


# -- the lessor


def report(name: LesseeId, session: int, number: int, applied: int, wishes: dict[str, Wish | None]) -> Report:
    held = {} if session else {DEFAULT_KEY: TERMS.least}
    return Report(name, session, number, applied, wishes, held, 4)


def stated(**values: float) -> Definitions:
    """A capacity of 8 MB/s, and a class that is promised 2."""
    own = {PRODUCE.key: 2.0 * MB, CEILINGS[PRODUCE.key]: 8.0 * MB, **values}
    return Definitions({Entity(capacity="cluster"): {PRODUCE.key: 8 * MB}, Entity(client_id="a"): own})


def test_loans_of_a_lessee_that_is_not_heard_are_lent_to_others_after_a_second_and_the_slack() -> None:
    definitions = stated()
    holder = Lessor(TERMS, 1, Capacities(lambda: definitions), 0, 0)
    a, b = LesseeId("a", 1), LesseeId("b", 1)
    holder.report(report(a, 0, 1, 0, {LOAN: WAITS}), 0)
    granted = dict(holder.grants(0))[a].shares[LOAN]
    # 8 MB/s less what it has of its own 2 MB/s: at first the least share, then an equal one.
    assert granted == pytest.approx(1 - TERMS.least * 2 / 8)
    holder.report(report(b, 0, 1, 0, {LOAN: WAITS}), 100)
    until_ms = LOAN_MS + TERMS.slack_ms
    assert not dict(holder.grants(until_ms - 1)).get(b, _NOTHING).shares.get(LOAN)
    holder.report(report(b, 2, 2, 1, {}), until_ms)
    found = dict(holder.grants(until_ms))
    own = TERMS.equal * 0.995 * 2 / 8
    assert found[b].shares[LOAN] == pytest.approx(1 - own, rel=0.001)
    # When it is heard again it has its part, though it reports no demand anew.
    holder.report(report(a, 1, 2, 1, {}), until_ms + 100)
    holder.report(report(b, 2, 3, 2, {}), until_ms + 100)
    lowered = dict(holder.grants(until_ms + 100))[b].shares[LOAN]
    assert lowered == pytest.approx((1 - 2 * own) / 2, rel=0.001)
    assert holder.used(LOAN) <= 1


@pytest.mark.parametrize("delay_ms", [0, 200])
def test_a_session_that_is_opened_again_revives_no_loan_that_others_have(delay_ms: int) -> None:
    definitions = stated()
    holder = Lessor(TERMS, 1, Capacities(lambda: definitions), 0, 0)
    a, b = LesseeId("a", 1), LesseeId("b", 1)
    holder.report(report(a, 0, 1, 0, {LOAN: WAITS}), 0)
    granted = dict(holder.grants(0))[a].shares[LOAN]
    assert granted is not None
    holder.report(report(b, 0, 1, 0, {LOAN: WAITS}), 100)
    until_ms = LOAN_MS + TERMS.slack_ms
    holder.report(report(b, 2, 2, 1, {}), until_ms)
    lent = dict(holder.grants(until_ms))[b].shares[LOAN]
    # `a` has sent this before its loan ended; it comes when `b` has it.
    opening = Report(a, 0, 2, 0, {LOAN: WAITS}, {DEFAULT_KEY: TERMS.least, LOAN: granted}, 4)
    holder.report(opening, until_ms + delay_ms)
    assert not dict(holder.grants(until_ms + delay_ms))[a].shares[LOAN]
    assert holder.used(LOAN) == pytest.approx(lent)


def test_a_session_that_is_opened_again_keeps_a_loan_that_has_not_ended() -> None:
    definitions = stated()
    holder = Lessor(TERMS, 1, Capacities(lambda: definitions), 0, 0)
    a = LesseeId("a", 1)
    holder.report(report(a, 0, 1, 0, {LOAN: WAITS}), 0)
    granted = dict(holder.grants(0))[a].shares[LOAN]
    assert granted
    now_ms = LOAN_MS + TERMS.slack_ms - 1
    holder.report(Report(a, 0, 2, 0, {LOAN: WAITS}, {DEFAULT_KEY: TERMS.least, LOAN: granted}, 4), now_ms)
    assert dict(holder.grants(now_ms))[a].shares[LOAN] == pytest.approx(granted)


_NOTHING = Grants(1, 1, 1, 1, 1, {}, False, 4)


def test_shares_without_a_demand_are_lowered_in_proportion() -> None:
    # A process by itself that makes no connection wait keeps a rate when the capacity shrinks.
    parts = {KEY: 1.0}
    lessor = Lessor(ALONE, 1, lambda key: parts.get(key, 1.0), 0, 0)
    lessor.report(Report(LesseeId("a", 1), 0, 1, 0, {KEY: None}, {DEFAULT_KEY: 1.0, KEY: 1.0}, 1), 0)
    list(lessor.grants(0))
    parts[KEY] = 0.6
    lessor.resized(KEY)
    lessor.report(Report(LesseeId("a", 1), 1, 2, 1, {}, {}, 1), 100)
    ((_, grants),) = lessor.grants(100)
    assert grants.shares == {KEY: pytest.approx(0.6)}


# -- the member


def test_a_member_lends_on_what_it_has_borrowed_and_takes_it_back_when_it_is_not_heard() -> None:
    member = Member(Lessee(TERMS, LesseeId("m", 1), 0), LeaseTerms(15_000, 100, 1), 0)
    worker = Lessee(LeaseTerms(15_000, 100, 1), LesseeId("w", 1), 0)

    def exchange(now_ms: int) -> None:
        for _ in range(3):
            member.workers.report(worker.report(now_ms), now_ms)
            for _, grants in member.grants(now_ms):
                assert worker.take(grants, now_ms)
                worker.confirm()

    number = member.lessee.report(0).number
    assert member.take(Grants(1, 1, 1, number, 15_000, {DEFAULT_KEY: 0.25, LOAN: 0.5}, True, 4), 0)
    worker.wish({LOAN: WAITS})
    exchange(0)
    assert worker.share(LOAN, 0) == pytest.approx(0.5)
    exchange(LOAN_MS - 100)
    assert worker.share(LOAN, LOAN_MS - 1) == pytest.approx(0.5)
    # With the member's loan, also if nothing more comes from it: the worker's report was of 900 ms.
    assert worker.share(LOAN, LOAN_MS) == 0.0
    exchange(LOAN_MS)
    assert worker.share(LOAN, LOAN_MS) == 0.0


def test_a_lease_from_a_member_that_is_cut_off_ends_no_later_than_its_next_lease() -> None:
    member = Member(Lessee(TERMS, LesseeId("m", 1), 0), LeaseTerms(15_000, 100, 1), 0)
    worker = Lessee(LeaseTerms(15_000, 100, 1), LesseeId("w", 1), 0)
    opening = member.report(0)
    assert opening is not None
    member.workers.report(worker.report(700), 700)
    for _, grants in member.grants(700):
        worker.take(grants, 700)
    assert member.take(Grants(1, 1, 1, opening.number, 15_000, {DEFAULT_KEY: 0.25}, True, 4), 800)
    assert worker.until_ms <= member.lessee.until_ms == 15_000


# -- the engine of a process by itself


class Process:
    """A process by itself, with a lessor of its own (`proxy.process.shares.OwnShares`)."""

    def __init__(self, definitions: Definitions, policy: Policy = "schedule") -> None:
        self.options = EngineOptions(policy=policy, scope="cluster")
        self.engine = Engine(self.options, definitions)
        self.lessee = Lessee(ALONE, LesseeId("p", 1), 0, cut_off=1.0, first=1.0)
        self.lessor = Lessor(ALONE, 1, Capacities(lambda: self.engine.definitions), 0, 0)
        self.budgets = Budgets(self.engine, self.lessee, 0)
        self.now_ms = 0
        self.client = self.engine.client("", "a", 1).produce
        self.flow = self.client.flow()

    def begin(self) -> None:
        self.engine.lend(self.budgets)

    def update(self, definitions: Definitions, policy: Policy = "schedule") -> None:
        options = EngineOptions(policy=policy, scope="cluster")
        self.engine.update(options, definitions, self.now_ms)

    def step(self) -> None:
        found = self.budgets.report(self.now_ms)
        if found is not None:
            self.lessor.report(found, self.now_ms)
            for _, grants in self.lessor.grants(self.now_ms):
                self.budgets.take(grants, self.now_ms)

    def rate(self, seconds: int = 4) -> float:
        """What passes of one greedy connection in MB/s, in the last second of some."""
        passed = next_ms = 0
        begin_ms = self.now_ms + 1000 * (seconds - 1)
        for _ in range(100 * seconds):
            self.now_ms += 10
            if self.now_ms % 50 == 0:
                self.step()
            for _ in range(100):
                if self.now_ms < next_ms:
                    break
                decision = self.client.produce(self.flow, 20_000, self.now_ms)
                next_ms = decision.hold_until_ms or self.now_ms + decision.throttle_ms
                if not decision.hold_until_ms:
                    passed += 20_000 * (self.now_ms > begin_ms)
        return passed / MB


def test_a_class_borrows_as_soon_as_a_capacity_is_stated_and_no_longer() -> None:
    limited = Definitions({Entity(client_id="a"): {PRODUCE.key: 2 * MB}})
    process = Process(limited)
    assert process.rate() == pytest.approx(2, rel=0.03)
    process.begin()
    process.update(stated())
    assert process.rate() == pytest.approx(8, rel=0.03)
    process.update(limited)
    assert process.rate() == pytest.approx(2, rel=0.03)


def test_a_ceiling_and_a_capacity_that_change_are_used_at_once() -> None:
    process = Process(stated())
    process.begin()
    assert process.rate() == pytest.approx(8, rel=0.03)
    process.update(stated(**{CEILINGS[PRODUCE.key]: 3.0 * MB}))
    assert process.rate() == pytest.approx(3, rel=0.03)
    smaller = stated()
    smaller.put(Entity(capacity="cluster"), {PRODUCE.key: 5 * MB}, "test")
    process.update(smaller)
    assert process.rate() == pytest.approx(5, rel=0.03)


def test_a_ceiling_below_what_a_class_without_a_promise_has_is_kept() -> None:
    ceiling = {CEILINGS[PRODUCE.key]: 0.1 * MB}
    process = Process(
        Definitions({Entity(capacity="cluster"): {PRODUCE.key: 8 * MB}, Entity(client_id="a"): ceiling})
    )
    process.begin()
    assert process.rate(6) == pytest.approx(0.1, rel=0.25)  # requests of 20 kB


def test_policy_kip13_has_no_loans_and_back_has_them() -> None:
    process = Process(stated())
    process.begin()
    assert process.rate() == pytest.approx(8, rel=0.03)
    process.update(stated(), policy="kip13")
    assert process.rate(30) <= 2.1
    process.update(stated())
    assert process.rate() == pytest.approx(8, rel=0.03)


def test_a_ceiling_alone_does_not_hide_the_default_where_no_capacity_holds() -> None:
    definitions = stated()
    definitions.put(Entity(client_id="a"), {CEILINGS[PRODUCE.key]: 5.0 * MB})
    definitions.put(Entity(client_id=DEFAULT), {PRODUCE.key: 2.0 * MB})
    process = Process(definitions, "kip13")
    process.begin()
    process.client.refresh(0)
    assert process.client.limit == 2 * MB


def test_an_exempt_class_is_counted_and_not_delayed() -> None:
    process = Process(stated(**{EXEMPT: 1.0}))
    process.begin()
    for now_ms in range(0, 1000, 10):
        assert process.client.produce(process.flow, MB, now_ms) is ADMITTED
    assert process.client.total == 100 * MB


@pytest.mark.parametrize("limits", [{EXEMPT: 1.0}, {EXEMPT: 1.0, PRODUCE.key: MB}])
def test_each_client_below_a_default_that_is_exempt_is_not_delayed(limits: dict[str, float]) -> None:
    capacity = Entity(capacity="cluster")
    process = Process(Definitions({capacity: {PRODUCE.key: 8 * MB}, Entity(client_id=DEFAULT): limits}))
    process.begin()
    for now_ms in range(0, 1000, 10):
        assert process.client.produce(process.flow, MB, now_ms) is ADMITTED


def test_a_class_that_is_exempt_no_more_is_limited_without_a_burst() -> None:
    process = Process(stated(**{EXEMPT: 1.0}))
    process.begin()
    process.client.produce(process.flow, MB, 0)
    process.update(stated())
    assert process.rate(1) == pytest.approx(8, abs=2)
    assert process.rate() == pytest.approx(8, rel=0.03)


# -- names below a default


def below_a_default(**values: float) -> Definitions:
    """A capacity of 8 MB/s, and a default for client ids."""
    capacity = {PRODUCE.key: 8.0 * MB}
    return Definitions({Entity(capacity="cluster"): capacity, Entity(client_id=DEFAULT): values})


def test_a_client_that_gets_a_default_pays_for_what_it_sends_from_then_on_only() -> None:
    process = Process(below_a_default())
    process.begin()
    assert process.rate() == pytest.approx(8, rel=0.03)
    process.update(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    assert process.rate() == pytest.approx(1, rel=0.05)


def test_names_that_fall_silent_keep_no_other_from_its_own_rate() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    process.begin()
    process.rate()
    for number in range(NEWCOMERS_AT_ONCE + 10):
        silent = process.engine.client("", f"silent-{number}", 1).produce
        process.now_ms += 10
        silent.produce(silent.flow(), 1, process.now_ms)
        assert silent.total
    process.client = process.engine.client("", "late", 1).produce
    process.flow = process.client.flow()
    assert process.rate() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another connection"])
@pytest.mark.parametrize("comes", [False, True], ids=["ends", "comes late"])
def test_the_half_of_a_first_request_that_is_late_is_charged_once(beside: bool, comes: bool) -> None:
    process = Process(below_a_default(**{PRODUCE.key: 0.1 * MB}))
    process.begin()
    first = process.engine.client("", "new", 1).produce
    flow, other = first.flow(), first.flow()
    flow.missing = 300_000
    assert not first.produce(flow, 300_000, process.now_ms).hold_until_ms
    first.announce(flow, 300_000, process.now_ms)
    flow.announced -= 150_000  # a half has come
    process.now_ms += 60
    process.step()  # from now on it has a limiter of its own, at its next use
    sent = 150_000
    if beside:
        first.produce(other, 1, process.now_ms)
        sent += 0 if first.total == 300_000 else 1
    if comes:
        process.now_ms += 240
        first.bytes_arrived(flow, process.now_ms)
        assert flow.lost == 150_000
        first.produce_rest(flow, process.now_ms)
        sent += 0 if flow.lost else 150_000
    begin_ms = process.now_ms
    first.leave(flow, begin_ms)
    first.produce(other, 1, begin_ms)
    # It pays for what it has sent at 100 kB/s, and nothing else: beside a burst of 40 kB.
    assert first.debt_bytes(begin_ms) <= sent
    assert first.debt_bytes(begin_ms) >= sent - 40_000


def once(process: "Process", names: int) -> None:
    """Each of some new names sends 20 kB, and its connection ends."""
    for number in range(names):
        client = process.engine.client("", f"once-{number}", 1).produce
        flow = client.flow()
        client.produce(flow, 20_000, process.now_ms)
        client.leave(flow, process.now_ms)


def rest(process: "Process", seconds: int) -> None:
    """Let time pass without requests; clients expire where they have."""
    process.engine.expire(process.now_ms)
    for _ in range(20 * seconds):
        process.now_ms += 50
        process.step()


def test_nothing_is_kept_of_new_names_after_their_capacity_is_removed() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    process.begin()
    empty = process.engine.client_bytes
    once(process, 100)
    process.step()
    process.update(Definitions({}))
    rest(process, 1)  # now they are known to be idle
    process.now_ms += EXPIRE_MS
    rest(process, 1)
    assert not process.budgets.busy
    assert process.engine.client_bytes == empty


def test_a_process_is_idle_when_the_last_new_name_has_expired_and_is_paid_for() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    process.begin()
    empty = process.engine.client_bytes
    once(process, 100)
    rest(process, 1)
    process.now_ms += EXPIRE_MS
    rest(process, 1)
    assert not process.budgets.busy
    assert process.engine.client_bytes == empty


def test_a_class_that_sends_no_more_shares_nothing_after_its_capacity_is_removed() -> None:
    process = Process(stated())
    process.begin()
    process.rate(1)
    process.update(Definitions({Entity(client_id="a"): {PRODUCE.key: 2 * MB}}))
    rest(process, 11)  # a demand is kept for ten seconds after the last one that waited
    assert not process.budgets.busy


def test_the_burst_of_new_names_is_not_had_again_by_the_next_ones() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    process.begin()
    process.rate()
    process.client.detach()
    passed = 0
    for number in range(1000):  # each is gone before the next one comes
        client = process.engine.client("", f"next-{number}", 1).produce
        flow = client.flow()
        passed += not client.produce(flow, 20_000, process.now_ms).hold_until_ms
        client.leave(flow, process.now_ms)
        client.detach()
        process.step()
    # 8 s of 3 % of 8 MB/s, in requests of 20 kB, and the last one.
    assert passed <= 8 * 0.03 * 8 * MB / 20_000 + 1


def test_a_new_name_has_its_rate_soon_also_after_thousands_that_sent_once() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    process.begin()
    process.rate()
    for number in range(40_000):
        silent = process.engine.client("", f"silent-{number}", 1).produce
        silent.produce(silent.flow(), 1, process.now_ms)
        if not number % NEWCOMERS_AT_ONCE:
            process.now_ms += 50
            process.step()
    process.client = process.engine.client("", "late", 1).produce
    process.flow = process.client.flow()
    assert process.rate(3) == pytest.approx(1, rel=0.05)


def test_a_class_of_many_names_is_measured_less_often_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(stated())
    process.begin()
    for number in range(20_000):
        client = process.engine.client("", f"name-{number}", 1).produce
        client.produce(client.flow(), 1, 0)
    process.client.produce(process.flow, 1, 0)
    measured: list[int] = []
    used = ScheduledLimiter.used

    def count(limiter: ScheduledLimiter) -> int:
        measured.append(len(limiter.throttles))
        return used(limiter)

    monkeypatch.setattr(ScheduledLimiter, "used", count)
    for _ in range(40):
        process.now_ms += 50
        process.step()
    # Added up in 2 s: five times some milliseconds; and the class of one name each 100 ms.
    assert measured.count(1) >= 20
    assert 4 <= measured.count(20_000) <= 7


def test_a_long_client_id_below_a_default_is_a_class_with_known_terms() -> None:
    longest = "x" * CLIENT_ID_CHARACTERS_MAX
    limiter_key = (CATCH_UP_BYTE_RATE, BucketKey("u" * 255, longest), 2**31 - 1)
    assert limiter_key_of(budget_key(limiter_key)) == limiter_key


def many_names(process: Process) -> list[tuple[Throttle, Flow]]:
    """80 names below a default that have limiters of their own, and send little."""
    clients = [process.engine.client("", f"name-{number}", 1).produce for number in range(80)]
    found = [(client, client.flow()) for client in clients]
    for _ in range(20):
        for client, flow in found:
            client.produce(flow, 10, process.now_ms)
        for _ in range(20):
            process.now_ms += 50
            process.step()
    return found


def passed_at_once(process: Process, names: list[tuple[Throttle, Flow]]) -> int:
    """The bytes that names pass at the same moment, after a minute without any."""
    for client, _ in names:
        client.refresh(process.now_ms)
    process.now_ms += 60_000
    process.step()
    for client, _ in names:
        client.refresh(process.now_ms)
    passed = 0
    for client, flow in names:
        while client.produce(flow, 10_000, process.now_ms) is ADMITTED:
            passed += 10_000
    return passed


# The burst of 0.4 s of the capacity, and two requests of each.
AT_ONCE_MAX = 0.4 * 1.25 * 8 * MB + 2 * 80 * 10_000


def test_names_below_a_default_that_begin_together_have_the_capacity_also_after_one_has_gone() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    process.begin()
    (gone, _), *names = many_names(process)
    gone.detach()
    assert passed_at_once(process, names) <= AT_ONCE_MAX


def test_names_below_a_default_that_begin_together_have_the_capacity_also_after_that_was_altered() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 0.1 * MB}))
    process.begin()
    names = many_names(process)
    process.update(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    assert passed_at_once(process, names) <= AT_ONCE_MAX


def test_a_name_that_gets_an_entry_has_its_rate_at_once() -> None:
    process = Process(below_a_default(**{PRODUCE.key: 1.0 * MB}))
    process.begin()
    (named, flow), *_ = many_names(process)
    altered = below_a_default(**{PRODUCE.key: 1.0 * MB})
    altered.put(Entity(client_id="name-0"), {PRODUCE.key: 5.0 * MB}, "test")
    process.update(altered)
    assert passed_at_once(process, [(named, flow)]) >= 0.4 * 5 * MB


def with_capacity(rate: float) -> Definitions:
    return Definitions(
        {Entity(capacity="cluster"): {PRODUCE.key: rate}, Entity(client_id=DEFAULT): {PRODUCE.key: 0.1 * MB}}
    )


def test_saved_bytes_that_have_passed_are_paid_for_by_a_capacity_that_was_raised() -> None:
    process = Process(with_capacity(0.01 * MB))
    process.begin()
    _, limiter = process.engine.attach(process.client, 0)
    assert isinstance(limiter, ScheduledLimiter)
    assert process.engine.spend(limiter, 16 * MB, 0) == 0
    # 16 MB at 10 kB/s are paid for in 1600 s, and at 8 MB/s in 2.
    assert process.engine.spend(limiter, 0, 1000) == pytest.approx(1_599_000)
    process.update(with_capacity(8.0 * MB))
    assert process.engine.spend(limiter, 0, 1000) == pytest.approx(1000)
    assert process.engine.spend(limiter, 0, 2000) == 0


def test_a_limiter_of_new_names_stays_where_one_before_it_is_forgotten() -> None:
    before, process = Process(with_capacity(MB)), Process(with_capacity(MB))
    before.begin()
    process.begin()
    (_, old), (_, found) = (one.engine.attach(one.client, 0) for one in (before, process))
    assert isinstance(old, ScheduledLimiter)
    assert old.limiter_key is not None
    process.engine.forget_newcomers(old, old.limiter_key, 60_000)
    assert process.engine.attach(process.client, 60_000) == (0.1 * MB, found)


def test_a_class_that_comes_late_has_what_twenty_others_leave() -> None:
    own = {PRODUCE.key: 1000.0, CEILINGS[PRODUCE.key]: 8.0 * MB}
    names = [f"name-{number}" for number in range(20)]
    definitions = Definitions({Entity(capacity="cluster"): {PRODUCE.key: 8 * MB}, Entity(client_id="a"): own})
    for name in names:
        definitions.put(Entity(client_id=name), own, "test")
    process = Process(definitions)
    process.begin()
    clients = [process.engine.client("", name, 1).produce for name in names]
    flows = [client.flow() for client in clients]
    passed = 0
    next_ms = dict.fromkeys((*clients, process.client), 0)
    flow_of = dict(zip((*clients, process.client), (*flows, process.flow), strict=True))
    for _ in range(1600):
        process.now_ms += 10
        if process.now_ms % 50 == 0:
            process.step()
        late = process.now_ms > 4000
        # The twenty want all at first; then 3.2 kB in 10 ms, 0.8 of a twentieth of the capacity.
        for client in (*clients, process.client) if late else clients:
            while process.now_ms >= next_ms[client]:
                decision = client.produce(flow_of[client], 3200, process.now_ms)
                pause_ms = 10 if late and client is not process.client else 0
                next_ms[client] = decision.hold_until_ms or process.now_ms + max(
                    decision.throttle_ms, pause_ms
                )
                passed += 3200 * (process.now_ms > 12_000 and not decision.hold_until_ms)
    # Each of the twenty is lent 3 % more than it uses, so that it can grow, and up to 1 % from before.
    assert 0.96 * 8 * MB <= passed / 4 <= 8 * MB
