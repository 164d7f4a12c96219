"""What a channel takes from its client, as states with names."""

from proxy.channel.verdict import RESUMED_AT, Intake


def test_every_state_says_when_a_client_that_waits_is_read_again() -> None:
    assert RESUMED_AT.keys() == set(Intake)
