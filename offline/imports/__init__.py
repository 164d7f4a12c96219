"""`sluice-offline import SOURCE`: captures from recordings that no Sluice made, before it is deployed (issue 32).

    capture_file    rows -> a capture's file, with what its source cannot know
    pcap            `import pcap`: packet captures -> rows; the command and its summary
    files           the packets of capture files, by libpcap
    packets         pure: a packet -> its TCP segment
    connections     which segments belong to which connection; bounds
    reassembly      pure: segments -> the bytes of both directions in order
    conversation    pure: these bytes -> Kafka's requests and responses -> rows
    rates_command   `import prometheus`, `import csv`: rates that brokers count by client -> rows; the commands
    prometheus      responses of range queries, from files or asked -> points of series
    csv_rates       CSV -> points of series
    labels          pure: a metric's name and labels -> whose rate it is
    rates           pure: points -> rows, and what they cannot know

Spark is not needed and never imported here.
"""

import argparse
from typing import Any

from offline.imports import pcap, rates_command


def add_parser(subparsers: Any) -> None:
    """Add the command `import` with its sources."""
    text = "make captures from recordings that no Sluice made"
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "import", help=text, description=f"{text.capitalize()}."
    )
    sources = parser.add_subparsers(required=True, metavar="SOURCE")
    pcap.add_parser(sources)
    rates_command.add_prometheus(sources)
    rates_command.add_csv(sources)


__all__ = ["add_parser"]
