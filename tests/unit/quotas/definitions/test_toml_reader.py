"""TOML with bounds: text that tomllib cannot read, or values that cannot be used, are one error in one line."""

import time

import pytest

from quotas.definitions.toml_file import loads, shown
from quotas.errors import TomlError

MALFORMED = {
    "dotted": "a." * 4999 + "a = 1",
    "dotted header": "[" + "a." * 4999 + "a]",
    "dotted within": "x = { " + "a." * 4999 + "a = 1 }",
    "quoted parts": '"a".' * 4999 + "a = 1",
    "arrays": "a = " + "[" * 5000 + "]" * 5000,
    "tables": "a = " + "{a=" * 5000 + "1" + "}" * 5000,
    "digits": "a = " + "1" * 5000,
    "hex digits": "a = 0x" + "f" * 5000,
    "65 bits": "a = 9223372036854775808",
    "nested": "a" + ".a" * 40 + " = 1",
    "nested arrays": "a = " + "[" * 33 + "]" * 33,
    "date": "a = 2026-13-45",
    "no value": "a = ",
    "null": "a\0 = 1",
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_text_that_can_not_be_read_is_one_error_of_bounded_length(kind: str) -> None:
    with pytest.raises(TomlError) as caught:
        loads(MALFORMED[kind])
    assert len(str(caught.value)) <= 200
    assert "\n" not in str(caught.value)


def test_text_of_a_megabyte_of_dots_is_refused_at_once() -> None:
    began = time.process_time()
    with pytest.raises(TomlError, match="line 2 has a key of more than 256 parts"):
        loads("# a comment\n" + "a." * 500_000 + "a = 1")
    assert time.process_time() - began < 1.0  # tomllib itself would take hours


@pytest.mark.parametrize(
    "text",
    [
        "a = '" + "." * 5000 + "'",
        'a = "' + '.\\".' * 2000 + '"',
        "# " + "." * 5000 + "\na = 1",
        "a = [" + "0.5, " * 200 + "]",
        "a" + ".a" * 30 + " = 1",
        "a = -9223372036854775808",
    ],
)
def test_text_within_the_bounds_is_read(text: str) -> None:
    assert list(loads(text)) == ["a"]


def test_parsed_values_can_be_shown() -> None:
    assert shown(loads("a" + ".b" * 30 + " = 1")).startswith("{'a': {'b': {")
