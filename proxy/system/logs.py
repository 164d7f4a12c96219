"""Structured logs on standard error: one line for each event, as text (`key=value`) or JSON.

It uses the standard library's logging. `event` logs a constant message with fields. A peer chooses client ids and host
names, so every value is bounded and escaped so that it cannot begin a new line; and each message has a budget of lines
per second, so that a peer that fails a thousand times a second cannot fill a disk. Nothing is logged per frame.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

FIELD_CHARACTERS_MAX: Final = 1000
LINES_PER_SECOND_MAX: Final = 20  # of one message
MESSAGES_MAX: Final = 500  # distinct messages with a budget at a time
FIELDS: Final = "sluice_fields"
AUDIT: Final = "proxy.audit"  # the logger whose lines have no budget
RESERVED: Final = frozenset(("time", "level", "logger", "message", "exception", "suppressed"))
_PLAIN: Final = re.compile(r"[!#-<>-~]+", re.ASCII)  # printable, without space, quote and equals sign

_logger = logging.getLogger(__name__)

Field = str | int | float | bool | None


def event(logger: logging.Logger, level: int, message: str, **fields: Field) -> None:
    """Log one event. The message is constant; what varies is in the fields, whose names are not in RESERVED."""
    if logger.isEnabledFor(level):
        assert RESERVED.isdisjoint(fields), f"a field takes the name of a part of the line: {sorted(fields)}"
        logger.log(level, message, extra={FIELDS: fields})


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Write all logs to one stream, standard error by default.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        form: `text` or `json`.
        stream: another stream, for tests; None for standard error.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(Budget())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    sys.unraisablehook = _log_unraisable


def set_level(level: str) -> None:
    """Change the level of all logs; possible at any time."""
    logging.getLogger().setLevel(level.upper())


def _log_unraisable(found: "sys.UnraisableHookArgs") -> None:
    """Log an exception that has no caller to be raised to as one line, without its traceback: a peer may cause many.

    Python's ssl has one for each hello whose name is not ASCII.
    """
    kind, error = found.exc_type.__name__, str(found.exc_value)
    event(
        _logger,
        logging.WARNING,
        "exception without a caller",
        error=f"{kind}: {error}",
        place=repr(found.object),
    )


class TextFormatter(logging.Formatter):
    """Formats an event as one line of text.

    As in `2026-01-31T12:00:00.000Z INFO proxy.control.reload configuration reloaded keys=quotas.mode`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of text."""
        parts = [_time(record), record.levelname, record.name, _one_line(record.getMessage())]
        parts += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        if record.exc_info and record.exc_info[0] is not None:
            parts.append(f"exception={json.dumps(self.formatException(record.exc_info))}")
        return " ".join(parts)


class JsonFormatter(logging.Formatter):
    """Formats an event as one JSON object in a line: time, level, logger, message, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Field] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:FIELD_CHARACTERS_MAX],
        }
        line.update(_fields(record))
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Budget(logging.Filter):
    """Limits how many lines of the same message are logged per second.

    The next line of that message has the number of those left out, in the field `suppressed`. Tracebacks and the audit
    log are never left out. The time is that of the log records.
    """

    def __init__(self, lines_per_second_max: int = LINES_PER_SECOND_MAX) -> None:
        super().__init__()
        self._lines_max = lines_per_second_max
        self._seen: dict[tuple[str, str], list[int]] = {}  # message -> second, lines in it, lines left out

    def filter(self, record: logging.LogRecord) -> bool:
        """Count a log record; return whether to write it."""
        if record.exc_info or record.name == AUDIT:
            return True
        name, second = (record.name, str(record.msg)), int(record.created)
        spent = self._seen.get(name)
        if spent is None:
            if len(self._seen) >= MESSAGES_MAX:
                self._seen.clear()
            self._seen[name] = [second, 1, 0]
            return True
        if spent[0] != second:
            left_out = spent[2]
            spent[:] = [second, 1, 0]
            if left_out:
                setattr(record, FIELDS, {**_fields(record), "suppressed": left_out})
            return True
        spent[1] += 1
        if spent[1] <= self._lines_max:
            return True
        spent[2] += 1
        return False


def _fields(record: logging.LogRecord) -> dict[str, Field]:
    found = getattr(record, FIELDS, None)
    if not isinstance(found, dict):
        return {}
    return {
        name: value[:FIELD_CHARACTERS_MAX] if isinstance(value, str) else value
        for name, value in found.items()
    }


def _time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _one_line(message: str) -> str:
    bounded = message[:FIELD_CHARACTERS_MAX]
    return bounded if bounded.isprintable() else json.dumps(bounded)


def _quoted(value: Field) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
