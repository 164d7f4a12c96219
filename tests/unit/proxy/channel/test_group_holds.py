"""A hold on a connection that speaks for a group member is as short as a mute may be there."""

from quotas.options import EngineOptions
from tests.support.frames import heartbeat, join_group, produce
from tests.support.playbook import Playbook, playbook


def _dialogue() -> Playbook:
    options = EngineOptions(policy="schedule", hold_seconds_max=15, mute_seconds_max=20)
    return playbook(options=options, producer_default=1000)


def _held_ms(talk: Playbook) -> int:
    """How long a second request of 100 s of quota is held when it asks again and again."""
    talk.orders("client", 0, produce(9, 100_000))
    assert talk.mute_left_ms(0) > 0
    return talk.held_until(20_000, produce(9, 100_000, correlation_id=2)) - 20_000


def test_hold_is_as_long_as_configured_without_a_group() -> None:
    assert _held_ms(_dialogue()) == 15_000


def test_hold_of_a_group_member_is_a_fifth_of_its_session_timeout() -> None:
    talk = _dialogue()
    talk.asks(0, join_group(9, 10_000))
    assert _held_ms(talk) == 2_000  # 10,000 / 5


def test_hold_is_shortened_when_the_group_request_comes_later() -> None:
    talk = _dialogue()
    talk.asks(0, produce(9, 100))
    talk.asks(0, heartbeat())  # names none: the shortest default of the clients, 10 s
    assert _held_ms(talk) == 2_000
