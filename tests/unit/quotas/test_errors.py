"""quotas.errors: a definition that cannot be says where and what."""

from quotas.errors import DefinitionError


def test_definition_error_begins_with_its_path() -> None:
    error = DefinitionError("quota[3].ip", "must not be empty")
    assert str(error) == "quota[3].ip: must not be empty"
    assert (error.path, error.problem) == ("quota[3].ip", "must not be empty")


def test_definition_error_without_a_path_is_only_the_problem() -> None:
    assert str(DefinitionError("", "not TOML")) == "not TOML"
