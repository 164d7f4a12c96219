"""Numbers with and without units."""

from decimal import Decimal

import pytest

from quotas.definitions.amounts import parse_amount, parse_whole, write_bytes
from quotas.errors import AmountError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0, 0),
        (11, 11),
        ("11", 11),
        ("2M", 2_000_000),
        ("2 M", 2_000_000),
        (" 4k ", 4_000),
        ("10G", 10_000_000_000),
        ("64Ki", 65_536),
        ("100Mi", 104_857_600),
        ("1Gi", 1_073_741_824),
        ("1.5M", 1_500_000),
        ("0.1k", 100),
        (3.0, 3),
        ("-1", -1),
        (-1, -1),
        ("-2k", -2_000),
        ("9" * 30, 10**30 - 1),
        (10**400, 10**400),
    ],
)
def test_whole_amount_is_read_with_its_unit(written: object, meant: int) -> None:
    assert parse_whole(written) == meant


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("2MB", "unknown unit 'MB'"),
        ("2m", "unknown unit 'm'"),
        ("2K", "unknown unit 'K'"),
        ("", "must be a number"),
        ("--1", "must be a number"),
        ("1e6", "unknown unit 'e'|must be a number"),
        ("1_000", "must be a number"),
        ("٣", "must be a number"),
        (True, "must be a number"),
        (None, "must be a number"),
        ([1], "must be a number"),
        (float("inf"), "must be a finite number"),
        (float("-inf"), "must be a finite number"),
        (float("nan"), "must be a finite number"),
        ("inf", "must be a number"),
        ("nan", "must be a number"),
        ("2MiB", "unknown unit 'MiB'"),
        ("2_000M", "must be a number"),
        ("9" * 101, "must be a number"),
        (0.5, "whole number"),
        ("1.0005k", "whole number"),
    ],
)
def test_what_is_no_whole_amount_is_refused(written: object, problem: str) -> None:
    with pytest.raises(AmountError, match=problem):
        parse_whole(written)


def test_fractions_are_kept_exactly() -> None:
    assert parse_amount("0.3") == Decimal("0.3")
    assert parse_amount(0.25) == Decimal("0.25")
    assert parse_whole("0.3M") == 300_000
    assert parse_amount("1.000000000000000000000000001") > 1


@pytest.mark.parametrize("count", [1, 999, 1000, 1024, 2_000_000, 104_857_600, 10**9, 2**30, 123_456_789])
def test_written_bytes_are_read_back(count: int) -> None:
    assert parse_whole(write_bytes(count)) == count
