"""Items held by address, and the address with most: compared with a recount."""

import random

import pytest

from proxy.net.holdings import Holdings, holder


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_host_counts_for_its_address(host: str, address: str) -> None:
    assert holder(host) == address


def test_hosts_of_one_network_share_what_they_hold() -> None:
    held: Holdings[int] = Holdings()
    held.add(1, "2001:db8::1")
    held.add(2, "2001:db8::2")
    held.add(3, "2001:db8:0:1::1")
    assert (held.held("2001:db8::3"), held.most, held.of_most(9)) == (2, 2, [1, 2])


def test_item_that_moves_to_another_address_is_counted_there_alone() -> None:
    held: Holdings[int] = Holdings()
    held.add(1, "10.0.0.1")
    held.add(1, "10.0.0.2")
    assert (held.held("10.0.0.1"), held.held("10.0.0.2"), len(held), held.most) == (0, 1, 1, 1)


@pytest.mark.parametrize(
    ("most", "own", "unfair"), [(1, 0, False), (2, 0, True), (3, 1, True), (2, 1, False)]
)
def test_newcomer_has_a_claim_if_it_then_has_no_more_than_others(most: int, own: int, unfair: bool) -> None:
    held: Holdings[int] = Holdings()
    for item in range(most):
        held.add(item, "10.0.0.1")
    for item in range(own):
        held.add(100 + item, "10.0.0.2")
    assert held.unfair_to("10.0.0.2") is unfair


def test_empty_holdings_have_no_items() -> None:
    held: Holdings[int] = Holdings()
    held.discard(1)
    assert (held.most, held.of_most(9), list(held), 1 in held) == (0, [], [], False)


def test_maximum_equals_a_recount_after_any_steps() -> None:
    chosen = random.Random(14)
    held: Holdings[int] = Holdings()
    model: dict[int, str] = {}
    for _ in range(5000):
        item, host = chosen.randrange(60), f"10.0.0.{chosen.randrange(6)}"
        if chosen.random() < 0.5:
            held.add(item, host)
            model[item] = host
        else:
            held.discard(item)
            model.pop(item, None)
        counts = [list(model.values()).count(name) for name in set(model.values())]
        assert held.most == max(counts, default=0)
        assert set(held) == set(model)
        of_most = held.of_most(100)
        assert len(of_most) == held.most
        assert len({model[thing] for thing in of_most}) <= 1
