"""Replay: what was captured is sent again, open loop, and measured (issue 7).

    reading       capture files -> requests, in the order of their times
    schedule      pure: requests -> what is sent when, at a speed, on which connection
    frames        pure: one planned request -> bytes; made up where nothing was kept
    shares        pure: which of the target's partitions it goes to, and how much to each
    payload       record batches of a wanted size
    target        what a recording needs of a cluster, and what stands there for what was recorded
    prepare       a look at the target, and what is made for it; by `peer`
    driver        many connections on one core that keep the schedule
    encode_ahead  frames made while nothing is due
    connection    one connection, and the room that all have
    samples       what became of each request
    measure       latencies, throttle times, lateness
    report        JSON and HTML
    process       open files and signals
    command       `sluice-offline replay`

Spark is not needed and never imported here.
"""

from offline.replay.command import add_parser, main

__all__ = ["add_parser", "main"]
