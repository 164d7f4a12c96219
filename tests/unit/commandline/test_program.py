"""Exit codes: the table that users read is the one that the code has."""

import re
from pathlib import Path

from commandline import program

DOCUMENT = Path(__file__).parents[3] / "docs" / "commands.md"


def test_documented_table_is_the_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == program.MEANINGS


def test_each_code_has_one_meaning() -> None:
    codes = [
        value
        for name, value in vars(program).items()
        if name.isupper() and name[0] != "_" and isinstance(value, int)
    ]
    assert sorted(codes) == sorted(program.MEANINGS)
