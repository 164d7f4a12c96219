"""`python -m offline.replay`: the replay alone, without Spark's command line."""

import argparse
import sys

from offline.replay.command import add_parser, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m offline.replay")
    add_parser(parser.add_subparsers(required=True, metavar="COMMAND"))
    sys.exit(main(parser.parse_args(["replay", *sys.argv[1:]])))
