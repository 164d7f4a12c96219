"""`python -m offline.replay`: the replay alone, without Spark's command line."""

import argparse
import sys

from offline.replay.command import add_parser, main


def parser() -> argparse.ArgumentParser:
    """Return a parser that has `replay` as its only command."""
    made = argparse.ArgumentParser(prog="python -m offline.replay")
    add_parser(made.add_subparsers(required=True, metavar="COMMAND"))
    return made


if __name__ == "__main__":
    sys.exit(main(parser().parse_args(["replay", *sys.argv[1:]])))
