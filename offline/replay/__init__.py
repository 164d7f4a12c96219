"""Replay: sends captured requests again, in an open loop, and measures the responses (issue 7).

    reading       capture files -> requests, in the order of their times
    schedule      pure: requests -> a plan: the time and connection of each request
    frames        pure: one planned request -> bytes; synthetic ones if its frame was not captured
    shares        pure: distributes a request over the target's partitions
    payload       record batches of a given size
    target        the requirements of a recording, and the counterparts of its brokers and partitions at the target
    prepare       reads the target's state and creates missing topics, by `peer`
    driver        runs the plan on many connections, on one core
    encode_ahead  encodes frames while no request is due
    connection    one connection, and the bound of all connections' unsent bytes
    samples       the state and measurements of each request
    measure       latencies, throttle times, lateness
    report        JSON and HTML
    process       open files and signals
    command       `sluice-offline replay`

Spark is not needed and never imported here.
"""

from offline.replay.command import add_parser, main

__all__ = ["add_parser", "main"]
