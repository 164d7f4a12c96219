"""Kafka's message definitions, out of the jar of its clients, and messages written after them.

Independent of `protocol`: what our own layouts are compared with, and frames of every API and version.
"""

import json
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

Definition = dict[str, Any]

LIBS: Final = Path(__file__).parents[1] / "cluster" / "libs"
KINDS: Final = {
    "bool": "b", "int8": "b", "int16": "h", "uint16": "h", "int32": "i", "int64": "l", "float64": "l",
    "uuid": "u", "string": "s", "bytes": "B", "records": "B",
}  # fmt: skip
ENTITIES: Final = {"topicName": "t", "groupId": "g", "transactionalId": "x"}


@cache
def kafka() -> dict[tuple[int, str], Definition]:
    """The message definitions in the jar of Kafka's clients, by API key and type."""
    (jar,) = LIBS.glob("kafka-clients-*.jar")
    found = {}
    with zipfile.ZipFile(jar) as opened:
        for name in opened.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", opened.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                if definition["type"] in ("request", "response"):
                    found[definition["apiKey"], definition["type"]] = definition
    return found


needs_jar = pytest.mark.skipif(not list(LIBS.glob("kafka-clients-*.jar")), reason="Kafka's jars are not here")


def structures(definition: Definition) -> dict[str, list[Definition]]:
    return {entry["name"]: entry["fields"] for entry in definition.get("commonStructs", [])}


Chosen = Callable[[str, str], str]
"""Chooses a name: given its kind (a key of ENTITIES, or "resource") and the field's path."""


def in_range(versions: str, version: int) -> bool:
    """Whether a version is in a range as Kafka writes it: "3", "2-5", "1+" or "none"."""
    if versions == "none":
        return False
    first, _, last = versions.partition("-")
    if first.endswith("+"):
        return version >= int(first[:-1])
    return int(first) <= version <= int(last or first)


def versions_of(key: int) -> range:
    """The versions of an API that Kafka's definitions have."""
    first, _, last = str(kafka()[key, "request"]["validVersions"]).partition("-")
    return range(int(first), int(last or first) + 1)


def _no_error(_path: str) -> int:
    return 0


def body(
    key: int,
    kind: str,
    version: int,
    chosen: Chosen,
    error: Callable[[str], int] = _no_error,
    elements: int = 2,
) -> bytes:
    """The fields of a message: arrays of `elements`, with the names and error codes that are chosen."""
    definition = kafka()[key, kind]
    compact = in_range(definition["flexibleVersions"], version)
    writer = _Writer(version, compact, structures(definition), chosen, error, elements)
    return writer.structure(definition["fields"], "")


@dataclass
class _Writer:
    version: int
    compact: bool
    named: dict[str, list[Definition]]
    chosen: Chosen
    error: Callable[[str], int]
    elements: int

    def structure(self, fields: list[Definition], path: str) -> bytes:
        out = b""
        for field in fields:
            if in_range(field["versions"], self.version) and "tag" not in field:
                out += self.value(field, f"{path}/{field['name']}")
        return out + b"\0" * self.compact

    def value(self, field: Definition, path: str) -> bytes:
        base = field["type"].removeprefix("[]")
        if base == field["type"]:
            nullable = base not in KINDS and in_range(field.get("nullableVersions", "none"), self.version)
            return b"\1" * nullable + self.single(field, base, path)
        head = bytes((self.elements + 1,)) if self.compact else struct.pack(">i", self.elements)
        return head + b"".join(self.single(field, base, f"{path}/{at}") for at in range(self.elements))

    def single(self, field: Definition, base: str, path: str) -> bytes:
        if base not in KINDS:
            return self.structure(field.get("fields") or self.named[base], path)
        if base == "string":
            kind = "resource" if field["name"] == "ResourceName" else field.get("entityType", "")
            name = (self.chosen(kind, path) if kind in (*ENTITIES, "resource") else "text").encode()
            return (bytes((len(name) + 1,)) if self.compact else struct.pack(">h", len(name))) + name
        if base in ("bytes", "records"):
            return b"\3xy" if self.compact else b"\0\0\0\2xy"
        code = self.error(path)
        number = {"ErrorCode": code, "PartitionErrorCode": code, "ResourceType": 2}
        if base == "uuid":
            return bytes(range(1, 17))
        size = {"b": 1, "h": 2, "i": 4, "l": 8}[KINDS[base]]
        return number.get(field["name"], 1).to_bytes(size, "big")
