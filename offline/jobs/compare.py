"""`recommend` against the quotas in force -> what has drifted, and a file of changes that `sluice quotas apply` takes.

`advice.drift` judges. This module reads a few columns of `recommend` by pyarrow, without Spark, and the quotas in force
from a quotas file or a server, as `apply` does; it prints the judgement, and writes the changes alone, each with its
reason above it. If the file to write is the quotas file itself, the tables that change are edited, and all else stays.
Nothing is put in force here.
"""

import asyncio
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from commandline.amounts import aligned, count, printable, rate
from offline.advice import drift
from offline.advice.drift import Advice, Advised, Comparison, Judged, Need, NotJudged, Recommended
from offline.advice.explain import KEYS, amount, settings_note
from offline.advice.limits import Client
from offline.errors import ApplyError, InputError
from offline.inputs import finished_table, finished_text
from offline.jobs.apply import edit, in_force, quota_client, read_file, write
from offline.options import CompareOptions, RecommendSettings, read_settings
from quotas.definitions.alterations import Quotas, text_of
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import render_table

_NAMED_MAX: Final = 3  # entities that are not judged, in one line
_COLUMNS: Final = ("drift", "entity", "quota", "in force", "needs", "proposed", "why")


def run(options: CompareOptions, work: str, *, as_json: bool = False) -> tuple[list[str], bool]:
    """Compare, write the changes if a file is named for them; returns the output, and whether there are changes.

    Raises:
        InputError: the work directory has no recommendation, or one that says nothing of clients.
        ApplyError: the quotas in force cannot be read, or the changes cannot be written.
    """
    if bool(options.quotas_file) == bool(options.bootstrap_server):
        raise ApplyError(
            "say where the quotas in force are: --quotas-file FILE, or --bootstrap-server HOST:PORT"
        )
    settings = read_settings(RecommendSettings, finished_text(work, "recommend", "settings.json"))
    found = _recommended(work, settings)
    current: Quotas
    if options.quotas_file:
        text, current = read_file(Path(options.quotas_file))
    else:
        text, current = "", asyncio.run(_ask(options))
    compared = drift.compare(current, found, options)
    wanted = compared.wanted(current)
    note = (
        f"{settings_note(settings.policy, settings.scope)}; {drift.recorded(found.recorded_s)} recorded, "
        f"lowest confidence {found.confidence or 'low: nothing was recorded'}"
    )
    if options.write:
        path = Path(options.write)
        if not options.quotas_file or path.resolve() != Path(options.quotas_file).resolve():
            write(path, changes_text(compared, wanted, note))
        elif wanted:
            write(path, edit(path, text, current, wanted))
    if as_json:
        return [json.dumps(_document(compared, settings, found), indent=2, ensure_ascii=False)], bool(wanted)
    where = options.quotas_file or options.bootstrap_server
    return [note, *_lines(compared, where, options.write if wanted else "")], bool(wanted)


def _recommended(work: str, settings: RecommendSettings) -> Recommended:
    """Read what `recommend` has made of the recording.

    Raises:
        InputError: it cannot be read, shares a capacity, or was made from a sample of the connections.
    """
    if settings.goal.sample < 1:
        raise InputError(
            f"only {settings.goal.sample:.3g} of the connections were captured: what a client needs is not known"
        )
    needs = _rows(work, "recommend/needs", "direction", "user", "client_id", "need", "quota")
    lines = _rows(
        work, "recommend/recommendations", "kind", "user", "client_id", "key", "value", "confidence"
    )
    if any(kind == "capacity" for kind, *_ in lines):
        raise InputError(
            "the recommendation shares a capacity: compare judges quotas without ceilings; run recommend without "
            "--quotas-file"
        )
    ladder = _rows(work, "recommend/curve", "direction", "quota")
    span = _rows(work, "demand/span", "recorded_seconds")
    advice: dict[str, Advice] = {}
    for direction, key in KEYS.items():
        own = {
            (kind, user, client_id): Advised(value, confidence)
            for kind, user, client_id, line_key, value, confidence in lines
            if line_key == key and value > 0
        }
        advice[direction] = Advice(
            ladder=sorted(quota for way, quota in ladder if way == direction),
            needs={
                (user, client_id): Need(need if need > 0 else math.inf, quota if quota > 0 else math.inf)
                for way, user, client_id, need, quota in needs
                if way == direction
            },
            default=next((one for (kind, *_), one in own.items() if kind == "default"), None),
            overrides={_client(name): one for name, one in own.items() if name[0] == "override"},
        )
    return Recommended(
        by=settings.by,
        goal=settings.goal,
        recorded_s=span[0][0],
        confidence=settings.confidence,
        advice=advice,
    )


