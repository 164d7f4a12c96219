"""Which run of which stage a result was made from, and what is refused because of it."""

import pytest

from offline import paths
from offline.errors import InputError


class Work:
    """The marks of a work directory."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}

    def run(self, stage: str, *read: str) -> None:
        """A stage is finished."""
        self.marks[stage] = paths.mark(stage, {name: paths.run_of(self.marks[name]) for name in read})

    def check(self, stage: str) -> None:
        """Read a stage."""
        paths.check("work", stage, self.marks.get)


@pytest.fixture
def work() -> Work:
    """A directory with all stages up to `recommend`."""
    work = Work()
    work.run("ingest")
    work.run("demand", "ingest")
    work.run("backtest", "ingest", "demand")
    work.run("recommend", "demand", "backtest")
    return work


def test_result_of_the_present_runs_is_read(work: Work) -> None:
    work.check("recommend")


def test_each_run_has_its_own_mark(work: Work) -> None:
    before = work.marks["ingest"]
    work.run("ingest")
    assert paths.run_of(before) != paths.run_of(work.marks["ingest"])


@pytest.mark.parametrize(
    ("stage", "again", "stale"),
    [
        ("demand", "ingest", "demand"),
        ("backtest", "demand", "backtest"),
        ("recommend", "demand", "recommend"),
        ("recommend", "ingest", "demand"),  # though recommend has not read it itself
    ],
)
def test_the_first_stale_stage_is_named(work: Work, stage: str, again: str, stale: str) -> None:
    work.run(again, *(["ingest"] if again == "demand" else []))
    message = f"^work/{stale} was made from an earlier run of {again}: run `sluice-offline {stale}` again$"
    with pytest.raises(InputError, match=message):
        work.check(stage)


def test_the_same_stage_or_a_later_one_is_nothing_that_it_was_made_from(work: Work) -> None:
    work.run("demand", "ingest", "demand", "recommend")
    work.check("demand")


def test_missing_stage_is_not_refused(work: Work) -> None:
    """Stages may lie in different directories."""
    del work.marks["ingest"]
    work.check("recommend")


@pytest.mark.parametrize("text", ["", "what is this", "[1]"])
def test_mark_without_readable_text_counts_as_a_mark(work: Work, text: str) -> None:
    work.marks["recommend"] = text
    work.check("recommend")
