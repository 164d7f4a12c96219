"""The lessee: which share holds when, and which grants belong to it."""

import pytest

from quotas.sharing.lease_values import DEFAULT_KEY, Grants, LeaseTerms, LesseeId, Wish
from quotas.sharing.lessee import Lessee

TERMS = LeaseTerms(15_000, 1000, 4)


def lessee() -> Lessee:
    return Lessee(TERMS, LesseeId("a", 1), 0)


def grants(shares: dict[str, float | None], version: int, number: int, *, complete: bool = False) -> Grants:
    return Grants(1, 1, version, number, 15_000, shares, complete, 4)


def leased(now_ms: int = 0) -> Lessee:
    one = lessee()
    number = one.report(now_ms).number
    assert one.take(grants({DEFAULT_KEY: 0.2, "k": 0.6}, 1, number, complete=True), now_ms + 5)
    return one


def test_a_process_that_begins_has_the_least_share_and_is_cut_off_after_a_lease() -> None:
    one = lessee()
    assert one.share("k", 15_309) == TERMS.least
    assert not one.cut_off(15_309)
    assert one.share("k", 15_310) == 0.25
    assert one.cut_off(15_310)


def test_keys_without_a_share_of_their_own_have_the_default_one() -> None:
    one = leased()
    assert (one.share("k", 10), one.share("other", 10)) == (0.6, 0.2)


def test_a_lease_counts_from_when_the_report_was_sent() -> None:
    one = leased(now_ms=0)
    assert one.share("k", 14_999) == 0.6
    assert one.share("k", 15_000) == 0.25  # cut off: it was taken at 5 ms, and ends at 15,000 all the same


def test_grants_without_a_newer_report_do_not_extend_the_lease() -> None:
    one = leased()
    assert one.take(grants({"k": 0.5}, 2, 1), 10_000)
    assert one.until_ms == 15_000


def test_a_released_key_has_the_default_share() -> None:
    one = leased()
    one.take(grants({"k": None}, 2, 1), 10)
    assert one.share("k", 10) == 0.2


@pytest.mark.parametrize(
    ("session", "version"), [(1, 1), (1, 3), (2, 2)], ids=["repeated", "one is missing", "another session"]
)
def test_other_grants_are_ignored(session: int, version: int) -> None:
    one = leased()
    other = Grants(1, session, version, 1, 15_000, {"k": 0.9}, False, 4)
    assert not one.take(other, 10)
    assert one.share("k", 10) == 0.6


def test_a_missing_version_ends_the_session() -> None:
    one = leased()
    one.take(grants({}, 3, 1), 10)
    assert one.session == 0
    opening = one.report(20)
    assert opening.session == 0
    assert opening.held == {DEFAULT_KEY: 0.2, "k": 0.6}  # the lease goes on


def test_a_response_to_a_report_of_before_the_cut_off_is_ignored() -> None:
    one = leased()
    one.report(1000)
    one.expire(15_000)
    assert not one.take(grants({"k": 0.9}, 2, 2), 15_001)
    assert one.report(15_002).held == {DEFAULT_KEY: 0.25}


def test_only_changed_wishes_are_reported() -> None:
    one = leased()
    one.wish({"k": Wish(1.0, 2), "l": Wish(0.5, 1)})
    assert one.due(2000)
    assert one.report(2000).wishes == {"k": Wish(1.0, 2), "l": Wish(0.5, 1)}
    one.wish({"k": Wish(1.0, 3)})
    assert one.report(2100).wishes == {"k": Wish(1.0, 3), "l": None}
    assert one.report(2200).wishes == {}


def test_shares_that_are_in_force_are_acknowledged_without_delay() -> None:
    one = leased()
    assert not one.due(500)
    one.confirm()
    assert one.due(500)
    assert one.report(500).applied == 1
    assert not one.due(520)


def test_a_larger_number_of_members_elsewhere_makes_the_cut_off_share_smaller() -> None:
    one = lessee()
    one.report(0)
    one.take(Grants(1, 1, 1, 1, 15_000, {DEFAULT_KEY: 0.1}, True, 10), 5)
    assert one.share("k", 15_000) == 0.1


def reopened(one: Lessee) -> dict[str, float]:
    """Return what it says that it holds when a session begins."""
    one.lose()
    return dict(one.report(100).held)


def test_a_share_that_is_not_yet_lower_everywhere_is_told_when_a_session_begins() -> None:
    one = leased()
    one.confirm()
    assert one.take(grants({"k": 0.3, "other": 0.1}, 2, 1), 10)
    assert one.share("k", 10) == 0.3
    assert reopened(one) == {DEFAULT_KEY: 0.2, "k": 0.6, "other": 0.2}
    one.confirm()
    assert reopened(one) == {DEFAULT_KEY: 0.2, "k": 0.3, "other": 0.1}


def test_a_default_share_that_is_not_yet_lower_everywhere_is_told_too() -> None:
    one = leased()
    one.confirm()
    assert one.take(grants({DEFAULT_KEY: 0.1, "k": None}, 2, 1), 10)
    assert reopened(one) == {DEFAULT_KEY: 0.2, "k": 0.6}


def test_a_share_that_was_lowered_and_raised_is_told_as_it_may_be_used() -> None:
    one = leased()
    one.confirm()
    assert one.take(grants({"k": 0.3}, 2, 1), 10)
    assert one.take(grants({"k": 0.7}, 3, 1), 20)
    assert reopened(one) == {DEFAULT_KEY: 0.2, "k": 0.7}


def test_the_share_of_a_cut_off_process_is_told_until_it_is_lower_everywhere() -> None:
    one = lessee()
    now_ms = 16_000
    assert one.share("k", now_ms) == 0.25
    number = one.report(now_ms).number
    assert one.take(grants({DEFAULT_KEY: 0.249, "k": 0.001}, 1, number, complete=True), now_ms + 5)
    assert one.share("k", now_ms + 5) == 0.001
    one.lose()
    assert one.report(now_ms + 100).held == {DEFAULT_KEY: 0.25, "k": 0.25}