def _client(name: tuple[str, str, str]) -> Client:
    _, user, client_id = name
    return user, client_id


def _rows(work: str, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = finished_table(work, table, columns)
    return list(zip(*(found[name].to_pylist() for name in columns), strict=True))


async def _ask(options: CompareOptions) -> Quotas:
    async with quota_client(options.bootstrap_server, options.ca_file, options.command_config) as client:
        return await in_force(client)


def changes_text(compared: Comparison, wanted: Quotas, note: str) -> str:
    """Return the changes as a file for `sluice quotas apply`: each entity with all of its limits, and the reasons.

    Args:
        wanted: the entities that change, each with all limits that it should have; without limits it is removed.
        note: what the changes are for and rest on, in one line.
    """
    reasons: dict[Entity, str] = defaultdict(str)
    for one in compared.judged:
        if one.changes:
            reasons[one.entity] += f"# {one.key}, {one.drift}: {printable(one.reason)}\n"
    texts = [f"# Changes {printable(note)}.\n"]
    if not wanted:
        texts.append("# Nothing to change.\n")
    for entity, values in wanted.items():
        removed = "" if values else "remove = true\n"
        texts.append(f"\n{reasons[entity]}{render_table(entity, values)}{removed}")
    return "".join(texts)


def _document(compared: Comparison, settings: RecommendSettings, found: Recommended) -> Mapping[str, Any]:
    return {
        "policy": settings.policy,
        "scope": settings.scope,
        "by": settings.by,
        "recorded_seconds": found.recorded_s,
        "confidence": found.confidence,
        "changes": sum(one.changes for one in compared.judged),
        "quotas": [
            {
                **_parts(one.entity),
                "key": one.key,
                "drift": one.drift,
                "in_force": one.in_force,
                "need": one.need,
                "proposed": one.proposed,
                "reason": one.reason,
                "changes": one.changes,
                "held_back": one.held_back,
            }
            for one in compared.judged
        ],
        "not_judged": [
            {**_parts(entity), "key": key, "reason": why} for entity, key, why in compared.not_judged
        ],
    }


def _parts(entity: Entity) -> dict[str, str]:
    parts = zip(Entity._fields, entity, strict=True)
    return {part: DEFAULT.value if name is DEFAULT else str(name) for part, name in parts if name is not None}


def _lines(compared: Comparison, where: str, written: str) -> Iterator[str]:
    """Yield the result for people: what has drifted, what has not, what is not judged, and what there is to do."""
    drifted = [one for one in compared.judged if one.drift != "unchanged"]
    if drifted:
        yield from aligned([_COLUMNS, *map(_cells, drifted)])
    unchanged = [one for one in compared.judged if one.drift == "unchanged"]
    if unchanged:
        yield f"unchanged: {count(len(unchanged), 'quota')}"
    for one in unchanged:
        if one.reason:
            yield f"  {printable(text_of(one.entity))} {one.key}: {one.reason}"
    for why, group in groupby(sorted(compared.not_judged, key=lambda one: one.why), key=lambda one: one.why):
        yield f"not judged: {printable(why)} ({_named(list(group))})"
    changes = sum(one.changes for one in compared.judged)
    if not changes:
        yield f"{where}: nothing to change"
    else:
        yield f"{where}: {count(changes, 'quota')} to change" + (f"; written to {written}" if written else "")


def _cells(one: Judged) -> Sequence[str]:
    proposed = "remove" if one.proposed is None else rate(one.proposed)
    return (
        one.drift,
        printable(text_of(one.entity)),
        one.key,
        amount(-1.0 if one.in_force is None else one.in_force),
        "–" if one.need is None else rate(one.need),
        "held back" if one.held_back else proposed,
        one.reason + (f" [{one.held_back}]" if one.held_back else ""),
    )


def _named(left: Sequence[NotJudged]) -> str:
    names = [f"{printable(text_of(one.entity))} {one.key}" for one in left[:_NAMED_MAX]]
    more = f" and {len(left) - _NAMED_MAX:,} more" if len(left) > _NAMED_MAX else ""
    return "; ".join(names) + more
