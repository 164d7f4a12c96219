"""Replay: sends captured requests again, in an open loop, and measures the responses (issue 7).

    command     `sluice-offline replay`
    reading     capture files -> requests
    schedule    pure: requests -> a plan: the time and connection of each request
    target      the requirements of a recording, and the counterparts of its brokers and partitions at the target
    prepare     reads the target's state and creates missing topics
    frames      pure: one planned request -> bytes; synthetic ones if its frame was not captured
    messages    pure: the requests that are made up, their record batches, the outcome in a response
    driver      runs the plan on many connections, on one core
    report      JSON and HTML

Spark is not needed and never imported here.
"""

from offline.replay.command import add_parser

__all__ = ["add_parser"]
