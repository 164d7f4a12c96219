"""The quotas of a topic on disk: with them a process starts while Kafka is away (`[state] directory`).

    {"v":1,"topic":"__sluice-quotas","topic_id":"…","offset":1234,"signed":true}   what follows, and where it was read
    [[["user","ann"]],{"producer_byte_rate":2000000.0}]                 a line for each entity
    {"entities":1,"sha256":"…"}                                         of all lines before

Replaced whole and atomically. A file that is damaged, cut, or of another topic is not used. All of it blocks.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.system.files import open_text
from quotas.definitions.alterations import entity_of_parts, parts_of
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from quotas.errors import DefinitionError

NAME: Final = "quotas-of-topic.json"
_VERSION: Final = 1
_BYTES_MAX: Final = 1024**3  # a million entities are about 100 MB
_MODE: Final = 0o600


class SnapshotError(Exception):
    """The file cannot be used; the text says why."""


class Place(NamedTuple):
    """The position of a snapshot: the topic, its id in hexadecimal digits, and the next offset.

    Attributes:
        signed: whether the topic's records were signed: then it never has valid unsigned ones again.
    """

    topic: str
    topic_id: str
    offset: int
    signed: bool = False


class Snapshot:
    """One file.

    Args:
        directory: its directory, which is created.
        pace: iterates with pauses.
    """

    def __init__(self, directory: Path, pace: Callable[[Iterable[Any]], Iterator[Any]]) -> None:
        self.path: Final = directory / NAME
        self._pace = pace

    def write(self, place: Place, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Replace the file.

        Raises:
            OSError: it cannot be written; the old one is there.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        with suppress(FileNotFoundError):
            temporary.unlink()  # whatever it is: opening a FIFO would wait for a reader
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for line in _lines(place, self._pace(entries)):
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise

    def read(self, topic: str) -> tuple[Place, Definitions] | None:
        """Return what was last written for this topic; None if there is no file.

        Raises:
            SnapshotError: it cannot be used.
        """
        try:
            with open_text(self.path, _BYTES_MAX) as file:
                return _read(self._pace(file), topic)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, DefinitionError) as error:
            raise SnapshotError(f"{self.path}: {error}") from None
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise SnapshotError(f"{self.path}: is damaged: {error}") from None


def _lines(place: Place, entries: Iterable[tuple[Entity, Mapping[str, float]]]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    line = _json({"v": _VERSION, **place._asdict()})
    digest.update(line)
    yield line
    count = 0
    for entity, values in entries:
        line = _json([parts_of(entity), values])
        digest.update(line)
        count += 1
        yield line
    yield _json({"entities": count, "sha256": digest.hexdigest()})


def _read(lines: Iterator[str], topic: str) -> tuple[Place, Definitions]:
    digest = hashlib.sha256()
    first = next(lines, "")
    digest.update(first.encode())
    head = json.loads(first)
    if head["v"] != _VERSION:
        raise SnapshotError(f"it has version {head['v']!r}, which is unknown to this Sluice")
    place = Place(str(head["topic"]), str(head["topic_id"]), int(head["offset"]), head.get("signed") is True)
    if place.topic != topic:
        raise SnapshotError(f"it is of topic {place.topic}, not {topic}")
    found = Definitions()
    last = ""
    for line in lines:
        if last:
            digest.update(last.encode())
            parts, values = json.loads(last)
            entity = entity_of_parts([tuple(part) for part in parts])
            if entity is None:
                raise ValueError("an unknown entity")
            found.put(entity, values)
        last = line
    tail = json.loads(last)
    if tail != {"entities": len(found), "sha256": digest.hexdigest()}:
        raise ValueError("its checksum differs")
    return place, found


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
