"""Amounts as people write them: `2M` is 2,000,000 and `100Mi` is 104,857,600.

`k M G` are powers of 1000 and `Ki Mi Gi` of 1024, in the configuration, the quotas file and on the command lines. The
key, its range (a negative amount is an amount) and the place of an error are the caller's. Amounts are Decimal: `0.3M`
is exactly 300,000, and the binary 0.3 * 1000000 need not be.
"""

import re
from decimal import Decimal
from typing import Final

from quotas.errors import AmountError

UNITS: Final = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
# Far more digits than any range allows: a number that is too large is refused as such by the reader of its key.
_WRITTEN: Final = re.compile(r"(-?[0-9]{1,100}(?:\.[0-9]{1,100})?) *([A-Za-z]*)", re.ASCII)


def parse_amount(value: object) -> Decimal:
    """Parse an amount: an integer, a float, or a text such as "2M" with or without a unit (k M G, Ki Mi Gi).

    Raises:
        AmountError: the value is none of these, is not finite, or has an unknown unit.

    >>> parse_amount("1.5M"), parse_amount("64Ki"), parse_amount(7)
    (Decimal('1500000.0'), Decimal('65536'), Decimal('7'))
    """
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AmountError('must be a number or a string such as "2M"')
    if isinstance(value, int):
        return Decimal(value)
    amount = Decimal(str(value))  # the shortest text that is this float: 0.1, and not its binary expansion
    if not amount.is_finite():
        raise AmountError("must be a finite number")
    return amount


def _parse_text(text: str) -> Decimal:
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise AmountError("must be a number, with a unit or without: 2000000, 2M, 64Ki")
    digits, unit = match.groups()
    if unit not in UNITS:
        raise AmountError(f"unknown unit {unit!r}: k, M, G are powers of 1000, Ki, Mi, Gi of 1024")
    return Decimal(digits) * UNITS[unit] if unit else Decimal(digits)


def parse_whole(value: object) -> int:
    """Parse an amount that must be a whole number; see `parse_amount`.

    Raises:
        AmountError: as `parse_amount`, or the amount is not whole.

    >>> parse_whole("1.5k"), parse_whole("2M")
    (1500, 2000000)
    """
    amount = parse_amount(value)
    if amount != amount.to_integral_value():
        raise AmountError("must be a whole number")
    return int(amount)


def write_bytes(count: int) -> str:
    """Format a number of bytes with the largest unit in which it is a whole number.

    >>> write_bytes(2_000_000), write_bytes(104_857_600), write_bytes(1234)
    ('2M', '100Mi', '1234')
    """
    for unit in ("Gi", "G", "Mi", "M", "Ki", "k"):
        factor = UNITS[unit]
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def write_like(count: int, before: str) -> str:
    """Format a number of bytes as `before` is written: with a decimal unit, with a binary one, or without one.

    >>> write_like(4_000_000, "2M"), write_like(4_194_304, "2M"), write_like(4_194_304, "2Mi"), write_like(4000, "2")
    ('4M', '4194304', '4Mi', '4000')
    """
    unit = before.strip().lstrip("0123456789.")
    same = [other for other in UNITS if unit and other.endswith("i") == unit.endswith("i")]
    for other in sorted(same, key=UNITS.__getitem__, reverse=True):
        if count and count % UNITS[other] == 0:
            return f"{count // UNITS[other]}{other}"
    return str(count)
