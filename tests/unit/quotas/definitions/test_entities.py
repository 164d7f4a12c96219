"""quotas.definitions.entities: names, the default entity, and what a bucket is keyed by."""

from quotas.definitions.entities import DEFAULT, BucketKey, Entity


def test_default_entity_differs_from_a_client_of_that_name() -> None:
    assert Entity(client_id=DEFAULT) != Entity(client_id="<default>")


def test_default_entity_shows_itself_as_the_file_spells_it() -> None:
    assert repr(DEFAULT) == "<default>"


def test_empty_client_id_is_a_bucket_of_its_own() -> None:
    assert BucketKey(None, "") != BucketKey(None, None)
