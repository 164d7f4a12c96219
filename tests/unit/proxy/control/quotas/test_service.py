"""Who has set a limit: an alteration that was seen, else the place where quotas are kept."""

import os
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from proxy.config import Config, QuotaSettings
from proxy.config.options import Source
from proxy.control.quotas import Origins
from proxy.explain.explanation import Origin
from quotas.definitions.entities import Entity
from quotas.definitions.records import Author

ANN = Entity("ann")
OPS = Author("ops", "10.0.0.4:5123", "2026-11-22T10:31:00Z")


def origins(quotas: QuotaSettings | None = None, path: Path | None = None) -> Origins:
    return Origins(Config(quotas=quotas or QuotaSettings(), source=Source(path)))


def test_alteration_that_was_seen_is_named() -> None:
    found = origins()
    found.note(ANN, OPS)
    assert found(ANN, "") == Origin("User:ops from 10.0.0.4", "2026-11-22T10:31:00Z")
    assert found(Entity("bob"), "") == Origin("the command line", "")


def test_alteration_without_a_time_is_of_now() -> None:
    found = origins()
    found.note(ANN, OPS._replace(at=""))
    assert found(ANN, "").at.startswith("20")


def test_file_is_named_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    settings = replace(QuotaSettings(), file=path)
    assert origins(settings)(ANN, "") == Origin("quotas.toml", "")
    path.write_text("")
    os.utime(path, (0, 86_400))
    assert origins(settings)(ANN, "") == Origin("quotas.toml", "1970-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("store", "by"), [("cluster", "the brokers' own quotas"), ("topic", "topic __sluice-quotas")]
)
def test_other_stores_are_named(store: Literal["cluster", "topic"], by: str) -> None:
    assert origins(replace(QuotaSettings(), store=store))(ANN, "") == Origin(by, "")


def test_setting_is_named_with_its_file() -> None:
    assert origins(path=Path("sluice.toml"))(None, "producer_default") == Origin(
        "quotas.producer_default in sluice.toml", ""
    )


def test_alterations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.control.quotas.service.ALTERED_MAX", 2)
    found = origins()
    for name in ("ann", "bob", "cid"):
        found.note(Entity(name), OPS)
    assert found(ANN, "") == Origin("the command line", "")
    assert found(Entity("cid"), "").by == "User:ops from 10.0.0.4"
