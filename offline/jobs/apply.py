"""`recommend/quotas.toml` -> a quotas file, or a cluster by AlterClientQuotas; in steps, or only shown (`--dry-run`).

A limit in force is not set again; entities without a recommendation stay unchanged. With `--steps N` one call moves the
quotas one step towards the recommendation, from the busiest client's recorded use, and never above the limits in force;
the operator checks the throttle metrics between two steps. A file is replaced as a whole.

Step s of n is the weighted geometric mean of both ends, with the weight s / n, so that every step reduces the limit by
the same factor; the last step is the target. A limit whose target is not below today's use is set by step 1. No step
raises a limit in force: if it is at or above the target, no step exceeds it; if it is below, step 1 sets the target.
The limit in force is the entity's own, or the one that applies to its clients without it.

The job reads two small files of `recommend` and does not need Spark. What reads and writes quotas here serves `compare`
as well.
"""

import asyncio
import math
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Final

from kafka_client import ClosedError, Connection, LoginError, QuotaClient, RefusedError, Security, security_of
from offline.advice.explain import settings_note
from offline.errors import ApplyError, InputError
from offline.inputs import finished_text
from offline.options import ApplyOptions, RecommendSettings, read_settings
from protocol.errors import WireError
from quotas.definitions.alterations import (
    ANY,
    EVERYTHING,
    Difference,
    Quotas,
    alterations,
    differences,
    entity_of_parts,
)
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import DEFAULT, Entity, Name
from quotas.definitions.kinds import WHOLE_KEYS
from quotas.definitions.toml_file import Document, parse, render
from quotas.errors import DefinitionError, FormError

_CONNECT_SECONDS_MAX: Final = 30.0
_CLIENT_ID: Final = b"sluice-offline"
_HINT: Final = "a server that asks for SASL (--command-config)"

Rollout = Callable[[Quotas], Quotas]
"""What to set where this is set now."""


def run(options: ApplyOptions, work: str) -> list[str]:
    """Apply the recommended quotas; returns the report, one line per change.

    Raises:
        InputError: the work directory has no recommendation, or there is no such step.
        ApplyError: the destination cannot be read, reached or written.
    """
    if not options.quotas_file and not options.bootstrap_server:
        raise ApplyError("no target is given: use --quotas-file FILE, --bootstrap-server HOST:PORT, or both")
    step = options.step or options.steps
    if not 1 <= step <= options.steps:
        raise InputError(f"--step must be between 1 and {options.steps}, not {step}")
    target = dict(parse(finished_text(work, "recommend", "quotas.toml")).entries())
    settings = read_settings(RecommendSettings, finished_text(work, "recommend", "settings.json"))

    def wanted(current: Quotas) -> Quotas:
        return rollout(target, settings.today, current, step, options.steps)

    note = settings_note(settings.policy, settings.scope)
    lines = [f"{note}; lowest confidence {settings.confidence}"]
    if options.quotas_file:
        lines += _to_file(Path(options.quotas_file), wanted, dry_run=options.dry_run)
    if options.bootstrap_server:
        lines += asyncio.run(_to_server(options, wanted))
    if settings.elsewhere:
        lines.append(f"not applied, see the report: {', '.join(settings.elsewhere)}")
    return lines


def _to_file(path: Path, rollout_: Rollout, *, dry_run: bool) -> list[str]:
    new = "" if path.exists() else " (a new file: a proxy reads it if [quotas] file names it)"
    text, current = ("", {}) if new else read_file(path)
    wanted = merged(current, rollout_(current))
    found = differences(current, wanted, prune=False)
    if found:
        edited = edit(path, text, current, wanted)
        if not dry_run:
            write(path, edited)
    return _shown(f"{path}{new}", found, dry_run=dry_run)


def read_file(path: Path) -> tuple[str, Quotas]:
    """Return the text of a quotas file, and its quotas.

    Raises:
        ApplyError: it cannot be read, or is not valid.
    """
    try:
        text = path.read_text("utf-8")
        return text, dict(parse(text).entries())
    except (OSError, UnicodeDecodeError, DefinitionError) as error:
        raise ApplyError(f"{path} is not a valid quotas file: {error}") from error


def merged(current: Quotas, wanted: Quotas) -> Quotas:
    """Return the wanted quotas, with the limits in force for keys that `wanted` does not name."""
    return {entity: {**current.get(entity, {}), **values} for entity, values in wanted.items()}


def edit(path: Path, text: str, current: Quotas, wanted: Quotas) -> str:
    """Return a quotas file's text in which these entities have exactly the wanted limits; without limits, they go.

    Comments and order stay if the file consists of tables such as `[[quota]]`.

    Args:
        path: the file, for the message.
        text, current: its text, and its quotas.

    Raises:
        ApplyError: the result would not be valid, as with a rate above the ceiling that the file states.
    """
    try:
        document, _, _ = Document.read(text.splitlines(keepends=True))
    except FormError:
        edited = render(Definitions({**current, **wanted}))
    else:
        changes = [(entity, values) for entity, values in wanted.items() if values != current.get(entity)]
        edited = "".join(document.text(document.edit(changes)))
    try:
        parse(edited)
    except DefinitionError as error:
        raise ApplyError(f"{path} is left as it is, since it would be invalid: {error}") from error
    return edited


