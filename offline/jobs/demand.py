"""`ingest/requests` -> what clients ask for (`demand/*`)."""

from pyspark.sql import SparkSession

from offline.errors import InputError
from offline.store import Store
from offline.transforms import demand

__all__ = ["run"]


def run(spark: SparkSession, source: Store, store: Store) -> list[str]:  # noqa: ARG001 - every stage is called alike
    """Measure the demand; what an operator should know, line by line."""
    requests = source.read("ingest/requests")
    rows = demand.charged(requests)
    with store.writing("demand", source) as writer:
        span = writer.table("span", demand.span(rows), files=1).first()
        if span is None or not span["requests"]:
            raise InputError(
                "the capture has no Produce and no Fetch that a broker answered: nothing to size"
            )
        seconds = writer.table("per_second", demand.per_second(rows))
        entities = writer.table("entities", demand.entities(seconds, span["seconds"]), files=1)
        writer.table("brokers", demand.brokers(seconds, span["seconds"]), files=1)
        writer.table("diurnal", demand.diurnal(seconds, span["start_s"], span["seconds"]), files=1)
        writer.table("mutations", demand.mutations(requests), files=1)
        counts = {row["direction"]: row["count"] for row in entities.groupBy("direction").count().collect()}
        return [
            (
                f"{span['requests']:,} Produces and Fetches in {span['seconds']:,} s, "
                f"{counts.get('produce', 0):,} producing and {counts.get('fetch', 0):,} fetching clients"
            )
        ]
