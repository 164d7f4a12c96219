"""Structured log lines: their form, what a peer cannot do to them, and their budget."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from proxy.system import logs
from proxy.system.logs import Budget, JsonFormatter, TextFormatter


def record(
    message: str = "it happened", created: float = 1_700_000_000.25, **fields: logs.Field
) -> logging.LogRecord:
    made = logging.LogRecord("proxy.test", logging.INFO, "file", 1, message, (), None)
    made.created = created
    made.msecs = created % 1 * 1000
    setattr(made, logs.FIELDS, fields)
    return made


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Give the root logger, and put it back as it was."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_text_line() -> None:
    line = TextFormatter().format(record(port=9092, host="kafka-1", ok=True, none=None, rate=0.5))
    assert line == (
        "2023-11-14T22:13:20.250Z INFO proxy.test it happened port=9092 host=kafka-1 ok=true none=null rate=0.5"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a b", '"a b"'),
        ("", '""'),
        ('q"', r'"q\""'),
        ("a=b", '"a=b"'),
        ("x\n2023 ERROR proxy fake", r'"x\n2023 ERROR proxy fake"'),
        ("\u2028", r'"\u2028"'),
        ("\x1b[31m", r'"\u001b[31m"'),
    ],
)
def test_value_from_a_peer_cannot_begin_a_log_line(value: str, written: str) -> None:
    assert TextFormatter().format(record(client_id=value)).endswith(f" client_id={written}")
    assert json.loads(JsonFormatter().format(record(client_id=value)))["client_id"] == value
    assert "\n" not in JsonFormatter().format(record(client_id=value))


def test_message_cannot_begin_a_log_line() -> None:
    assert TextFormatter().format(record("a\nb")).endswith(r' "a\nb"')


def test_values_are_bounded() -> None:
    assert len(TextFormatter().format(record("m" * 5000, a="x" * 5000))) < 2100
    assert len(JsonFormatter().format(record("m" * 5000, a="x" * 5000))) < 2200


def test_json_line() -> None:
    assert json.loads(JsonFormatter().format(record(port=9092))) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "proxy.test",
        "message": "it happened",
        "port": 9092,
    }


def test_exception_stays_in_its_line() -> None:
    made = record()
    try:
        raise ValueError("boom")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    text = TextFormatter().format(made)
    assert "ValueError: boom" in text
    assert "\n" not in text
    assert "ValueError: boom" in json.loads(JsonFormatter().format(made))["exception"]


@pytest.mark.parametrize(("form", "begins"), [("text", "20"), ("json", '{"time"')])
def test_set_up_sends_everything_to_one_stream(root: logging.Logger, form: str, begins: str) -> None:
    stream = io.StringIO()
    logs.set_up("warning", form, stream)
    logger = logging.getLogger("proxy.test.set_up")
    logs.event(logger, logging.WARNING, "seen", n=1)
    logs.event(logger, logging.INFO, "not seen")
    logs.set_level("info")
    logs.event(logger, logging.INFO, "seen now")
    logger.info("without %s", "fields")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.startswith(begins) for line in lines)
    assert len(root.handlers) == 1


def test_field_may_not_hide_a_part_of_the_line(root: logging.Logger) -> None:
    root.setLevel("INFO")
    with pytest.raises(AssertionError, match="takes the name of a part of the line"):
        logs.event(logging.getLogger("proxy.test"), logging.INFO, "m", time=1)


def test_budget_leaves_out_and_tells_how_many() -> None:
    budget = Budget(lines_per_second_max=2)
    passed = [budget.filter(record(created=100.0 + n / 10)) for n in range(5)]
    assert passed == [True, True, False, False, False]
    assert budget.filter(record("another", created=100.6))
    later = record(created=101.0, cause="x")
    assert budget.filter(later)
    assert TextFormatter().format(later).endswith("cause=x suppressed=3")
    last = record(created=102.0)
    assert budget.filter(last)
    assert "suppressed" not in TextFormatter().format(last)


def test_budget_never_leaves_out_a_traceback_or_the_audit_log() -> None:
    budget = Budget(lines_per_second_max=1)
    broken, audited = record(), record()
    broken.exc_info = (ValueError, ValueError("x"), None)
    audited.name = logs.AUDIT
    assert all(budget.filter(made) for made in (record(), *[broken] * 5, *[audited] * 50))


def test_budget_remembers_a_bounded_number_of_messages() -> None:
    budget = Budget(lines_per_second_max=1)
    assert [budget.filter(record("message 0")) for _ in range(2)] == [True, False]
    for index in range(1, logs.MESSAGES_MAX + 1):
        assert budget.filter(record(f"message {index}"))
    assert budget.filter(record("message 0")), "its count was forgotten for the others"


def test_clock_that_is_set_back_holds_no_lines_back() -> None:
    budget = Budget(1)
    passed = [budget.filter(record(created=created)) for created in (1000.0, 1000.5, 500.0, 500.5, 501.0)]
    assert passed == [True, False, True, False, True]


class Dropped:
    """Raises an exception that has no caller."""

    def __del__(self) -> None:
        raise ValueError("boom\nand more")


def test_exception_without_a_caller_is_one_line(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.set_up("info", "json", stream)
    Dropped()
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["message"], line["error"]) == ("exception without a caller", "ValueError: boom\nand more")
    assert "Dropped" in line["place"]
    assert "exception" not in line  # no traceback: a peer may cause many
