"""quotas.definitions.kinds: the table is complete."""

from quotas.definitions.kinds import BY_KEY, BY_NAME, BY_TYPE, CLIENT_KINDS, KINDS


def test_no_two_kinds_have_the_same_name_type_or_key() -> None:
    assert len(BY_NAME) == len(BY_TYPE) == len(KINDS)
    assert len(BY_KEY) == sum(kind.key != "" for kind in KINDS)


def test_every_kind_of_a_client_is_shown_in_a_series() -> None:
    assert all(kind.series for kind in CLIENT_KINDS)
