"""The costs of `sluice size`, and what docs/how-to/size.md prints, are those of docs/benchmarks.md.

`python -m tests.bench.costs` renews them after a bench was run.
"""

import re
from typing import Final

import pytest

from proxy.commands import size
from tests.bench import costs
from tests.bench.options import DOCUMENT

BENCHMARKS: Final = (costs.ROOT / DOCUMENT).read_text(encoding="utf-8")
TOLERANCE: Final = 0.2  # two runs of one revision differ by as much
LATENCY: Final = {"run": "bench", "table": "Latency", "row": ["Sluice"]}
FULL: Final = {"run": "saturate", "table": "One core, saturated"}


@pytest.mark.parametrize("name", sorted(size.content()["figures"]))
def test_cost_is_what_was_measured(name: str) -> None:
    now = costs.figure(BENCHMARKS, size.content()["figures"][name])
    assert size.figure(name) == pytest.approx(now, rel=TOLERANCE), "python -m tests.bench.costs renews it"


def test_each_run_names_its_command_and_machine() -> None:
    content = size.content()
    assert {entry["run"] for entry in content["figures"].values()} == set(content["runs"])
    for run in content["runs"].values():
        assert run.keys() == {"command", "date", "commit", "machine"}


def test_file_is_written_as_it_is_read() -> None:
    text = size.FILE.read_text(encoding="utf-8")
    again = costs.renewed(text, BENCHMARKS)
    assert costs.renewed(again, BENCHMARKS) == again
    assert [line.partition(" = ")[0] for line in again.splitlines()] == [
        line.partition(" = ")[0] for line in text.splitlines()
    ]


def test_missing_row_is_said() -> None:
    entry = {"run": "bench", "table": "Latency", "row": ["Squid"], "column": "p50 ms"}
    with pytest.raises(LookupError, match="Squid"):
        costs.figure(BENCHMARKS, entry)


def test_page_shows_what_its_commands_print() -> None:
    examples = costs.printed(costs.PAGE.read_text(encoding="utf-8"))
    assert len(examples) >= 3
    for command, shown in examples:
        assert costs.output(command) == shown, f"{command}: python -m tests.bench.costs renews the page"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (r"([\d.]+) ms longer in the median", {**LATENCY, "column": "added p50"}),
        (r"([\d.]+) ms longer in the 99th percentile", {**LATENCY, "column": "added p99"}),
        (
            r"about ([\d.]+) ms in the 99th percentile with 64",
            {**FULL, "row": ["produce, 100 B, 64 x 1", "Sluice"], "column": "p99 ms"},
        ),
        (
            r"([\d.]+) ms with 1,000",
            {**FULL, "row": ["produce, 100 B, 1000 x 1", "Sluice"], "column": "p99 ms"},
        ),
        (
            r"carries ([\d.]+) of what it carries with HAProxy",
            {**FULL, "row": ["produce, 100 B, 64 x 1", "Sluice"], "column": "× HAProxy"},
        ),
        (
            r"([\d.]+) with 16 requests under way",
            {**FULL, "row": ["produce, 100 B, 64 x 16", "Sluice"], "column": "× HAProxy"},
        ),
    ],
)
def test_page_states_what_was_measured(text: str, entry: dict[str, object]) -> None:
    (found,) = re.findall(text, costs.PAGE.read_text(encoding="utf-8"))
    assert float(found) == pytest.approx(costs.figure(BENCHMARKS, entry), rel=TOLERANCE)
