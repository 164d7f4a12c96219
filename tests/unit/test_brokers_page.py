"""docs/brokers.md shows what tests/matrix/results.json has, and pytest's reports are read to their end."""

from dataclasses import replace
from typing import Any

import pytest

from tests.matrix.__main__ import parse
from tests.matrix.page import PAGE, Result, read, text

RESULT = Result(
    broker="3.9.2",
    day="2026-11-26",
    suites=["interop"],
    passed=3,
    skipped={"3.9.2 has no share groups (KIP-932)": 2},
    failed=[],
    failed_direct=[],
    rolled="",
    offered={"0": 11, "1": 17, "3": 12, "18": 4, "4": 7},
    through={"0": 11, "1": 16, "3": 12, "18": 4},
)


def test_page_shows_the_kept_results() -> None:
    assert text(read()) in PAGE.read_text()


def test_row_has_counts_and_versions() -> None:
    assert "| Kafka 3.9.2 | 2026-11-26 | 3 | 2 | 0 | 11 | 17 | 12 | 5 | 4 |" in text({"3.9.2": RESULT})


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "- Skipped, since it has no: share groups (KIP-932) (2)."),
        ({"skipped": {"no Go": 1}}, "- Skipped, 1: no Go."),
        ({}, "- Offered by the broker and not through Sluice: LeaderAndIsr."),
        ({}, "- Versions cut by Sluice: Fetch to 16 of 17."),
        ({"through": {"0": 11, "48": 1}}, "- Offered by Sluice alone: DescribeClientQuotas."),
        ({"failed": ["tests/a.py::test_b"]}, "- **Fails through Sluice alone**: `tests/a.py::test_b`."),
        ({"failed_direct": ["tests/a.py::test_b"]}, "- Fails direct as well: `tests/a.py::test_b`."),
        ({"rolled": "3.9.2 to 4.0.2"}, "- Rolled: 3.9.2 to 4.0.2."),
    ],
)
def test_what_differs_is_named(changed: dict[str, Any], line: str) -> None:
    assert line in text({"3.9.2": replace(RESULT, **changed)}).splitlines()


REPORT = """<testsuites><testsuite>
<testcase classname="tests.interop.test_a" name="test_b[java]"/>
<testcase classname="tests.interop.test_a" name="test_c"><failure/></testcase>
<testcase classname="tests.interop.test_a" name="test_d"><error/></testcase>
<testcase classname="tests.interop.test_a" name="test_e"><skipped message="no f"/></testcase>
<testcase classname="tests.integration.test_rolling" name="test_g">
<properties><property name="rolled" value="3.9.2 to 4.0.2"/></properties></testcase>
</testsuite></testsuites>"""


def test_report_is_read() -> None:
    told = parse(REPORT)
    assert (told.passed, dict(told.skipped), told.rolled) == (2, {"no f": 1}, "3.9.2 to 4.0.2")
    assert told.failed == ["tests/interop/test_a.py::test_c", "tests/interop/test_a.py::test_d"]
