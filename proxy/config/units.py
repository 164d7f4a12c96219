"""Numbers as people write them: `2M` is 2,000,000 and `100Mi` is 104,857,600.

`k M G` are powers of 1000 and `Ki Mi Gi` of 1024, in every number of the configuration. Nothing here knows
which key it reads, nor what it may be (a negative number is one): a ValueError says what is wrong, and the
reader of the key adds where.
"""

import re
from decimal import Decimal
from typing import Final

FACTORS: Final = {
    "": 1,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
}
_NUMBER: Final = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", re.ASCII)


def number(value: object) -> Decimal:
    """Read a number: a TOML integer or float, or text with an optional unit.

    Decimal, since `0.1M` is exactly 100,000 and the binary 0.1 * 1000000 need not be.

    >>> number("1.5M"), number("64Ki"), number(7)
    (Decimal('1500000.0'), Decimal('65536'), Decimal('7'))
    """
    if isinstance(value, str):
        return _written(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        plain = Decimal(str(value))
        if plain.is_finite():
            return plain
    raise ValueError("must be a number")


def _written(text: str) -> Decimal:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError("must be a number, with a unit or without: 2000000, 2M, 64Ki")
    digits, unit = match.groups()
    if unit not in FACTORS:
        raise ValueError(f"unknown unit {unit!r}: k, M, G are powers of 1000, Ki, Mi, Gi of 1024")
    return Decimal(digits) * FACTORS[unit]


def whole(value: object) -> int:
    """Read a number that must be whole.

    >>> whole("1.5k"), whole("2M")
    (1500, 2000000)
    """
    exact = number(value)
    if exact != exact.to_integral_value():
        raise ValueError("must be a whole number")
    return int(exact)


def write_bytes(count: int) -> str:
    """Write a number of bytes with the largest unit that leaves it exact.

    >>> write_bytes(2_000_000), write_bytes(104_857_600), write_bytes(1234)
    ('2M', '100Mi', '1234')
    """
    for unit in ("Gi", "G", "Mi", "M", "Ki", "k"):
        factor = FACTORS[unit]
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)
