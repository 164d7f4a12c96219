"""quotas.definitions.toml_file: how a file is cut, and that a table read line by line is what TOML's own reader
says.
"""

import tomllib

import pytest

from quotas.definitions.toml_file import blocks, is_preamble, table

TABLE = '[[quota]]\nclient_id = "a"\n'


def test_text_is_cut_before_every_table() -> None:
    text = f"# ours\n\n{TABLE}# of b\n  [[ quota ]] # b\nuser = 'b'\n"
    found = list(blocks(text.splitlines(keepends=True)))
    assert found == ["# ours\n\n", f"{TABLE}# of b\n", "  [[ quota ]] # b\nuser = 'b'\n"]


@pytest.mark.parametrize("text", ["", "\n", "# [[quota]]\n", "#\n  # two\n"])
def test_comments_may_stand_in_front(text: str) -> None:
    assert is_preamble(text)


@pytest.mark.parametrize("text", ["a = 1\n", "[quota]\n", "quota = []\n", "nonsense\n", "# \x01\n"])
def test_nothing_else_may_stand_in_front(text: str) -> None:
    assert not is_preamble(text)


@pytest.mark.parametrize(
    "lines",
    [
        'client_id = "a"\nproducer_byte_rate = 1000\n',
        'client_id="a"   # a comment\n\n# and one more\nrequest_percentage = 12.5\r\n',
        'user = "ü €"\nclient_id = "<default>"\nproducer_byte_rate = "2M"',
        "user = 'literal'\nproducer_byte_rate = 1_000\n",
        'user = "es\\"cape\\u0041"\nproducer_byte_rate = 0x10\n',
        '"client_id" = "a"\nproducer_byte_rate = 1e6\n',
        "user = '''\nof\nlines'''\nproducer_byte_rate = 0\n",
        "client_id = 5\n",
        "nested.key = 5\n",
        "",
    ],
)
def test_table_is_read_as_tomllib_reads_it(lines: str) -> None:
    block = f"[[quota]]\n{lines}"
    assert table(block) == tomllib.loads(block)["quota"][0]


@pytest.mark.parametrize(
    "block",
    [
        "",
        "# nothing\n",
        "client_id = 'a'\n",
        'client_id = "a"\n[[quota]]\n',
        '[[quota]]\nclient_id = "a"\nclient_id = "b"\n',
        '[[quota]]\n[["quota"]]\n',
        "[[quota]]\n[other]\n",
        "[[quota]]\nclient_id\n",
        '[[quota]]\nclient_id = """\n',
        "[[quota]]\nproducer_byte_rate = 01\n",
        "[[quota]]\n# \x01\n",
        f"[[quota]]\nproducer_byte_rate = {'9' * 5000}\n",
    ],
)
def test_text_that_is_not_one_table_is_not_read(block: str) -> None:
    assert table(block) is None


def test_comments_in_front_of_the_table_belong_to_it() -> None:
    assert table(f"# kept\n\n{TABLE}") == {"client_id": "a"}
