"""The version, installed or not."""

from importlib.metadata import PackageNotFoundError

import pytest

from proxy.system import errors


def test_installed_version_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "version", lambda name: f"{name}-1.2.3")
    assert errors.sluice_version() == "kafka-sluice-1.2.3"


def test_checkout_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(errors, "version", missing)
    assert errors.sluice_version() == "0+checkout"
