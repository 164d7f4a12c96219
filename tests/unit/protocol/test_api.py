"""The table of APIs: facts of Kafka 4.4 that others rely on."""

import pytest

from protocol import api


@pytest.mark.parametrize(
    ("api_key", "name", "newest", "flexible_since"),
    [
        (api.PRODUCE, "Produce", 13, 9),
        (api.FETCH, "Fetch", 18, 12),
        (api.METADATA, "Metadata", 13, 9),
        (api.FIND_COORDINATOR, "FindCoordinator", 6, 3),
        (api.API_VERSIONS, "ApiVersions", 5, 3),
        (api.DESCRIBE_CLUSTER, "DescribeCluster", 2, 0),
        (api.SHARE_FETCH, "ShareFetch", 2, 0),
        (api.SHARE_ACKNOWLEDGE, "ShareAcknowledge", 2, 0),
    ],
)
def test_table_has_the_apis_that_are_decoded(
    api_key: int, name: str, newest: int, flexible_since: int
) -> None:
    assert api.API_NAMES[api_key] == name
    assert api.MAX_VERSION[api_key] == newest
    assert api.FLEXIBLE_SINCE[api_key] == flexible_since
    assert api.flexible(api_key, flexible_since)
    assert not api.flexible(api_key, flexible_since - 1)


def test_apis_without_flexible_versions_never_become_flexible() -> None:
    assert not api.flexible(api.SASL_HANDSHAKE, 32766)
    assert not api.flexible(api.OFFSET_DELETE, 32766)


def test_unknown_apis_are_taken_to_be_flexible() -> None:
    assert api.flexible(9999, 0)


def test_removed_apis_have_a_name_and_are_not_served() -> None:
    assert api.API_NAMES[7] == "ControlledShutdown"
    assert 7 not in api.MAX_VERSION
