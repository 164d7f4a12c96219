"""A work directory in which `recommend` looks finished, without Spark: the tables that `compare` reads."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from offline.inputs import MARK, new_mark
from offline.options import Goal, RecommendSettings, settings_text
from offline.schemas import TABLES

SURE: Final = "high: 30.0 days of 500 clients"
DAY_S: Final = 86_400
_TYPES: Final = {"string": pa.string(), "double": pa.float64(), "bigint": pa.int64(), "boolean": pa.bool_()}
_EMPTY: Final = {"string": "", "double": -1.0, "bigint": -1, "boolean": False}


def write_recommendation(
    work: Path,
    needs: Mapping[str, float],
    default: float,
    overrides: Mapping[str, float],
    *,
    ladder: Sequence[float],
    seconds: int = 30 * DAY_S,
    confidence: str = SURE,
    sample: float = 1.0,
) -> None:
    """Write what is recommended for produce, for clients with these needs in bytes/s."""
    lines = [("default", "<default>", default), *(("override", name, one) for name, one in overrides.items())]
    tables: dict[str, list[dict[str, Any]]] = {
        "demand/span": [{"recorded_seconds": seconds}],
        "recommend/needs": [
            {"direction": "produce", "client_id": name, "need": need, "quota": overrides.get(name, default)}
            for name, need in needs.items()
        ],
        "recommend/recommendations": [
            {
                "kind": kind,
                "client_id": name,
                "user": "<default>" if kind == "default" else "",
                "key": "producer_byte_rate",
                "value": value,
                "confidence": confidence,
            }
            for kind, name, value in lines
        ],
        "recommend/curve": [{"direction": "produce", "quota": quota} for quota in ladder],
    }
    for name, rows in tables.items():
        columns = TABLES[name]
        schema = pa.schema([(column.name, _TYPES[column.type]) for column in columns])
        filled = [
            {column.name: row.get(column.name, _EMPTY[column.type]) for column in columns} for row in rows
        ]
        (work / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(filled, schema=schema), work / name / "part-0.parquet")
    settings = RecommendSettings(
        goal=Goal(sample=sample),
        by="client-id",
        policy="schedule",
        scope="cluster",
        confidence=confidence,
        today={},
    )
    (work / "recommend" / "settings.json").write_text(settings_text(settings))
    for stage in ("demand", "recommend"):
        (work / stage / MARK).write_text(new_mark(stage, {}))
