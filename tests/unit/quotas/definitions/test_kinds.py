"""quotas.definitions.kinds: the table is complete, and what follows from it is what Kafka's tools know."""

from quotas.definitions.kinds import (
    BY_KEY,
    BY_NAME,
    BY_TYPE,
    CLIENT_KEYS,
    CLIENT_KINDS,
    IP_KEYS,
    KEYS,
    KINDS,
    TOPIC_KEYS,
    USER_KEYS,
    WHOLE_KEYS,
)


def test_no_two_kinds_have_the_same_name_type_or_key() -> None:
    assert len(BY_NAME) == len(BY_TYPE) == len(KINDS)
    assert len(BY_KEY) == sum(kind.key != "" for kind in KINDS)


def test_keys_are_kafkas_in_the_order_in_which_limits_are_written() -> None:
    assert KEYS == (
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    )


def test_keys_of_each_owner() -> None:
    assert KEYS == USER_KEYS
    assert (KEYS[:4], KEYS[4:], KEYS[:2]) == (CLIENT_KEYS, IP_KEYS, TOPIC_KEYS)


def test_percentages_and_mutations_take_fractions() -> None:
    assert set(KEYS) - set(WHOLE_KEYS) == {"request_percentage", "controller_mutation_rate"}


def test_every_kind_of_a_client_is_shown_in_a_series() -> None:
    assert all(kind.series for kind in CLIENT_KINDS)
