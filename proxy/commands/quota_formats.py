"""Quotas as text: the quotas file's TOML, JSON, and jikkou's `KafkaClientQuota` YAML, each read and written.

jikkou's resources (its documentation, "Kafka Quotas", apiVersion kafka.jikkou.io/v1beta2; its examples also have v1)
are one document each, or a `KafkaClientQuotaList`. They support six of Kafka's eight levels, no ips or topics, and
three keys; `jikkou_omits` names the rest, and `replaceable` keeps it. YAML needs the extra `operator`.

A file of changes, as `sluice-offline compare` writes it, may also remove an entity: a `[[quota]]` table with
`remove = true` in place of limits is read as the entity without limits.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from commandline.arguments import not_installed
from proxy.system.errors import ConfigError, SluiceError
from quotas.definitions.alterations import Quotas, entity_of_parts
from quotas.definitions.definitions import Definitions, check_ceilings
from quotas.definitions.entities import DEFAULT, Entity, Name
from quotas.definitions.toml_file import parse, parse_value, render
from quotas.errors import DefinitionError

FORMATS: Final = ("toml", "json", "jikkou")
_SUFFIXES: Final = {"toml": (".toml",), "json": (".json",), "jikkou": (".yaml", ".yml")}
_BEGIN_CHARACTERS: Final = 1000
_API_GROUP: Final = "kafka.jikkou.io/"
_API_VERSION: Final = "kafka.jikkou.io/v1beta2"
_KEYS: Final = {
    "producerByteRate": "producer_byte_rate",
    "consumerByteRate": "consumer_byte_rate",
    "requestPercentage": "request_percentage",
}
_JIKKOU_KEYS: Final = {key: name for name, key in _KEYS.items()}
# Type: what stands for the user and for the client id; "" is the entity's own name.
_TYPES: Final[dict[str, tuple[Name, Name]]] = {
    "USERS_DEFAULT": (DEFAULT, None),
    "USER": ("", None),
    "USER_CLIENT": ("", ""),
    "USER_ALL_CLIENTS": ("", DEFAULT),
    "CLIENT": (None, ""),
    "CLIENTS_DEFAULT": (None, DEFAULT),
}


def read(text: str, form: str) -> Quotas:
    """Parse quotas from text; `form` is its format: "toml", "json" or "jikkou".

    Raises:
        ConfigError: the text or a quota is invalid.
        SluiceError: the parser of this format is not installed.
    """
    try:
        return _READERS[form](text)
    except DefinitionError as error:
        raise ConfigError(error.path or form, error.problem) from None


def guess(name: str, text: str) -> str:
    """Return a file's format by the suffix of its name, or else by its first characters.

    >>> guess("quotas.yaml", ""), guess("-", ' [{"user": "ann"}]'), guess("-", "[[quota]]")
    ('jikkou', 'json', 'toml')
    """
    for form, ends in _SUFFIXES.items():
        if name.endswith(ends):
            return form
    begin = "".join(text[:_BEGIN_CHARACTERS].split())
    if begin.startswith(("[{", "[]")):
        return "json"
    return "jikkou" if begin.startswith(("---", "apiVersion:")) else "toml"


def write(quotas: Quotas, form: str) -> str:
    """Format quotas as text for `read`; `jikkou_omits` lists what jikkou's format cannot express."""
    return _WRITERS[form](quotas)


def describe(entity: Entity) -> str:
    """Return an entity's description in one line.

    >>> describe(Entity("ann", DEFAULT))
    "user 'ann', client id <default>"
    """
    return ", ".join(
        f"{part.replace('_', ' ')} {name!r}"
        for part, name in zip(Entity._fields, entity, strict=True)
        if name is not None
    )


def as_table(entity: Entity) -> dict[str, str]:
    """Return an entity as a table of its parts, as `[[quota]]` in the quotas file has them.

    >>> as_table(Entity("ann", DEFAULT))
    {'user': 'ann', 'client_id': '<default>'}
    """
    return {
        part: DEFAULT.value if name is DEFAULT else str(name)
        for part, name in zip(Entity._fields, entity, strict=True)
        if name is not None
    }


def jikkou_omits(quotas: Quotas) -> Iterator[str]:
    """Yield a message for each entity and key that jikkou's format cannot express."""
    for entity, values in quotas.items():
        if _jikkou_type(entity) is None:
            yield f"{describe(entity)} is left out: jikkou has no such quota type"
        else:
            for key in values:
                if key not in _JIKKOU_KEYS:
                    yield f"{key} of {describe(entity)} is left out: jikkou has no such key"


def replaceable(current: Quotas, wanted: Quotas, form: str) -> Quotas:
    """Return what of the current quotas a file of this format replaces: what it cannot express stays as it is.

    That is only so of jikkou's format, in which an entity cannot say whether it has a ceiling.

    Args:
        wanted: the quotas of the file.
    """
    if form != "jikkou":
        return current
    return {
        entity: {
            key: value
            for key, value in values.items()
            if key in _JIKKOU_KEYS or key in wanted.get(entity, {})
        }
        for entity, values in current.items()
        if _jikkou_type(entity) is not None
    }


def _read_toml(text: str) -> Quotas:
    removed: list[Entity] = []
    definitions = parse(text, removed=removed)
    return {**dict(definitions.entries()), **{entity: {} for entity in removed}}


