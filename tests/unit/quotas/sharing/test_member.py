"""A member between the holder and its workers: what it acknowledges, and when its workers' leases end."""

import pytest

from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Wish
from quotas.sharing.lessee import Lessee
from quotas.sharing.member import Member

WORKERS = LeaseTerms(500, 100, 2)
IDLE_MS = 10_000


class Host:
    """A member with one worker; the holder is played by the test."""

    def __init__(self) -> None:
        self.member = Member(Lessee(LeaseTerms(15_000, 1000, 4), LesseeId("m", 1), 0), WORKERS, 0)
        self.worker = Lessee(WORKERS, LesseeId("w", 1), 0, cut_off=1e-9, first=1e-9)
        self.version = 0

    def grant(self, shares: dict[str, float | None], now_ms: int) -> None:
        number = self.member.lessee.report(now_ms).number
        self.version += 1
        assert self.member.take(
            Grants(1, 1, self.version, number, 15_000, shares, self.version == 1, 4), now_ms
        )

    def exchange(self, now_ms: int, wishes: dict[str, Wish] | None = None) -> None:
        """Deliver a report of the worker and its responses, until nothing changes any more."""
        self.worker.wish(wishes or {})
        for _ in range(4):
            self.member.workers.report(self.worker.report(now_ms), now_ms)
            for _, grants in self.member.grants(now_ms):
                assert self.worker.take(grants, now_ms)
                self.worker.confirm()


def test_a_worker_has_its_part_of_the_members_share() -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25}, 0)
    host.exchange(0)
    assert host.worker.share("k", 0) == pytest.approx(0.25 * 0.995 / 2)


def test_a_worker_that_waits_has_all_of_it_once_the_other_wants_nothing() -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25, "k": 0.8}, 0)
    host.exchange(0, {"k": Wish(1.0, 1)})
    assert host.worker.share("k", 0) == pytest.approx(0.8 * 0.995, rel=0.01)


def test_a_lowered_share_is_acknowledged_when_the_workers_have_acknowledged_it() -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25, "k": 0.8}, 0)
    host.exchange(0, {"k": Wish(1.0, 1)})
    host.grant({"k": 0.1}, 100)
    list(host.member.grants(100))  # sent, and not yet applied
    assert host.member.lessee.report(100).applied == 1


def test_a_lowered_share_is_acknowledged_when_the_leases_of_silent_workers_are_over() -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25, "k": 0.8}, 0)
    host.exchange(0, {"k": Wish(1.0, 1)})
    host.grant({"k": 0.1}, 100)
    gone_ms = 500 + WORKERS.slack_ms
    list(host.member.grants(gone_ms - 1))
    assert host.member.lessee.unconfirmed
    list(host.member.grants(gone_ms))
    assert not host.member.lessee.unconfirmed


def test_a_worker_keeps_a_share_of_its_own_while_its_member_has_one() -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25}, 0)
    host.exchange(0)
    host.grant({"k": 0.1}, 100)
    for now_ms in range(100, 3 * IDLE_MS, 100):
        if not now_ms % 1000:
            host.grant({}, now_ms)
        host.exchange(now_ms)
    assert host.worker.has("k")
    host.grant({"k": None}, 3 * IDLE_MS)
    for now_ms in range(3 * IDLE_MS, 5 * IDLE_MS, 100):
        if not now_ms % 1000:
            host.grant({}, now_ms)
        host.exchange(now_ms)
    assert not host.worker.has("k")


def test_a_grant_of_one_share_does_not_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25, **{f"k{number}": 0.5 for number in range(100)}}, 0)
    host.exchange(0)

    def named(_: Lessee) -> list[str]:
        raise AssertionError("all keys are read")

    monkeypatch.setattr(Lessee, "named", property(named))
    host.grant({"k7": 0.1}, 100)
    host.exchange(100)
    assert host.worker.share("k7", 100) <= 0.1


@pytest.mark.parametrize("wishes", [{"k": Wish(1.0, 1)}, {}], ids=["wanted", "idle"])
@pytest.mark.parametrize("part", [0.999, 0.99, 0.982, 0.97])
def test_a_share_that_is_lowered_a_little_is_acknowledged(part: float, wishes: dict[str, Wish]) -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25, "k": 0.8}, 0)
    host.exchange(0, {"k": Wish(1.0, 1)})
    host.exchange(50, wishes)
    host.grant({"k": 0.8 * part}, 100)
    host.exchange(100, wishes)
    assert host.worker.share("k", 100) <= 0.8 * part
    assert host.member.lessee.report(100).applied == 2


def test_a_workers_lease_ends_no_later_than_its_members() -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25}, 0)
    host.exchange(14_900)
    assert host.worker.until_ms == 15_000


def test_the_demand_of_all_workers_goes_to_the_holder() -> None:
    host = Host()
    host.grant({DEFAULT_KEY: 0.25}, 0)
    host.exchange(0, {"k": Wish(1.0, 3)})
    report = host.member.report(100)
    assert report is not None
    assert report.wishes == {"k": Wish(1.0, 3)}
