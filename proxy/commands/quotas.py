"""`sluice quotas`: shows and changes quotas through the quota API, of Sluice and of brokers alike (KIP-546).

Every command prints the differences and sends only those, so a second run sends nothing. `--format` is the format of
the output, in every command; with `json` it is one document on standard output. `apply` and `diff` take the format of
their file from its name, or from `--file-format`.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from commandline.arguments import FORMATS as OUTPUT_FORMATS
from commandline.arguments import add_format, add_old_json, print_result, warn_old_spelling
from commandline.program import NEGATIVE, OK
from kafka_client import ClosedError, QuotaClient, RefusedError
from protocol.errors import WireError
from protocol.messages.client_quotas import Component
from proxy.commands.quota_formats import FORMATS, as_table, describe, guess, jikkou_omits, read, replaceable
from proxy.commands.quota_formats import write as write_quotas
from proxy.commands.servers import add_brokers, brokers_of, connect_any
from proxy.config import Address, read_text, unenforced
from proxy.system.errors import ConfigError, ServerError, UsageError, reason
from quotas.definitions import times
from quotas.definitions.alterations import (
    ANY,
    DEFAULT_NAME,
    EVERYTHING,
    EXACT,
    PARTS,
    WHEN,
    Difference,
    Quotas,
    alterations,
    differences,
    entity_of_parts,
    parts_of,
    text_of,
)
from quotas.definitions.definitions import Definitions, candidates, check_entity, check_value, keys_of
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.kinds import CLIENT_KEYS
from quotas.definitions.toml_file import parse_value, render_value
from quotas.errors import DefinitionError, hint

DESCRIPTION: Final = (
    "Show and change quotas through Kafka's quota API: of Sluice, or of brokers. An entity is named with --user, "
    "--client-id (or both), or --ip; of Sluice alone also with --topic, --group, or --capacity. The name <default> is "
    "the default entity. A group with a user or a client id is that member of the group (member=true)."
)
_REFUSED_SHOWN_MAX: Final = 10
_CONNECT_SECONDS_MAX: Final = 5.0  # of each server, with TLS and login
_CLIENT_ID: Final = b"sluice-quotas"
_FORMATS_TEXT: Final = (
    "toml as in the quotas file, json, or jikkou's YAML, which needs PyYAML (Sluice's extra `operator`)"
)
_FILE_ONLY: Final = ("toml", "jikkou")
_DRY_RUN: Final = "dry run: validated, and nothing is changed"
_ENTITY_PART: Final = "{part} of the entity, letter by letter; <default> for the default one"
_OWN_PARTS: Final = {
    "group": "group of clients; with --user or --client-id, that member of it (web-* for all names that begin so)",
    "capacity": "what each `broker`, or the whole `cluster`, takes (producer_byte_rate) and gives (consumer_byte_rate)",
    "when": "times at which the entry holds, such as 'hours=mon-fri 22:00-06:00; time_zone=Europe/Berlin', or "
    "'from=2026-12-01T00:00:00Z; until=2026-12-24T00:00:00Z'",
}
_FILTER_PART: Final = "{part} of the entities; <default> for the default one, * for every name"
_TIME: Final = "%Y-%m-%d %H:%M"
_NONE: Final = "no quotas are set"
_NONE_MATCH: Final = "no quotas are set for this entity"

# Options that name an entity by themselves, and why they cannot be combined with others.
_NOT_COMBINED: Final = {
    "--ip": "an address has a limit of new connections, which are counted before a client has said who it is",
    "--topic": "a topic's quota is shared by all clients",
    "--capacity": "a capacity is shared by all clients",
}

Work = Callable[[argparse.Namespace, QuotaClient], Awaitable[int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `sluice quotas`, its subcommands and their arguments."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    showing = _add(commands, "show", _show, "list entities and their quotas", entity=True)
    showing.add_argument(
        "--strict", action="store_true", help="leave out entities that have a part that is not named"
    )
    setting = _add(commands, "set", _set, "set quotas of one entity; its other quotas stay", entity=True)
    setting.add_argument("quotas", nargs="+", metavar="KEY=VALUE", help="for example producer_byte_rate=2M")
    removing = _add(commands, "remove", _remove, "remove quotas of one entity", entity=True)
    removing.add_argument("keys", nargs="*", metavar="KEY", help="by default all of its quotas")
    for name, work, text in (
        ("apply", _apply, "set the quotas to those of a file"),
        ("diff", _diff, "show what apply would change; exit code 3 if anything"),
    ):
        command = _add(commands, name, work, text)
        command.add_argument("file", type=Path, metavar="FILE", help="the quotas; - for standard input")
        command.add_argument(
            "--prune", action="store_true", help="also remove entities that the file does not name"
        )
    explaining = _add(commands, "explain", _explain, "show which entity limits a client, by precedence")
    explaining.add_argument("--user", metavar="NAME", default="", help="the client's user (default: none)")
    explaining.add_argument("--client-id", metavar="NAME", required=True, help="the client's client id")
    _add(commands, "export", _export, "print all quotas, as a file that apply takes")
    for name in ("set", "remove", "apply"):
        commands.choices[name].add_argument(
            "--dry-run", action="store_true", help="validate the change and do not make it"
        )


def run(options: argparse.Namespace) -> int:
    """Run one subcommand of `sluice quotas`; returns its exit code."""
    servers, security = brokers_of(options)
    work: Work = options.work

    async def main() -> int:
        connection = await connect_any(servers, security, _CONNECT_SECONDS_MAX, _CLIENT_ID)
        try:
            return await work(options, QuotaClient(connection))
        finally:
            connection.close()

    return asyncio.run(main())


async def _show(options: argparse.Namespace, client: QuotaClient) -> int:
    found = await _all_quotas(client, _components(options), strict=options.strict)
    if options.format == "json":
        print(write_quotas(found, "json"), end="")
        return OK
    if not found:
        print(_NONE_MATCH if any(_names(options)) else _NONE, file=sys.stderr)
    for entity, values in found.items():
        limits = " ".join(f"{key}={render_value(key, value)}" for key, value in values.items())
        print(f"{describe(entity)}: {limits}{_holding(entity)}")
    return OK


def _holding(entity: Entity) -> str:
    """Return whether an entry with times holds now, and until when or from when, as text; "" for one without."""
    if entity.when is None:
        return ""
    now = datetime.now(UTC)
    when = times.parse(entity.when)
    period, following = when.period(now), when.next_period(now)
    if period is not None:
        return " (holds now)" if period.end is None else f" (holds now, until {period.end:{_TIME}} UTC)"
    if following is not None:
        return f" (next from {following.start:{_TIME}} UTC)"
    return " (over)" if when.next_change(now) is None else " (does not hold within a week)"


async def _set(options: argparse.Namespace, client: QuotaClient) -> int:
    entity = _entity(options)
    values: dict[str, float] = {}
    for text in options.quotas:
        key, equals, amount = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} is not KEY=VALUE")
        try:
            values[key] = parse_value(key, amount, key)
            check_value(entity, key, values[key], key)
        except DefinitionError as error:
            raise ConfigError(error.path, error.problem) from None
    before = await _quotas_of(client, entity)
    wanted = {**before, **values}
    _warn({entity: wanted})
    return await _alter(options, client, differences({entity: before}, {entity: wanted}, prune=False))


async def _remove(options: argparse.Namespace, client: QuotaClient) -> int:
    entity = _entity(options)
    before = await _quotas_of(client, entity)
    for key in options.keys:
        if key not in before and key not in keys_of(entity):  # brokers may have keys that are unknown here
            raise ConfigError(key, f"unknown key; {hint(key, sorted(keys_of(entity)))}")
    wanted = {key: value for key, value in before.items() if options.keys and key not in options.keys}
    return await _alter(options, client, differences({entity: before}, {entity: wanted}, prune=False))


async def _apply(options: argparse.Namespace, client: QuotaClient) -> int:
    wanted, form = _read(options)
    _warn(wanted, options.file)
    current = replaceable(await _all_quotas(client), wanted, form)
    return await _alter(options, client, differences(current, wanted, prune=options.prune))


async def _diff(options: argparse.Namespace, client: QuotaClient) -> int:
    wanted, form = _read(options)
    current = replaceable(await _all_quotas(client), wanted, form)
    found = differences(current, wanted, prune=options.prune)
    _print_differences(options, found)
    return NEGATIVE if found else OK


async def _export(options: argparse.Namespace, client: QuotaClient) -> int:
    found = await _all_quotas(client)
    if options.format == "jikkou":
        for loss in jikkou_omits(found):
            print(f"sluice: {loss}", file=sys.stderr)
    print(write_quotas(found, options.format), end="")
    return OK


async def _explain(options: argparse.Namespace, client: QuotaClient) -> int:
    found = document(await _all_quotas(client), options.user, options.client_id)
    print_result(options.format, found, lines(found))
    return OK


@contextmanager
def _server_errors(client: QuotaClient, api: str) -> Iterator[None]:
    """Convert connection and protocol errors to ServerError."""
    server = Address(*client.address)
    try:
        yield
    except RefusedError as error:
        raise ServerError(str(error)) from error
    except WireError as error:
        raise ServerError(f"no response to {api}: {error}") from error
    except ClosedError as error:
        text = "the server closed the connection without a response: it may expect TLS or SASL"
        raise ServerError(text) from error
    except TimeoutError as error:
        raise ServerError(f"{server}: {reason(error)}") from error
    except OSError as error:
        raise ServerError(f"{server}: no response: {reason(error)}") from error


async def _alter(options: argparse.Namespace, client: QuotaClient, found: list[Difference]) -> int:
    with _server_errors(client, "AlterClientQuotas"):
        refused = await client.alter(alterations(found), validate_only=options.dry_run) if found else []
    if refused:
        reasons = [f"{_entity_text(parts)}: {problem}" for parts, problem in refused[:_REFUSED_SHOWN_MAX]]
        more = len(refused) - len(reasons)
        raise ServerError("; ".join(reasons) + (f"; and {more} more" if more else ""))
    _print_differences(options, found, dry_run=options.dry_run)
    return OK


def _print_differences(
    options: argparse.Namespace, found: list[Difference], *, dry_run: bool = False
) -> None:
    if dry_run:
        print(_DRY_RUN, file=sys.stderr if options.format == "json" else sys.stdout)
    if options.format == "json":
        changes = [{**as_table(one.entity), "key": one.key, "old": one.old, "new": one.new} for one in found]
        print(json.dumps(changes, indent=2, ensure_ascii=False))
        return
    for entity, key, old, new in found:
        sign = "+" if old is None else "-" if new is None else "~"
        values = [render_value(key, value) for value in (old, new) if value is not None]
        print(f"{sign} {describe(entity)}: {key} {' -> '.join(values)}")
    if not found:
        print("nothing to change")


def _warn(wanted: Quotas, file: Path | None = None) -> None:
    """Print a warning for each entity name that can match no client: a pattern, a principal with its type,
    not an IP address.
    """
    for warning in unenforced(wanted.items(), file):
        print(f"sluice: warning: {warning}", file=sys.stderr)


async def _quotas_of(client: QuotaClient, entity: Entity) -> dict[str, float]:
    components: list[Component] = [
        (kind, DEFAULT_NAME if name is None else EXACT, name) for kind, name in parts_of(entity)
    ]
    found = await _all_quotas(client, components, strict=True)
    return dict(found.get(entity, {}))


async def _all_quotas(
    client: QuotaClient, components: Sequence[Component] = (), *, strict: bool = False
) -> Quotas:
    found = {}
    with _server_errors(client, "DescribeClientQuotas"):
        try:
            described = await client.describe([*components, (EVERYTHING, ANY, None)], strict=strict)
        except RefusedError:  # brokers, and Sluice before 0.2, know no such component
            described = await client.describe(components, strict=strict)
    for parts, values in described:
        entity = entity_of_parts(parts)
        if entity is None:
            print(f"sluice: left out: {_entity_text(parts)}", file=sys.stderr)
        else:
            found[entity] = values
    return found


def _components(options: argparse.Namespace) -> list[Component]:
    _refuse_combined(options)
    found: list[Component] = []
    for kind, name in zip(PARTS, _names(options), strict=True):
        if name == DEFAULT.value:
            found.append((kind, DEFAULT_NAME, None))
        elif name is not None:
            text = _when(name) if kind == WHEN and name != "*" else name
            found.append((kind, ANY, None) if name == "*" else (kind, EXACT, text))
    return found


def _entity(options: argparse.Namespace) -> Entity:
    names = zip(PARTS, _names(options), strict=True)
    parts = [(part, None if name == DEFAULT.value else name) for part, name in names if name is not None]
    entity = entity_of_parts(parts) or Entity()
    _refuse_combined(options)
    if entity.when is not None:
        entity = entity._replace(when=_when(entity.when))
    try:
        check_entity(entity, "")
    except DefinitionError as error:
        text = "name an entity: --user, --client-id (or both), --ip, --topic, --group, or --capacity"
        raise UsageError(error.problem if any(entity[:-1]) else text) from None
    return entity


def _when(text: str) -> str:
    """Return the one spelling of the times of `--when`."""
    try:
        return str(times.parse(text, "--when"))
    except DefinitionError as error:
        raise UsageError(f"{error.path}: {error.problem}") from None


def _refuse_combined(options: argparse.Namespace) -> None:
    """Check that an option that must stand alone (`_NOT_COMBINED`) is the only one that names an entity.

    Raises:
        UsageError: the options exclude each other; the message says why.
    """
    given = [f"--{kind}" for kind, name in zip(PARTS, _names(options), strict=True) if name is not None]
    for option, why in _NOT_COMBINED.items():
        if option in given and len(given) > 1:
            others = " and ".join(other for other in given if other != option)
            raise UsageError(f"{option} cannot be combined with {others}: {why}")


def _names(options: argparse.Namespace) -> tuple[str | None, ...]:
    """Return the options' names of the entity's parts, in the order of PARTS; None for each that is not given."""
    return tuple(getattr(options, part.replace("-", "_")) for part in PARTS)


def _read(options: argparse.Namespace) -> tuple[Quotas, str]:
    """Return the quotas of the file, and its format."""
    text = sys.stdin.read() if str(options.file) == "-" else read_text(options.file)
    form = options.file_format or guess(options.file.name, text)
    try:
        return read(text, form), form
    except ConfigError as error:
        raise ConfigError(f"{options.file}: {error.path}", error.problem) from None


def _entity_text(parts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else repr(name)}" for kind, name in parts)


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    work: Work,
    text: str,
    *,
    entity: bool = False,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
    parser.set_defaults(command=run, work=work)
    add_brokers(parser, "Sluice, or brokers")
    if entity:
        for part in PARTS:
            text = _OWN_PARTS.get(part) or (_FILTER_PART if name == "show" else _ENTITY_PART).format(
                part=part
            )
            parser.add_argument(f"--{part}", metavar="NAME", help=text)
    if name == "export":
        parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=_FORMATS_TEXT)
        add_old_json(parser)
    elif name in ("apply", "diff"):
        _add_formats(parser)
    else:
        add_format(parser, json_was=True)
    return parser


def _add_formats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        action=_OutputFormat,
        choices=(*OUTPUT_FORMATS, *_FILE_ONLY),
        metavar=f"{{{','.join(OUTPUT_FORMATS)}}}",
        default=OUTPUT_FORMATS[0],
        help="format of the output",
    )
    add_old_json(parser)
    parser.add_argument(
        "--file-format",
        choices=FORMATS,
        help=f"{_FORMATS_TEXT} (default: by the name of FILE, or its content)",
    )


class _OutputFormat(argparse.Action):
    """`--format`, the format of the output; a file format given here, as in earlier releases, is `--file-format`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Store the output format; a file format is stored as `--file-format`, with a warning."""
        if values in _FILE_ONLY:
            warn_old_spelling(parser.prog, f"{option_string} {values}", f"--file-format {values}")
            namespace.file_format = values
        else:
            namespace.format = values


# ----------------------------------------------------------------------------------------------------
# `sluice quotas explain`: which entities could limit a client, which one does, and why (Kafka's precedence).


def document(quotas: Mapping[Entity, Mapping[str, float]], user: str, client_id: str) -> dict[str, Any]:
    """Return the document of `sluice quotas explain`: which entities' limits may apply to a client, and which does.

    By quota key it lists entities, the one with the highest precedence first.
    """
    known = {
        entity: {key: value for key, value in values.items() if key in keys_of(entity)}
        for entity, values in quotas.items()
    }
    definitions = Definitions(known)
    definitions.elapse(datetime.now(UTC))
    return {
        "user": user,
        "client_id": client_id,
        "keys": {key: list(_entities(definitions, key, user, client_id)) for key in CLIENT_KEYS},
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document of `sluice quotas explain` as lines for people."""
    for key, entities in found["keys"].items():
        applying = next((entity for entity in entities if entity["applies"]), None)
        if applying is None:
            yield f"{key}: unlimited; none of {len(entities)} entities has a limit"
            continue
        value = applying["value"]
        yield f"{key}: {'nothing is promised' if value is None else render_value(key, value)}"
        for entity in entities:
            if entity["applies"] and entity["value"] is None:
                why = "applies: it has a ceiling or is exempt, and no limit"
            elif entity["applies"]:
                why = "applies: the highest precedence of those that have a limit"
            elif entity["value"] is None:
                why = "has no limit"
            else:
                why = "has a lower precedence"
            value = "–" if entity["value"] is None else render_value(key, entity["value"])
            yield f"  {entity['precedence']}  {entity['entity']}: {value}  {why}"


def _entities(definitions: Definitions, key: str, user: str, client_id: str) -> Iterator[Mapping[str, Any]]:
    open_to = True  # none of those before decides
    for precedence, found in enumerate(candidates(definitions, key, user, client_id), start=1):
        yield {
            "precedence": precedence,
            "entity": text_of(found.entity),
            "value": found.value,
            "applies": open_to and found.decides,
        }
        open_to = open_to and not found.decides