def _read_json(text: str) -> Quotas:
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise DefinitionError("", f"not JSON: {error}") from None
    if not isinstance(entries, list):
        raise DefinitionError("", "must be a list of objects")
    found = Definitions()
    for index, entry in enumerate(entries):
        path = f"[{index}]"
        values = entry.get("quotas") if isinstance(entry, dict) else None
        if not isinstance(values, dict) or not set(entry) <= {*Entity._fields, "quotas"}:
            raise DefinitionError(path, f"must be an object of {', '.join(Entity._fields)} and quotas")
        names = {part.replace("_", "-"): _name(entry.get(part), path) for part in Entity._fields}
        parts = [
            (part, None if name is DEFAULT else str(name)) for part, name in names.items() if name is not None
        ]
        _put(found, entity_of_parts(parts) or Entity(), values, path)
    return dict(found.entries())


def _write_json(quotas: Quotas) -> str:
    entries = [{**as_table(entity), "quotas": dict(values)} for entity, values in quotas.items()]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _read_jikkou(text: str) -> Quotas:
    yaml = _yaml()
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise DefinitionError("", f"not YAML: {error}") from None
    found = Definitions()
    for index, resource in enumerate(_resources(documents)):
        path = f"resource {index + 1}"
        spec = resource.get("spec")
        if not isinstance(spec, dict) or not isinstance(spec.get("type"), str) or spec["type"] not in _TYPES:
            raise DefinitionError(f"{path}: spec.type", f"must be one of {', '.join(_TYPES)}")
        named, configs = spec.get("entity") or {}, spec.get("configs") or {}
        if not isinstance(named, dict) or not isinstance(configs, dict):
            raise DefinitionError(f"{path}: spec", "entity and configs must be maps")
        user, client_id = _TYPES[spec["type"]]
        entity = Entity(
            _name(named.get("user"), path) if user == "" else user,
            _name(named.get("clientId"), path) if client_id == "" else client_id,
        )
        if (user == "" and entity.user is None) or (client_id == "" and entity.client_id is None):
            raise DefinitionError(
                f"{path}: spec.entity", f"does not name the whole entity of type {spec['type']}"
            )
        values = {_KEYS.get(str(key), str(key)): value for key, value in configs.items()}
        _put(found, entity, values, path)
    return dict(found.entries())


def _resources(documents: list[Any]) -> Iterator[dict[str, Any]]:
    for document in documents:
        kind = document.get("kind") if isinstance(document, dict) else None
        if not isinstance(document, dict) or not str(document.get("apiVersion")).startswith(_API_GROUP):
            raise DefinitionError("apiVersion", f"must be {_API_GROUP}…: not a jikkou resource for Kafka")
        if kind == "KafkaClientQuota":
            yield document
        elif kind == "KafkaClientQuotaList":
            yield from (item if isinstance(item, dict) else {} for item in document.get("items") or ())
        else:
            raise DefinitionError("kind", f"must be KafkaClientQuota or KafkaClientQuotaList, not {kind!r}")


def _write_jikkou(quotas: Quotas) -> str:
    documents = []
    for entity, values in quotas.items():
        kind = _jikkou_type(entity)
        configs = {_JIKKOU_KEYS[key]: value for key, value in values.items() if key in _JIKKOU_KEYS}
        if kind is None or not configs:
            continue
        named = {
            key: str(name)
            for key, name in (("user", entity.user), ("clientId", entity.client_id))
            if isinstance(name, str)
        }
        whole = {key: int(value) if value.is_integer() else value for key, value in configs.items()}
        documents.append(
            {
                "apiVersion": _API_VERSION,
                "kind": "KafkaClientQuota",
                "spec": {"type": kind, "entity": named, "configs": whole},
            }
        )
    text: str = _yaml().safe_dump_all(documents, sort_keys=False, allow_unicode=True, explicit_start=True)
    return text


def _jikkou_type(entity: Entity) -> str | None:
    if any(name is not None for name in entity[2:]):  # of all but user and client id
        return None
    form = tuple("" if isinstance(name, str) else name for name in entity[:2])
    return next((kind for kind, parts in _TYPES.items() if parts == form), None)


def _name(value: object, path: str) -> Name:
    if value is None or isinstance(value, str):
        return DEFAULT if value == DEFAULT.value else value
    raise DefinitionError(path, f"a name must be a string, not {value!r}")


def _put(found: Definitions, entity: Entity, values: Mapping[str, object], path: str) -> None:
    if entity in found:
        raise DefinitionError(path, f"{describe(entity)} is defined twice")
    limits = {key: parse_value(key, value, f"{path}.{key}") for key, value in values.items()}
    found.put(entity, limits, path)
    check_ceilings(limits, path)


def _yaml() -> ModuleType:
    try:
        import yaml  # an extra: the proxy itself needs no YAML
    except ImportError:
        raise SluiceError(f"jikkou's format is YAML: {not_installed('PyYAML', 'operator')}") from None
    return yaml


_READERS: Final[dict[str, Callable[[str], Quotas]]] = {
    "toml": _read_toml,
    "json": _read_json,
    "jikkou": _read_jikkou,
}
_WRITERS: Final[dict[str, Callable[[Quotas], str]]] = {
    "toml": lambda quotas: render(Definitions(quotas)),
    "json": _write_json,
    "jikkou": _write_jikkou,
}
