"""docs/configuration.md and sluice.example.toml against the code: every key and what is said of it."""

import re
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import FieldInfo, fields

from proxy.config import Address, Source, parse
from proxy.config.options import SECTIONS, ClusterOptions, ListenerOptions
from proxy.config.schema import Key, Options, is_table, keys_of
from quotas.definitions import times, toml_file, toml_groups
from quotas.definitions.amounts import write_bytes
from quotas.definitions.kinds import OWN_KEYS
from tests.support.configurations import parsed

ROOT = Path(__file__).parents[4]


def tables() -> dict[str, type[Options]]:
    """Every table that has rows of its own, in the order of the documentation."""
    first: dict[str, type[Options]] = {"cluster": SECTIONS["cluster"], "listeners[]": ListenerOptions}
    found: dict[str, type[Options]] = {}
    for section, options in {**first, **SECTIONS}.items():
        found[section] = options
        for name, key in keys_of(options).items():
            if (
                is_table(key.type) and key.type is not ClusterOptions
            ):  # [fleet.cluster] has the keys of [cluster]
                found[f"{section}.{name}"] = key.type
    return found


def keys() -> dict[str, tuple[FieldInfo, Key]]:
    found: dict[str, tuple[FieldInfo, Key]] = {}
    for section, options in tables().items():
        declared = keys_of(options)
        for field in fields(options):
            found[f"{section}.{field.name}"] = (field, declared[field.name])
    return found


def rows() -> dict[str, list[str]]:
    """The tables' rows: key path -> type, unit, default, example, applies, meaning."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            found[cells[0].strip("` ")] = cells[1:]
    return found


# Keys with a default of their own, which other keys or the table's place change: the document says how in words.
WORDED = {
    *("quotas.mode", "quotas.scope", "quotas.hold_seconds_max", "limits.kept_bytes_per_address_max"),
    *("listeners[].advertised_bootstrap_port", "listeners[].advertised_first_broker_port"),
}
KINDS = {bool: "true or false", int: "number", float: "number", Path: "path", Address: "host:port"}
PORT = keys_of(ListenerOptions)["bootstrap_port"].range
LITERAL = re.compile(r'`("[^"]*"|true|false|[\d.]+)`')


def written_default(field: FieldInfo, key: Key) -> str:
    """The default as the document writes it; "" where it says in words what an empty value stands for."""
    value = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f'`"{write_bytes(value)}"`' if key.unit.startswith("bytes") else f"`{value}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f'`"{value}"`' if value and isinstance(value, str | Address) else ""


def written_kind(key: Key) -> str:
    """How the document begins the type; "" where it has a word of its own."""
    if key.choices:
        *names, last = (f'"{name}"' for name in key.choices)
        return f"{', '.join(names)} or {last}"
    if key.range == PORT:
        return "port"
    return "table" if is_table(key.type) else KINDS.get(key.type, "")


def test_every_key_of_the_quotas_file_that_kafka_has_not_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    found = {
        (table, key)
        for table, keys in re.findall(
            r"^\| (group|capacity|quota): ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE
        )
        for key in re.findall(r"`(\w+)`", keys)
    }
    tables = {
        "group": toml_groups.FIELDS,
        "capacity": toml_file.CAPACITY_FIELDS,
        "quota": (*OWN_KEYS, *times.FIELDS),
    }
    assert found == {(table, key) for table, keys in tables.items() for key in keys}


def test_every_key_is_documented_and_no_other() -> None:
    assert list(rows()) == list(keys())


@pytest.mark.parametrize("path", list(keys()))
def test_row_agrees_with_the_code(path: str) -> None:
    field, key = keys()[path]
    kind, unit, default, _, applies, meaning = rows()[path]
    assert kind.startswith(written_kind(key))
    assert kind.endswith(', or "" for none') or key.words.get("", "") is not None
    assert unit == (key.unit or "–")
    expected = "" if path in WORDED else written_default(field, key)
    assert default
    assert default == expected or not (expected or LITERAL.fullmatch(default))
    assert applies == ("live" if key.live else "restart")
    assert meaning.endswith(".")


@pytest.mark.parametrize("path", list(keys()))
def test_example_is_taken(path: str) -> None:
    _, key = keys()[path]
    example = rows()[path][3].strip("`")
    key.read(path, tomllib.loads(f"example = {example}")["example"])


def test_everything_refused_is_listed() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").partition("## Refused")[2]
    assert "security_protocol" in text  # "and the like"


def test_example_file_is_taken_and_shows_every_key() -> None:
    text = (ROOT / "sluice.example.toml").read_text(encoding="utf-8")
    config = parsed(text, ROOT)
    assert config.warnings == ()
    for path, (_, key) in keys().items():
        name = path.rpartition(".")[2]
        head = rf"\[\w+\.{name}\]" if is_table(key.type) else f"{name} = "
        assert re.search(rf"^(# )?{head}", text, re.MULTILINE), path


def test_example_file_with_every_comment_taken_away_is_taken() -> None:
    text = (ROOT / "sluice.example.toml").read_text(encoding="utf-8")
    opened = re.sub(r"^# (\w+ = |\[)", r"\1", text, flags=re.MULTILINE)
    config = parsed(opened, ROOT)
    assert config.quotas.file == ROOT / "quotas.toml"
    assert config.listeners[0].sidecar
    assert config.listeners[0].tls is not None
    assert config.cluster.tls is not None


def test_example_file_shows_the_defaults() -> None:
    tables = tomllib.loads((ROOT / "sluice.example.toml").read_text(encoding="utf-8"))
    found = parse(tables, Source(), ROOT)
    bare = {"cluster": tables["cluster"], "listeners": [{}]}
    assert found == parse(bare, Source(), ROOT)
