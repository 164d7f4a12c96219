"""What a channel takes from its client, as states with names."""

import pytest

from proxy.channel.intake import RESUMED_AT, Intake


def test_every_state_says_when_a_client_that_waits_is_read_again() -> None:
    assert RESUMED_AT.keys() == set(Intake)


@pytest.mark.parametrize("intake", Intake)
def test_exchange_is_under_way_in_two_states(intake: Intake) -> None:
    assert intake.in_exchange == (intake in (Intake.AWAIT_BROKER, Intake.BARE_TOKENS))
