"""What the proxy can fail with: one line each."""

from importlib.metadata import PackageNotFoundError

import pytest

from proxy.system import errors
from proxy.system.errors import ConfigError, SluiceError, shorten


def test_all_errors_are_expected_failures() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    ]
    assert {ConfigError, SluiceError} < set(kinds)
    assert all(issubclass(kind, SluiceError) for kind in kinds)


def test_config_error_names_path_problem_and_value() -> None:
    assert str(ConfigError("a.b", "is wrong", 7)) == "a.b: is wrong (got 7)"
    assert str(ConfigError("a.b", "is wrong", "x")) == "a.b: is wrong (got 'x')"
    assert str(ConfigError("a.b", "is missing")) == "a.b: is missing"


def test_value_in_an_error_is_one_bounded_line() -> None:
    assert shorten("a\nb") == r"'a\nb'"
    assert len(shorten("x" * 10_000)) == 80


def test_installed_version_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "version", lambda name: f"{name}-1.2.3")
    assert errors.sluice_version() == "kafka-sluice-1.2.3"


def test_checkout_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(errors, "version", missing)
    assert errors.sluice_version() == "0+checkout"
