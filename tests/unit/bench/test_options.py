"""Which runs may replace the published table."""

import argparse

import pytest

from tests.bench import options
from tests.bench.accuracy import judge as accuracy


def test_whole_run_is_written() -> None:
    whole = options.parse([])
    assert whole.write
    assert whole.only == frozenset(options.DATA_PATH)
    assert whole.block == "bench"
    assert whole.rounds == 5


def test_part_of_a_run_is_not_written_unasked() -> None:
    assert not options.parse(["--quick"]).write
    assert not options.parse(["--only", "produce"]).write
    assert options.parse(["--only", "produce", "--write"]).write


def test_capture_is_a_run_of_its_own() -> None:
    whole = options.parse(["--capture"])
    assert (whole.block, whole.only, whole.capture) == ("capture", frozenset(options.CAPTURED), True)
    assert not options.parse([]).capture


def test_identities_are_a_run_of_their_own() -> None:
    whole = options.parse(["--identities"])
    assert (whole.block, whole.only, whole.write) == ("identities", frozenset(options.IDENTITIES), True)
    assert not options.parse(["--identities", "--only", "tls"]).write


def test_other_python_is_a_lane_of_the_data_path(capsys: pytest.CaptureFixture[str]) -> None:
    whole = options.parse(["--python", "other/python"])
    assert (whole.python, whole.write, whole.only) == ("other/python", True, frozenset(options.DATA_PATH))
    with pytest.raises(SystemExit):
        options.parse(["--python", "other/python", "--capture"])
    assert "--python is for the data path" in capsys.readouterr().err


def test_quick_run_has_one_round_unless_told_otherwise() -> None:
    assert options.parse(["--quick"]).rounds == 1
    assert options.parse(["--quick", "--rounds", "2"]).rounds == 2


def test_unknown_section_is_named() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no section 'speed'"):
        options.sections("produce,speed")


def test_accuracy_keeps_the_order_of_policies() -> None:
    part = accuracy.parse_options(["--policies", "schedule,kafka", "--connections", "1,5"])
    assert part.policies == ("kafka", "schedule")
    assert part.connections == (1, 5)
    assert not part.write


def test_accuracy_is_steady_after_a_third_of_a_short_run() -> None:
    assert accuracy.parse_options([]).steady_after == 15.0
    assert accuracy.parse_options(["--seconds", "12"]).steady_after == 4.0
