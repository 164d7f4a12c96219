"""Items held by address, and the address with most: compared with a recount."""

import random

import pytest

from proxy.net.by_address import ByAddress, address_of


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
    assert address_of(host) == address


def test_hosts_of_one_network_share_what_they_hold() -> None:
    count_of: ByAddress[int] = ByAddress()
    count_of.add(1, "2001:db8::1")
    count_of.add(2, "2001:db8::2")
    count_of.add(3, "2001:db8:0:1::1")
    assert (count_of.count_of("2001:db8::3"), count_of.largest, count_of.of_largest(9)) == (2, 2, [1, 2])


def test_item_that_moves_to_another_address_is_counted_there_alone() -> None:
    count_of: ByAddress[int] = ByAddress()
    count_of.add(1, "10.0.0.1")
    count_of.add(1, "10.0.0.2")
    assert [count_of.count_of(host) for host in ("10.0.0.1", "10.0.0.2")] == [0, 1]
    assert (len(count_of), count_of.largest) == (1, 1)


@pytest.mark.parametrize(
    ("largest", "own", "unfair"), [(1, 0, False), (2, 0, True), (3, 1, True), (2, 1, False)]
)
def test_newcomer_has_a_claim_if_it_then_has_no_more_than_others(
    largest: int, own: int, unfair: bool
) -> None:
    count_of: ByAddress[int] = ByAddress()
    for item in range(largest):
        count_of.add(item, "10.0.0.1")
    for item in range(own):
        count_of.add(100 + item, "10.0.0.2")
    assert count_of.can_displace_for("10.0.0.2") is unfair


def test_without_items_no_address_has_any() -> None:
    count_of: ByAddress[int] = ByAddress()
    count_of.discard(1)
    assert (count_of.largest, count_of.of_largest(9), list(count_of), 1 in count_of) == (0, [], [], False)


def test_maximum_equals_a_recount_after_any_steps() -> None:
    chosen = random.Random(14)
    count_of: ByAddress[int] = ByAddress()
    model: dict[int, str] = {}
    for _ in range(5000):
        item, host = chosen.randrange(60), f"10.0.0.{chosen.randrange(6)}"
        if chosen.random() < 0.5:
            count_of.add(item, host)
            model[item] = host
        else:
            count_of.discard(item)
            model.pop(item, None)
        counts = [list(model.values()).count(name) for name in set(model.values())]
        assert count_of.largest == max(counts, default=0)
        assert set(count_of) == set(model)
        of_largest = count_of.of_largest(100)
        assert len(of_largest) == count_of.largest
        assert len({model[thing] for thing in of_largest}) <= 1
