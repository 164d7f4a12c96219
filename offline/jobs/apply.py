"""`recommend/quotas.toml` -> a quotas file, or a cluster by AlterClientQuotas; in steps, or only shown (`--dry-run`).

A limit in force is not set again; entities without a recommendation stay unchanged. With `--steps N` one call moves the
quotas one step towards the recommendation, from the busiest client's recorded use, and never above the limits in force;
the operator checks the throttle metrics between two steps. A file is replaced as a whole.

The job reads two small files of `recommend` and does not need Spark.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offline.advice.explain import settings_note
from offline.errors import ApplyError
from offline.options import ApplyOptions, current_scope
from offline.paths import finished_text
from offline.quota_api import QuotaApi
from quotas.definitions.alterations import entity_of_parts
from quotas.definitions.definitions import Definitions
from quotas.definitions.diff import Difference, Quotas, alterations, differences
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.rollout import rollout
from quotas.definitions.toml_edit import Document
from quotas.definitions.toml_file import parse, render
from quotas.errors import DefinitionError, FormError

__all__ = ["run"]

Rollout = Callable[[Quotas], Quotas]
"""What to set where this is set now."""


def run(options: ApplyOptions, work: str) -> list[str]:
    """Apply the recommended quotas; returns the report, one line per change.

    Raises:
        InputError: the work directory has no recommendation.
        ApplyError: the destination cannot be read, reached or written.
    """
    if not options.quotas_file and not options.bootstrap:
        raise ApplyError("no target is given: use --quotas-file FILE, --bootstrap-server HOST:PORT, or both")
    target = dict(parse(finished_text(work, "recommend", "quotas.toml")).entries())
    settings: dict[str, Any] = json.loads(finished_text(work, "recommend", "settings.json"))
    today: dict[str, float] = settings["today"]

    def wanted(current: Quotas) -> Quotas:
        return rollout(target, today, current, options.step, options.steps)

    note = settings_note(settings["policy"], current_scope(settings["scope"]))
    lines = [f"{note}; lowest confidence {settings['confidence']}"]
    if options.quotas_file:
        lines += _to_file(Path(options.quotas_file), wanted, dry_run=options.dry_run)
    if options.bootstrap:
        lines += _to_server(options, wanted)
    if settings.get("elsewhere"):  # a work directory of an earlier version has none
        lines.append(f"not applied, see the report: {', '.join(settings['elsewhere'])}")
    return lines


def _to_file(path: Path, rollout_: Rollout, *, dry_run: bool) -> list[str]:
    new = "" if path.exists() else " (a new file: a proxy reads it if [quotas] file names it)"
    try:
        text = "" if new else path.read_text("utf-8")
        current = dict(parse(text).entries())
    except (OSError, UnicodeDecodeError, DefinitionError) as error:
        raise ApplyError(f"{path} is not a valid quotas file: {error}") from error
    wanted = rollout_(current)
    found = differences(current, _merged(current, wanted), prune=False)
    if found and not dry_run:
        try:
            _write(path, _edited(text, current, wanted))
        except OSError as error:
            raise ApplyError(f"{path} cannot be written: {error}") from error
    return _shown(f"{path}{new}", found, dry_run=dry_run)


def _merged(current: Quotas, wanted: Quotas) -> Quotas:
    """Add the limits in force for keys without a recommendation."""
    return {entity: {**current.get(entity, {}), **values} for entity, values in wanted.items()}


def _edited(text: str, current: Quotas, wanted: Quotas) -> str:
    """Return the file's text with the changes; comments and order stay if its form allows it."""
    merged = _merged(current, wanted)
    try:
        document, _, _ = Document.read(text.splitlines(keepends=True))
    except FormError:
        return render(Definitions({**current, **merged}))
    changes = [(entity, values) for entity, values in merged.items() if values != current.get(entity)]
    return "".join(document.text(document.edit(changes)))


def _write(path: Path, text: str) -> None:
    """Replace the file atomically: a proxy that watches it may read it at any moment."""
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _to_server(options: ApplyOptions, rollout_: Rollout) -> list[str]:
    with QuotaApi(options.bootstrap, options.ca_file) as api:
        described = ((entity_of_parts(parts), values) for parts, values in api.describe())
        current = {entity: values for entity, values in described if entity is not None}
        found = differences(current, _merged(current, rollout_(current)), prune=False)
        refused = api.alter(alterations(found), validate_only=options.dry_run) if found else []
    if refused:
        reasons = "; ".join(f"{dict(parts)}: {reason}" for parts, reason in refused[:5])
        raise ApplyError(f"{options.bootstrap} refused {len(refused)} of {len(found)} changes: {reasons}")
    return _shown(options.bootstrap, found, dry_run=options.dry_run)


def _shown(where: str, found: list[Difference], *, dry_run: bool) -> list[str]:
    if not found:
        return [f"{where}: nothing to change" + (" (dry run)" if dry_run else "")]
    verb = "dry run, nothing is changed; would change" if dry_run else "changed"
    return [f"{where}: {verb} {len(found)} limits"] + [
        f"  {_name(one.entity)} {one.key}: {_value(one.old)} -> {_value(one.new)}" for one in found
    ]


def _name(entity: Entity) -> str:
    parts = zip(Entity._fields, entity, strict=True)
    return ", ".join(
        f"{part} {'<default>' if name is DEFAULT else name}" for part, name in parts if name is not None
    )


def _value(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}"
