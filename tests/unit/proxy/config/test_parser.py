"""Environment variables as overrides of keys."""

import pytest

from proxy.config.parser import key_path, merge, override, steps, variables
from proxy.system.errors import ConfigError


def test_only_variables_with_two_underscores_are_ours() -> None:
    environ = {
        "SLUICE_ADMIN__BIND": "a:1",
        "SLUICE_PORT": "tcp://10.0.0.1:9092",  # Kubernetes, for a Service named sluice
        "SLUICE_SERVICE_HOST": "10.0.0.1",
        "PATH": "/bin",
        "OTHER__KEY": "x",
    }
    assert variables(environ) == {"SLUICE_ADMIN__BIND": "a:1"}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("SLUICE_ADMIN__BIND", "admin.bind"),
        ("SLUICE_LISTENERS__0__BIND", "listeners[0].bind"),
        ("SLUICE_LISTENERS__0__UPSTREAMS__1", "listeners[0].upstreams.1"),
    ],
)
def test_variable_names_a_key(name: str, path: str) -> None:
    assert key_path(steps(name)) == path


def test_override_sets_a_value_and_names_its_variable() -> None:
    tables: dict[str, object] = {"admin": {"bind": "old"}, "listeners": [{"bind": "old", "name": "n"}]}
    changed, origins = override(tables, {"SLUICE_LISTENERS__0__BIND": "new", "SLUICE_LOG__LEVEL": "debug"})
    assert changed == {
        "admin": {"bind": "old"},
        "listeners": [{"bind": "new", "name": "n"}],
        "log": {"level": "debug"},
    }
    assert origins == {
        "listeners[0].bind": "SLUICE_LISTENERS__0__BIND",
        "log.level": "SLUICE_LOG__LEVEL",
    }
    assert tables["listeners"] == [{"bind": "old", "name": "n"}]


def test_listeners_can_be_made_from_nothing_in_their_order() -> None:
    environ = {
        f"SLUICE_LISTENERS__{index}__NAME": f"n{index}" for index in (10, 2, 0, 1, 9, 8, 7, 6, 5, 4, 3)
    }
    changed, _ = override({}, environ)
    assert changed["listeners"] == [{"name": f"n{index}"} for index in range(11)]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("SLUICE_ADMIN__", "is not the name of a key"),
        ("SLUICE___BIND", "is not the name of a key"),
        ("SLUICE_LISTENERS__1__BIND", "'1' is not the number of a listener; the next new one is 0"),
        ("SLUICE_LISTENERS__X__BIND", "'x' is not the number of a listener"),
        ("SLUICE_LISTENERS__0", "listeners is not a table that could hold '0'"),
        ("SLUICE_LOG__LEVEL__DEEPER", "log.level is not a table that could hold 'deeper'"),
        ("SLUICE_LOG__LEVEL__DEEPER__STILL", "log.level is not a table"),
    ],
)
def test_variable_that_names_no_key_is_refused_by_its_name(name: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override({"log": {"level": "info"}}, {name: "text"})
    assert str(caught.value).startswith(f"{name}: {problem}")
    assert "(got 'text')" in str(caught.value)


def test_merge_replaces_lists_and_values_and_merges_tables() -> None:
    below = {"a": {"x": 1, "y": 2}, "l": [1, 2], "v": 1}
    assert merge(below, {"a": {"y": 3}, "l": [9], "v": {"w": 1}}) == {
        "a": {"x": 1, "y": 3},
        "l": [9],
        "v": {"w": 1},
    }
    assert below == {"a": {"x": 1, "y": 2}, "l": [1, 2], "v": 1}
