"""Exit codes: the table that users read has those of the code."""

import re
from pathlib import Path

from commandline import program

DOCUMENT = Path(__file__).parents[3] / "docs" / "commands.md"


def test_each_code_has_one_documented_meaning() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    codes = [value for name, value in vars(program).items() if name.isupper() and name[0] != "_"]
    assert [int(code) for code, _ in rows] == sorted(codes)
    assert len({meaning for _, meaning in rows}) == len(rows)
