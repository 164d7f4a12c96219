"""`ingest/requests` -> the clients' demand (`demand/*`)."""

from pyspark.sql import SparkSession

from offline.errors import InputError
from offline.store import Store
from offline.transforms import demand


def run(spark: SparkSession, source: Store, store: Store) -> list[str]:  # noqa: ARG001 - every stage is called alike
    """Measure each client's demand in the ingested requests; return lines to print for the operator."""
    requests = source.read("ingest/requests")
    rows = demand.charged(requests)
    processes = source.read("ingest/processes").select("first_wall_ms", "last_wall_ms").collect()
    intervals = demand.recorded((row["first_wall_ms"], row["last_wall_ms"]) for row in processes)
    recorded_s = demand.length_s(intervals)
    with store.writing("demand", source) as writer:
        span = writer.table("span", demand.span(rows, recorded_s), files=1).first()
        if span is None or not span["requests"]:
            raise InputError(
                "the capture has no Produce and no Fetch with a broker's response: nothing to size"
            )
        seconds = writer.table("per_second", demand.per_second(rows, span["start_s"] + span["seconds"]))
        entities = writer.table("entities", demand.entities(seconds, recorded_s), files=1)
        writer.table("brokers", demand.brokers(seconds, recorded_s), files=1)
        writer.table("diurnal", demand.diurnal(seconds, intervals), files=1)
        writer.table("pauses", demand.pauses(demand.charged(requests, emptied=True)), files=1)
        writer.table("mutations", demand.mutations(requests), files=1)
        counts = {row["direction"]: row["count"] for row in entities.groupBy("direction").count().collect()}
        return [
            (
                f"{span['requests']:,} Produces and Fetches in {recorded_s:,} recorded s, "
                f"{counts.get('produce', 0):,} producing and {counts.get('fetch', 0):,} fetching clients"
            )
        ]
