"""Announcing in another's name, in virtual time: what the owner of the client id loses, and those who come anew.

An attacker sends a header that announces much and the first 4 KiB, which is what gives it weight, waits until it is
charged, keeps the charge for as long as it holds, and begins again on a new connection. The victim sends 100 KB at a
time and has a quota of 2 MB/s.
"""

from dataclasses import dataclass, field

import pytest

from quotas.limiters.limiter import Flow
from quotas.options import Policy
from tests.simulation.throttle_world import LIMIT, SHOWN, Connection, Newcomer, ThrottleWorld, world_of

MB = 1_000_000
SECONDS = 60
ROUND_TRIP_MS = 2
POLICIES = pytest.mark.parametrize("policy", ["schedule", "kip13"])


def produce(world: ThrottleWorld, flow: Flow, size: int, missing: int, now_ms: int) -> tuple[int, int]:
    """When to ask again, 0 = not; and how long it is muted, below 0: refused."""
    flow.missing = missing
    decision = world.throttle.produce(flow, size, now_ms)
    if decision.hold_until_ms > now_ms:
        return decision.hold_until_ms, 0
    return 0, -1 if decision.refused else decision.throttle_ms


@dataclass(slots=True)
class Victim:
    """Sends as fast as it may, on one connection, all of each request at once."""

    world: ThrottleWorld
    size: int = 100_000
    pause_ms: int = ROUND_TRIP_MS
    flow: Flow = field(default_factory=Flow)
    sent: int = 0
    last_ms: int = 0
    longest_ms: int = 0

    def __call__(self, now_ms: int) -> None:
        again_ms, mute_ms = produce(self.world, self.flow, self.size, 0, now_ms)
        assert mute_ms >= 0, "it is never refused"
        if not again_ms:
            self.sent += self.size
            self.longest_ms = max(self.longest_ms, now_ms - self.last_ms)
            self.last_ms = now_ms
            again_ms = now_ms + max(self.pause_ms, mute_ms)
        self.world.at(again_ms, self)

    @property
    def share(self) -> float:
        return self.sent / SECONDS / LIMIT


@dataclass(slots=True)
class Attacker:
    """Announces, and sends nothing behind it; `proof` bytes are sent before, so that it is no new connection."""

    world: ThrottleWorld
    announces: int
    proof: int = 0
    stays_ms: int = 250
    flow: Flow = field(default_factory=Flow)
    sent: int = 0
    proven: bool = False

    def __call__(self, now_ms: int) -> None:
        proving = self.proof > 0 and not self.proven
        size = self.proof if proving else self.announces
        again_ms, mute_ms = produce(
            self.world, self.flow, size, 0 if proving else self.announces - SHOWN, now_ms
        )
        if again_ms:
            self.world.at(again_ms, self)
        elif mute_ms < 0:
            self.leave(now_ms)
        elif proving:
            self.proven = True
            self.sent += size
            self.world.at(now_ms + max(ROUND_TRIP_MS, mute_ms), self)
        else:
            self.sent += SHOWN
            self.world.throttle.announce(self.flow, self.announces - SHOWN, now_ms)
            self.world.at(now_ms + self.stays_ms, self.leave)

    def leave(self, now_ms: int) -> None:
        self.world.throttle.leave(self.flow, now_ms)
        self.flow = self.world.throttle.flow()
        self.proven = False
        self.world.at(now_ms + ROUND_TRIP_MS, self)


def newcomers_of(world: ThrottleWorld) -> list[Newcomer]:
    """A new connection a second; each sends one request of which the rest comes 20 ms later, and leaves."""
    newcomers = [Newcomer(Connection(world), 1000 * second, SHOWN) for second in range(1, SECONDS - 20)]
    for each in newcomers:
        world.at(each.came_ms, each)
    return newcomers


@POLICIES
@pytest.mark.parametrize("size", [5_000, 100_000])
@pytest.mark.parametrize(
    ("attackers", "announces", "proof", "stays_ms"),
    [
        (2, 100 * MB, 0, 250),
        (2, 100 * MB, 0, 251),
        (2, 100 * MB, 0, 100),  # it leaves before its charge is given back
        (2, 100 * MB, 100, 251),
        (2, MB, 0, 250),
        (20, 100 * MB, 0, 250),
        (20, MB, 0, 251),
        (20, 64_000, 0, 251),
    ],
)
def test_owner_of_the_name_keeps_its_quota(
    policy: Policy, attackers: int, announces: int, proof: int, stays_ms: int, size: int
) -> None:
    world = world_of(policy)
    victim = Victim(world, size)
    world.at(0, victim)
    for number in range(attackers):
        world.at(500 + 7 * number, Attacker(world, announces, proof, stays_ms))
    world.run(SECONDS)
    # Before: 0.05 to 0.9 of it, and it stood still for as long as a mute may be, 20 s, again and again.
    assert victim.share >= 0.9
    # A charge of 250 ms and what the victim has to pay for besides; `kip13`: a window's mute.
    assert victim.longest_ms <= 2_000


@POLICIES
def test_attacker_sends_about_as_much_as_the_owner_loses(policy: Policy) -> None:
    world = world_of(policy)
    victim, attackers = Victim(world), [Attacker(world, 64_000 * 4, 64_000) for _ in range(4)]
    world.at(0, victim)
    for attacker in attackers:
        world.at(500, attacker)
    world.run(SECONDS)
    sent = sum(attacker.sent for attacker in attackers) / SECONDS / LIMIT
    assert victim.share >= 0.97 - 4 * sent


@POLICIES
def test_new_connections_of_the_client_pass_among_doubtful_ones(policy: Policy) -> None:
    world = world_of(policy)
    victim, newcomers = Victim(world, 50_000, pause_ms=50), newcomers_of(world)
    world.at(0, victim)
    for number in range(2):
        world.at(500 + 7 * number, Attacker(world, 100 * MB))
    world.run(SECONDS)
    # One at a time: behind both attackers, 1.25 s each, and the one that came a second before.
    assert sum(each.connection.refused for each in newcomers) == 0
    assert len(newcomers) == 39
    assert all(0 <= each.wait_ms <= 4_000 for each in newcomers)
    assert victim.share >= 0.4  # it asks for a half


@POLICIES
def test_new_connections_wait_for_none_where_none_announces_falsely(policy: Policy) -> None:
    world = world_of(policy)
    newcomers = newcomers_of(world)
    world.run(SECONDS)
    assert [(each.connection.refused, each.wait_ms) for each in newcomers] == [(0, 0)] * 39
