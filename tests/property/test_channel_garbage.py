"""A peer that sends anything at all ends its connection with a named cause; any other exception is a bug of ours.

Valid streams are mutated and cut at random places, on either side, in gateway and sidecar.
"""

from contextlib import suppress
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.errors import WireError
from proxy.channel import PeerError
from quotas.options import EngineOptions, Policy
from tests.property.test_channel_cutting import PIECES, broker, relayed, requests
from tests.support.memory_shell import MemoryShell

FUZZ: Final = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
# (where, as a share of the stream; bytes taken away there; bytes put there)
DAMAGE: Final = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 20), st.binary(max_size=20)), min_size=1, max_size=4
)
SIZES: Final = st.lists(st.integers(0, 5000), min_size=1, max_size=3)
Damage = list[tuple[float, int, bytes]]


def damaged(stream: bytes, damage: Damage) -> bytes:
    out = bytearray(stream)
    for where, taken, put in damage:
        at = int(where * len(out))
        out[at : at + taken] = put
    return bytes(out)


@FUZZ
@given(
    sent=requests(),
    damage=DAMAGE,
    pieces=PIECES,
    gateway=st.booleans(),
    policy=st.sampled_from(["kip13", "schedule"]),
)
def test_client_that_sends_anything_ends_with_a_cause(
    sent: list[bytes], damage: Damage, pieces: list[int], gateway: bool, policy: Policy
) -> None:
    stream = damaged(b"".join(sent), damage)
    with suppress(PeerError, WireError):
        relayed([stream], [10], pieces, EngineOptions(policy=policy), gateway, 40_000, responding=False)


@FUZZ
@given(sent=requests(), sizes=SIZES, damage=DAMAGE, pieces=PIECES, gateway=st.booleans())
def test_broker_that_sends_anything_ends_with_a_cause(
    sent: list[bytes], sizes: list[int], damage: Damage, pieces: list[int], gateway: bool
) -> None:
    respond = broker(sizes)
    stream = damaged(b"".join(map(respond, sent)), damage)
    shell = relayed(sent, sizes, [], EngineOptions(mode="observe"), gateway, responding=False)
    with suppress(PeerError, WireError):
        feed_responses(shell, stream, pieces)


def feed_responses(shell: MemoryShell, stream: bytes, pieces: list[int]) -> None:
    responses = shell.responses
    responses.source += stream
    turn = 0
    while responses.source:
        responses.read(pieces[turn % len(pieces)], shell.now_ms)
        turn += 1
