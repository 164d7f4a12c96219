"""`make hostile`: every attack in its long form, and the table in docs/security.md.

    python -m tests.hostile [--seconds 60] [--only FAMILY]... [--dry] [--before]

It exits with 1 where a bar is not held. Nothing else should run beside it.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.bench.report import replace_between
from tests.cluster import processes
from tests.hostile import table
from tests.support.proxy_process import ROOT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; gives the exit code."""
    families = ["stopping", "stalling", "remembering", "standing", "owning", *table.EVASIONS]
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each evasion runs")
    parser.add_argument("--beside", type=int, default=4, help="evasions at a time")
    parser.add_argument("--only", action="append", choices=families, help="one family; may be repeated")
    parser.add_argument("--dry", action="store_true", help="print the table and write nothing")
    parser.add_argument("--before", action="store_true", help="keep the figures as those before")
    options = parser.parse_args(arguments)
    processes.exit_on_signals()
    rows = []
    for row in table.lines(options.only or families, options.seconds, options.beside):
        rows.append(row)
        print(table.render([row], {}).splitlines()[-1], flush=True)
    if options.before:
        table.write_before(rows)
        return 0
    text = table.render(rows, table.read_before())
    print(text)
    if not options.dry:
        document = ROOT / "docs" / "security.md"
        document.write_text(replace_between(document.read_text(), "hostile", f"{text}\n"))
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
