"""`python -m release COMMAND`: see the package."""

import argparse
import sys
from pathlib import Path

from release.build import ReleaseError, build

ROOT = Path(__file__).resolve().parents[1]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m release", description="Make a release, and check it.")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("build", help="build what is released; DIR is replaced")
    making.add_argument(
        "--snapshot", action="store_true", help="what is not committed, or not in the changelog, too"
    )
    making.add_argument("--pure", action="store_true", help="no compiled wheel, which needs a C compiler")
    checking = commands.add_parser("check", help="install it with each Python, and use it")
    checking.add_argument(
        "--python", action="append", type=Path, metavar="PATH", help="these instead of all; may be repeated"
    )
    checking.add_argument(
        "--no-offline", action="store_true", help="without sluice-offline, which needs Java"
    )
    commands.add_parser("sample", help="keep what it writes, in tests/packaging/samples")
    return parser


def main() -> int:
    """Run a command; return its exit code."""
    options = _parser().parse_args()
    try:
        if options.command == "build":
            for path in build(ROOT, options.dist, snapshot=options.snapshot, compiled=not options.pure):
                sys.stdout.write(f"{path.stat().st_size:>10,}  {path}\n")
            return 0
        # Both start brokers, for which the environment of `make release` has no packages.
        from release import check, sample

        if options.command == "check":
            return check.run(options.dist, options.python or check.pythons(), offline=not options.no_offline)
        sys.stdout.write(f"{sample.write(options.dist, ROOT / 'tests' / 'packaging' / 'samples')}\n")
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