def write(path: Path, text: str) -> None:
    """Replace the file atomically: a proxy that watches it may read it at any moment.

    Raises:
        ApplyError: it cannot be written.
    """
    try:
        _replace(path, text)
    except OSError as error:
        raise ApplyError(f"{path} cannot be written: {error}") from error


def _replace(path: Path, text: str) -> None:
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


async def _to_server(options: ApplyOptions, rollout_: Rollout) -> list[str]:
    server = options.bootstrap_server
    async with quota_client(server, options.ca_file, options.command_config) as client:
        current = await in_force(client)
        found = differences(current, merged(current, rollout_(current)), prune=False)
        refused = await client.alter(alterations(found), validate_only=options.dry_run) if found else []
    if refused:
        reasons = "; ".join(f"{dict(parts)}: {reason}" for parts, reason in refused[:5])
        raise ApplyError(f"{server} refused {len(refused)} of {len(found)} changes: {reasons}")
    return _shown(server, found, dry_run=options.dry_run)


async def in_force(client: QuotaClient) -> Quotas:
    """Return the quotas of a server, of Sluice also those that are in no Kafka: of groups, capacities and times."""
    try:
        described = await client.describe([(EVERYTHING, ANY, None)])
    except RefusedError:  # brokers, and Sluice before 0.2, know no such component
        described = await client.describe()
    found = ((entity_of_parts(parts), values) for parts, values in described)
    return {entity: values for entity, values in found if entity is not None}


@asynccontextmanager
async def quota_client(
    server: str, ca_file: str = "", command_config: str = ""
) -> AsyncIterator[QuotaClient]:
    """Connect to a server of the quota API (KIP-546).

    Args:
        ca_file: the certificates to trust; "" for a connection without TLS.
        command_config: a Java client's properties, with login and TLS; "" for none.

    Raises:
        ApplyError: the server cannot be reached or refuses the login, a file cannot be used, or a request in the block
            fails.
    """
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdigit():
        raise ApplyError(f"--bootstrap-server {server} is not HOST:PORT")
    login, tls = _security(ca_file, command_config)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS_MAX):
            connection = await Connection.open(
                host.strip("[]"), int(port), tls=tls, login=login, client_id=_CLIENT_ID
            )
    except (OSError, LoginError, WireError) as error:
        raise ApplyError(f"{server} cannot be reached: {error}") from error
    try:
        yield QuotaClient(connection)
    except RefusedError as error:
        raise ApplyError(str(error)) from error
    except WireError as error:
        raise ApplyError(f"{server} does not respond as Kafka does: {error}; perhaps {_HINT}") from error
    except ClosedError as error:
        raise ApplyError(
            f"{server} closed the connection; it may expect TLS (--ca-file), or be {_HINT}"
        ) from error
    except OSError as error:
        raise ApplyError(f"{server} does not respond: {error}; perhaps {_HINT}") from error
    finally:
        connection.close()
        await asyncio.sleep(0)  # the socket is closed in the next turn of the loop


def _security(ca_file: str, command_config: str) -> Security:
    path = command_config or ca_file
    try:
        if command_config:
            return security_of(Path(command_config).read_text("utf-8"))
        return Security(tls=ssl.create_default_context(cafile=ca_file) if ca_file else None)
    except (OSError, ValueError) as error:  # PropertiesError and UnicodeDecodeError are ValueErrors
        raise ApplyError(f"{path} cannot be used: {error}") from error


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


def rollout(target: Quotas, today: Mapping[str, float], current: Quotas, step: int, steps: int) -> Quotas:
    """Return the quotas to set in one step of a rollout, from limits that throttle no client to `target`.

    A limit is not raised above the one in force, unless `target` is above it.

    Args:
        target: entities and their limits after the last step.
        today: by quota key, the rate of the busiest client: as a limit it throttles no client.
        current: entities and their limits in force.
        step: the number of the step, from 1 to `steps`.

    >>> from quotas.definitions.entities import Entity
    >>> target = {Entity(client_id="a"): {"producer_byte_rate": 1e6}}
    >>> [list(rollout(target, {"producer_byte_rate": 16e6}, {}, step, 4).values())[0] for step in (1, 2, 4)]
    [{'producer_byte_rate': 8000000.0}, {'producer_byte_rate': 4000000.0}, {'producer_byte_rate': 1000000.0}]
    """
    assert 1 <= step <= steps, "a step is one of the steps"
    return {
        entity: {
            key: min(
                _between(key, value, today.get(key, value), step / steps),
                max(value, _set_now(entity, key, current)),
            )
            for key, value in values.items()
        }
        for entity, values in target.items()
    }


def _set_now(entity: Entity, key: str, current: Quotas) -> float:
    """Return the limit in force for this entity's clients, by Kafka's order of precedence; infinite without one."""
    for user, client_id in product(_from(entity.user), _from(entity.client_id)):
        found = current.get(entity._replace(user=user, client_id=client_id), {}).get(key)
        if found is not None:
            return found
    return math.inf


def _from(name: Name) -> tuple[Name, ...]:
    """Return a part of an entity's name, and what replaces it in less specific entities, in order of precedence."""
    if name is None:
        return (None,)
    return (DEFAULT, None) if name is DEFAULT else (name, DEFAULT, None)


def _between(key: str, target: float, today: float, share: float) -> float:
    if today <= target or share >= 1:
        return target
    found = today * (target / today) ** share
    return float(round(found)) if key in WHOLE_KEYS else found
