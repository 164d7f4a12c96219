"""What /metrics shows of a journal in a topic, and of callers' questions to the holder."""

from collections.abc import Iterator, Mapping
from typing import Final

from proxy.metrics.replication import Family
from proxy.topics.records import CAUSES, Problem

_RECORDS: Final = ("applied", "removed", "skipped", "damaged", "unsigned", "replayed")
_FORWARDED: Final = ("answered", "refused", "unanswered")


def families(
    problem: Problem | None,
    records: Mapping[str, int],
    forwarded: Mapping[str, int] | None,
    fenced: int = 0,
) -> Iterator[Family]:
    """Yield the metrics.

    Args:
        problem: why the topic cannot be used.
        records: records read, by result.
        fenced: how often a client that is not of the fleet has fenced this process.
        forwarded: questions to the holder, by result; None before there can be any.
    """
    yield Family(
        "sluice_reassignment_topic_problem",
        "gauge",
        "1 while the topic of the reassignment journal cannot be read or appended to, by cause",
        ("cause",),
        [((cause,), float(problem is not None and problem.cause == cause)) for cause in CAUSES],
    )
    yield Family(
        "sluice_reassignment_topic_records",
        "counter",
        "Records read from the topic of the reassignment journal",
        ("result",),
        [((result,), float(records[result])) for result in _RECORDS],
    )
    yield Family(
        "sluice_reassignment_topic_fenced",
        "counter",
        "How often a client that is not of the fleet has fenced the executor",
        (),
        [((), float(fenced))],
    )
    if forwarded is not None:
        yield Family(
            "sluice_reassignment_forwarded",
            "counter",
            "Questions to the holder of the fleet about callers' reassignments",
            ("result",),
            [((result,), float(forwarded[result])) for result in _FORWARDED],
        )
