"""The families of worker processes (`[process] workers`)."""

from collections.abc import Iterator, Mapping

from proxy.metrics.replication import Family


def of_workers(
    up: Mapping[int, bool],
    connections: Mapping[int, int],
    missed: Mapping[int, int],
    exits: Mapping[str, int],
) -> Iterator[Family]:
    """Yield the families.

    Args:
        up: whether a worker has responded to this scrape, by its number.
        connections: of each worker that runs.
        missed: how often each worker's figures were missing.
        exits: how many lives of workers ended although they should not have, by cause.
    """
    yield Family(
        "sluice_worker_up",
        "gauge",
        "1 if the worker is ready and has responded to this scrape, otherwise 0",
        ("worker",),
        [((str(number),), one) for number, one in sorted(up.items())],
    )
    yield Family(
        "sluice_worker_connections",
        "gauge",
        "Client connections of a worker, up to a second ago",
        ("worker",),
        [((str(number),), count) for number, count in sorted(connections.items())],
    )
    yield Family(
        "sluice_worker_missed",
        "counter",
        "Questions for a page that a worker has not responded to in time, or could not be asked",
        ("worker",),
        [((str(number),), count) for number, count in sorted(missed.items())],
    )
    yield Family(
        "sluice_worker_exits",
        "counter",
        "Worker processes that ended although they should not have, by cause",
        ("cause",),
        [((cause,), count) for cause, count in sorted(exits.items())],
    )
