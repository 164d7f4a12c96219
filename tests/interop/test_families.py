"""Seven unmodified client families through Sluice, unthrottled: nothing they do may look different."""

from tests.conftest import CreateTopic
from tests.interop.conftest import Target, available
from tests.interop.families import JAVA_3_9, Family
from tests.interop.runs import Crowd, options

PARTITIONS = 6
RECORDS = 300
RUN_SECONDS_MAX = 60.0
READ_SECONDS = 8  # a reader that waits for a record too many takes this long
# 0 + 1 + … + 299
INDEX_SUM = RECORDS * (RECORDS - 1) // 2


def every_compression(family: Family, target: Target, crowd: Crowd, topic: str) -> None:
    """Produce with every compression the client has, read all of it back, and compare."""
    base = options(target.bootstrap, f"plain-{family.name}", topic, partitions=PARTITIONS)
    compressions = ",".join(family.compressions)
    producing = crowd.start(
        family, "produce", *base, "--records", str(RECORDS), "--compression", compressions
    )
    producing.wait(RUN_SECONDS_MAX)
    for line in producing.events("produced"):
        assert (line.number("records"), line.number("errors")) == (RECORDS, 0), producing.describe()
    assert len(producing.events("produced")) == len(family.compressions)
    total = RECORDS * len(family.compressions)
    consuming = crowd.start(family, "consume", *base, "--records", str(total), "--seconds", "30")
    line = consuming.wait(RUN_SECONDS_MAX).last("consumed")
    assert (line.number("records"), line.number("errors")) == (total, 0), consuming.describe()
    assert line.number("index_sum") == INDEX_SUM * len(family.compressions)


def transactions(family: Family, target: Target, crowd: Crowd, topic: str) -> None:
    """Commit one transaction, abort another: a committed reader sees the first only."""
    base = options(target.bootstrap, f"tx-{family.name}", topic, partitions=PARTITIONS)
    transact = ["--transactional-id", f"tx-{topic}", "--records", str(RECORDS)]
    crowd.start(family, "transact", *base, *transact).wait(RUN_SECONDS_MAX).last("transacted")
    # One record more is asked for than there is, so that an aborted one would be seen.
    words = ["--records", str(RECORDS + 1), "--isolation", "read_committed", "--seconds", str(READ_SECONDS)]
    reading = crowd.start(family, "consume", *base, *words)
    line = reading.wait(RUN_SECONDS_MAX).last("consumed")
    assert (line.number("records"), line.number("errors")) == (RECORDS, 0), reading.describe()
    assert line.number("index_sum") == INDEX_SUM


def test_every_compression_arrives_as_it_was_sent(
    family: Family, target: Target, crowd: Crowd, create_topic: CreateTopic
) -> None:
    every_compression(family, target, crowd, create_topic(partitions=PARTITIONS, replication=3))


def test_acks_0_and_1_arrive(family: Family, target: Target, crowd: Crowd, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=PARTITIONS)
    base = options(target.bootstrap, f"acks-{family.name}", topic, partitions=PARTITIONS)
    runs = [crowd.start(family, "produce", *base, "--records", str(RECORDS), "--acks", acks) for acks in "01"]
    for run in runs:
        line = run.wait(RUN_SECONDS_MAX).last("produced")
        assert (line.number("records"), line.number("errors")) == (RECORDS, 0), run.describe()
    reading = crowd.start(family, "consume", *base, "--records", str(2 * RECORDS), "--seconds", "20")
    assert reading.wait(RUN_SECONDS_MAX).last("consumed").number("index_sum") == 2 * INDEX_SUM


def test_transactions_commit_and_abort(
    family: Family, target: Target, crowd: Crowd, create_topic: CreateTopic
) -> None:
    transactions(family, target, crowd, create_topic(partitions=PARTITIONS, replication=3))


def test_admin_finds_no_real_broker(
    family: Family, target: Target, crowd: Crowd, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    base = options(target.bootstrap, f"admin-{family.name}", topic, partitions=PARTITIONS)
    line = crowd.start(family, "admin", *base).wait(RUN_SECONDS_MAX).last("described")
    assert line.items("brokers") == list(target.brokers)
    assert topic in line.items("topics")
    assert line.number("partitions") == PARTITIONS


def test_the_last_3_x_java_client_works_as_well(
    target: Target, crowd: Crowd, create_topic: CreateTopic
) -> None:
    family = available(JAVA_3_9)
    every_compression(family, target, crowd, create_topic(partitions=PARTITIONS, replication=3))
    transactions(family, target, crowd, create_topic(partitions=PARTITIONS, replication=3))
