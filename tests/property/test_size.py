"""`sluice size` for any load: more load never needs less, and what is said to carry it does."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.commands import size
from proxy.commands.size import Load

LOADS = st.builds(
    Load,
    produce=st.integers(0, 10**10),
    consume=st.integers(0, 10**10),
    connections=st.integers(0, 200_000),
    request_bytes=st.integers(100, 2**21),
    response_bytes=st.integers(100, 2**26),
    requests=st.none() | st.integers(0, 10**6),
    tls=st.booleans(),
    capture=st.booleans(),
)
MORE = st.sampled_from(("produce", "consume", "connections", "requests"))
MACHINES = st.integers(1, 64)
MEMBERS = st.integers(1, 20)


@given(LOADS, MORE, st.integers(1, 10**9), MACHINES, MEMBERS)
def test_more_load_never_needs_less(
    load: Load, what: str, more: int, cores_per_machine: int, members_min: int
) -> None:
    amount = getattr(load, what)
    if amount is None:  # by default one request a second of each connection, and those of the bytes
        amount = load.connections + load.produce / load.request_bytes + load.consume / load.response_bytes
    changed: dict[str, Any] = {what: amount + more}
    larger = load._replace(**changed)
    before, after = size.cpu(load), size.cpu(larger)
    assert size.cores_wanted(after) >= size.cores_wanted(before) * (1 - 1e-9)
    assert (
        size.fleet_of(after, cores_per_machine, members_min).members
        >= size.fleet_of(before, cores_per_machine, members_min).members
    )


@given(LOADS, MACHINES, MEMBERS)
def test_members_that_are_left_carry_the_load(load: Load, cores_per_machine: int, members_min: int) -> None:
    wanted = size.cores_wanted(size.cpu(load))
    fleet = size.fleet_of(size.cpu(load), cores_per_machine, members_min)
    assert fleet.members >= members_min
    assert 1 <= fleet.workers <= cores_per_machine
    assert fleet.carrying * fleet.workers >= wanted
    assert fleet.spare == (members_min > 1)
    member = size.member_of(load, fleet)
    assert member.connections * fleet.carrying >= load.connections
    assert member.descriptors > 2 * member.connections / fleet.workers


@given(LOADS)
def test_full_core_does_at_least_as_much(load: Load) -> None:
    for part in size.cpu(load._replace(capture=False)):
        assert part.full_each_us <= part.each_us
