"""The table of APIs: what is in no definition of Kafka's; tests/oracle compares the rest with Kafka."""

from protocol import api


def test_apis_without_flexible_versions_never_become_flexible() -> None:
    assert not api.flexible(api.SASL_HANDSHAKE, 32766)
    assert not api.flexible(api.OFFSET_DELETE, 32766)


def test_unknown_apis_are_taken_to_be_flexible() -> None:
    assert api.flexible(9999, 0)


def test_removed_apis_have_a_name_and_are_not_served() -> None:
    assert api.API_NAMES[7] == "ControlledShutdown"
    assert 7 not in api.MAX_VERSION
