"""A hold on a connection that speaks for a group member is as short as a mute may be there."""

from protocol.messages.fetch_session import SessionTable
from proxy.channel.settings import ChannelSettings
from proxy.channel.state import ChannelState
from proxy.stats import Stats
from quotas.definitions import Definitions, StaticQuotas
from quotas.engine import Engine, EngineOptions


def _state() -> ChannelState:
    options = EngineOptions(policy="schedule", hold_seconds_max=15, mute_seconds_max=20)
    engine = Engine(options, Definitions(static=StaticQuotas(producer_default=1_000)))
    settings = ChannelSettings(broker=1, address_map=None, frame_bytes_max=1 << 20)
    return ChannelState(settings, engine, SessionTable(1), Stats())


def _held_ms(state: ChannelState) -> int:
    """How long a second request of 100 s of quota is held when it asks again and again."""
    identity = state.identify(b"a", 0)
    throttle = identity.quota.produce
    assert throttle.produce(identity.produce, 100_000, 0).throttle_ms > 0
    now_ms = 20_000
    while (until_ms := throttle.produce(identity.produce, 100_000, now_ms).hold_until_ms) > now_ms:
        now_ms = until_ms
    return now_ms - 20_000


def test_hold_is_as_long_as_configured_without_a_group() -> None:
    assert _held_ms(_state()) == 15_000


def test_hold_of_a_group_member_is_a_fifth_of_its_session_timeout() -> None:
    state = _state()
    state.named_session_timeout(10_000)
    assert _held_ms(state) == 2_000  # 10,000 / 5


def test_hold_is_shortened_when_the_group_request_comes_later() -> None:
    state = _state()
    state.identify(b"a", 0)
    state.named_session_timeout(0)  # names none: the shortest default of the clients, 10 s
    assert _held_ms(state) == 2_000
