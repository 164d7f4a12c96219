"""`make reference`: what of the reference is generated, since nothing is to be said of it that the code does not say.

docs/command-options.md has every option of every command, from the parsers; docs/v1.schema.json is the JSON Schema of
the documents of `/v1`, from their structs. The tables of keys, metrics, fields and exit codes are written by hand, and
tests compare them with the code.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from commandline.arguments import commands
from offline.cli import parser as offline_parser
from proxy.cli import parser as proxy_parser
from proxy.events import Event, kinds
from proxy.explain import documents

DOCS: Final = Path(__file__).parents[2] / "docs"
PATHS: Final = {
    "/v1/clients": documents.ClientsDocument,
    "/v1/client": documents.ClientDocument,
    "/v1/rules": documents.RulesDocument,
    "/v1/capacities": documents.CapacitiesDocument,
    "/v1/fleet": documents.FleetDocument,
    "/v1/brokers": documents.BrokersDocument,
    "/v1/status": documents.StatusDocument,
    "/v1/events": documents.EventsDocument,
    "POST /v1/enforcement": documents.EnforcementDocument,
}
ERROR: Final = documents.Refused  # of a response with status 404 or 503
_REF: Final = "#/$defs/{name}"
_NOTE: Final = "Made by `make reference`."


def command_options() -> str:
    """Return docs/command-options.md."""
    lines = [
        "# Options of every command",
        "",
        f"<!-- {_NOTE} -->",
        "",
        "What each command does, its exit codes and output: [commands](commands.md). `--help` prints the same.",
    ]
    for parser in (proxy_parser(), offline_parser()):
        for command in commands(parser):
            lines += ["", f"## `{command.prog}`", "", _cell(command.description or "")]
            rows = list(_rows(command))
            if rows:
                lines += ["", "| argument | what |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _rows(command: argparse.ArgumentParser) -> Iterator[str]:
    formatter = command._get_formatter()
    for action in command._actions:
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        if isinstance(action, argparse._SubParsersAction):
            anchors = {name: one.prog.replace(" ", "-") for name, one in action.choices.items()}
            named = ", ".join(f"[`{name}`](#{anchor})" for name, anchor in anchors.items())
            yield f"| COMMAND | {named} |"
            continue
        required = " (required)" if action.required and action.option_strings else ""
        yield f"| {_written(action)} | {_cell(formatter._expand_help(action))}{required} |"


def _written(action: argparse.Action) -> str:
    """Return how an option or argument is typed."""
    value = action.metavar or (
        " or ".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return f"`{value}`"
    typed = [f"`{name}`" for name in action.option_strings]
    return ", ".join(typed) if action.nargs == 0 else f"{', '.join(typed)} {_cell(str(value))}"


def _cell(text: str) -> str:
    r"""Return a text for a table: what Markdown would take for markup is escaped, but in code.

    >>> print(_cell("<default> names `a_b` or a_b|c"))
    &lt;default> names `a_b` or a\_b\|c
    """
    parts = re.split("(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"([*|_\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "".join(parts)


def schema() -> str:
    """Return docs/v1.schema.json: the documents by path, and every struct that they consist of."""
    events = [one for one in vars(kinds).values() if isinstance(one, type) and issubclass(one, Event)]
    tagged = {str(one.__struct_config__.tag): one for one in events if one is not Event}
    found, definitions = msgspec.json.schema_components(
        [*PATHS.values(), ERROR, *tagged.values()], ref_template=_REF
    )
    named: dict[str, Any] = dict(zip([*PATHS, "error"], found, strict=False))
    by_kind = dict(zip(tagged, found[len(named) :], strict=True))
    named["fields of an event, by kind"] = {"type": "object", "properties": by_kind}
    content: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"{_NOTE} What the fields mean: api.md.",
        "title": "The documents of /v1, Sluice's admin port",
        "description": "`properties` has the document of each path, that of a response 404 or 503, and events.",
        "type": "object",
        "properties": named,
        "$defs": {name: _described(one) for name, one in sorted(definitions.items())},
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _described(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a struct's schema with the first sentence of its docstring alone: arguments are said in api.md."""
    text = definition.get("description", "").split("\n\n")[0]
    return {**definition, "description": " ".join(text.split())}


def generated() -> dict[Path, str]:
    """Return what each generated file has to contain."""
    return {DOCS / "command-options.md": command_options(), DOCS / "v1.schema.json": schema()}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
        print(f"docs/{path.name}")
