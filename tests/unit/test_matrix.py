"""`make matrix`: what is kept of a broker's runs."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.matrix import page
from tests.matrix.__main__ import main
from tests.matrix.page import Result


def result(suites: tuple[str, ...], **fields: object) -> Result:
    found: dict[str, object] = {
        "broker": "kfake",
        "day": "2026-11-26",
        "suites": suites,
        "passed": 2,
        "skipped": {"kfake has no A": 1},
        "failed": (),
        "failed_direct": (),
        "rolled": "",
        "offered": {"0": 12},
        "through": {"0": 12},
    }
    return Result(**{**found, **fields})  # type: ignore[arg-type]  # as they are


def test_what_other_suites_said_is_added() -> None:
    first = result(("oracle",), rolled="in a second")
    more = result(("interop",), day="2026-11-27", failed=("b",), skipped={"kfake has no A": 2, "rest": 1})
    both = first.with_more(more)
    assert json.loads(json.dumps(asdict(both)))["skipped"] == {"kfake has no A": 3, "rest": 1}
    assert both == result(
        ("oracle", "interop"),
        day="2026-11-27",
        passed=4,
        skipped={"kfake has no A": 3, "rest": 1},
        failed=("b",),
        rolled="in a second",
    )


def test_suite_that_is_in_the_row_cannot_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "results.json"
    kept.write_text(json.dumps([asdict(result(("oracle",)))]))
    monkeypatch.setattr(page, "RESULTS", kept)
    with pytest.raises(SystemExit):
        main(["kfake", "--add", "--suites", "interop", "oracle"])
    assert "the row of kfake has oracle already" in capsys.readouterr().err
