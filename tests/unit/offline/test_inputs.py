"""Which captures and which stages' results are refused before Spark reads anything, and what is said."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline.errors import InputError
from offline.imports.capture_file import CaptureFile, schema
from offline.inputs import current_run, files_of, new_mark, read_footers, recordings
from tests.support.captures import row
from tests.support.synthetic import Client, write_capture

CLIENT = Client(name="a", shape="steady", rate=1e6)


def problem(path: Path) -> str:
    return next(read_footers([str(path)])).problem


def test_a_complete_capture_has_no_problem(tmp_path: Path) -> None:
    rows = write_capture(tmp_path, [CLIENT], 2)
    (name,) = files_of([str(tmp_path)])
    assert list(read_footers([name])) == [(name, rows, "", "")]
    assert rows > 50  # 1 MB/s in requests of 16 KiB, 2 s


def test_a_footer_tells_what_the_source_of_a_capture_cannot_know(tmp_path: Path) -> None:
    file = CaptureFile(tmp_path, "p")
    file.add_table(pa.Table.from_pylist([row(0)], schema()))
    file.finish("low: from counters")
    assert list(read_footers([str(file.path)])) == [(str(file.path), 1, "", "low: from counters")]


def test_unfinished_files_are_passed_over(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        files_of([str(tmp_path / "nowhere")])
    (tmp_path / "capture-x-9.parquet.inprogress").write_bytes(b"half")
    with pytest.raises(InputError, match="no capture in"):
        files_of([str(tmp_path)])
    write_capture(tmp_path, [CLIENT], 1)
    assert len(files_of([str(tmp_path)])) == 1


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    write_capture(tmp_path, [CLIENT], 2)
    (name,) = files_of([str(tmp_path)])
    Path(name).write_bytes(Path(name).read_bytes()[:-40])
    assert "is no whole Parquet file" in problem(Path(name))


def test_foreign_parquet_is_no_capture(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    assert problem(tmp_path / "x.parquet").startswith("is Parquet, and no capture")


def test_the_same_call_writes_the_same_rows(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_capture(tmp_path / name, [CLIENT], 1, seed=3)
    one, two = (pq.read_table(files_of([str(tmp_path / name)])[0]) for name in ("one", "two"))
    assert one.equals(two)


class Work:
    """The marks of a work directory."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}

    def run(self, stage: str, *read: str) -> None:
        """A stage is finished."""
        self.marks[stage] = new_mark(stage, {name: self.check(name) for name in read})

    def check(self, stage: str) -> str:
        """Read a stage; returns its run."""
        return current_run("work", stage, self.marks.get)


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
    before = work.check("ingest")
    work.run("ingest")
    assert work.check("ingest") != before


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


# Recordings to evaluate on.


def recording(directory: Path, truth: str | None = None) -> Path:
    """A work directory whose stage demand is finished."""
    (directory / "demand").mkdir(parents=True)
    (directory / "demand" / "_SUCCESS").write_text(new_mark("demand", {}))
    if truth is not None:
        (directory / "truth.toml").write_text(truth)
    return directory


def test_recordings_are_the_subdirectories_that_have_one(tmp_path: Path) -> None:
    recording(tmp_path / "b", 'day_seconds = 600\n[[hog]]\nclient_id = "x"\nstart = 7\n')
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "capture-p-0.parquet").write_text("")
    (tmp_path / "nothing").mkdir()
    one, two = recordings(str(tmp_path))
    assert (one.name, one.measured, one.truth) == ("a", False, None)
    assert two.truth is not None
    assert (two.name, two.measured, two.truth.day_seconds) == ("b", True, 600)
    assert [(hog.client_id, hog.direction, hog.start, hog.end) for hog in two.truth.hog] == [("x", "", 7, 0)]


def test_directory_may_itself_be_the_recording(tmp_path: Path) -> None:
    recording(tmp_path / "work")
    recording(tmp_path / "work" / "below")
    (found,) = recordings(str(tmp_path / "work"))
    assert (found.name, found.path) == ("work", str(tmp_path / "work"))


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        ("day = 1", "unknown field `day`"),
        ("[[hog]]\nstart = 'x'", "Expected `float`, got `str` - at `$.hog[0].start`"),
        ("day_seconds =", "truth.toml: Invalid value"),
    ],
)
def test_wrong_truth_is_named(tmp_path: Path, truth: str, said: str) -> None:
    recording(tmp_path / "one", truth)
    with pytest.raises(InputError, match=r"one/truth\.toml: ") as raised:
        recordings(str(tmp_path))
    assert said in str(raised.value)


def test_directory_without_recordings_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recording in "):
        recordings(str(tmp_path))
