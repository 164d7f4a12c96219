"""quotas.definitions.toml_file: text in, definitions out, and back."""

import time
import tomllib

import pytest

from quotas.definitions.definitions import StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity, code
from quotas.definitions.toml_file import (
    Document,
    blocks,
    is_preamble,
    loads,
    parse,
    parse_limit,
    shown,
    table,
)
from quotas.errors import DefinitionError, FormError, TomlError

TEXT = """
[[quota]]
client_id = "reports"
producer_byte_rate = 2_000_000
consumer_byte_rate = "4M"

[[quota]]
user = "<default>"
client_id = "<default>"
request_percentage = 12.3

[[quota]]
ip = "10.0.0.1"
connection_creation_rate = 10
"""


def test_tables_become_entities() -> None:
    assert dict(parse(TEXT).entries()) == {
        Entity(client_id="reports"): {"producer_byte_rate": 2e6, "consumer_byte_rate": 4e6},
        Entity(user=DEFAULT, client_id=DEFAULT): {"request_percentage": 12.3},
        Entity(ip="10.0.0.1"): {"connection_creation_rate": 10},
    }


def test_static_settings_lie_below_the_file() -> None:
    definitions = parse(TEXT, StaticQuotas(producer_default=7.0))
    assert definitions.limit("producer_byte_rate", "", "other")[0] == 7


def one(*lines: str) -> str:
    """A file of one table with these lines."""
    return "\n".join(["[[quota]]", *lines, ""])


ALONE = r"a quotas file has \[\[quota\]\], \[\[group\]\] and \[\[capacity\]\] tables alone"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[quota", "not TOML"),
        ("quotas = 1", r"^quotas: unknown key, value 1"),
        ('[[quotas]]\nuser = "a"\n', r"^quotas: unknown table; did you mean \[\[quota\]\]\?$"),
        (
            '[cluster]\npassword = "hidden"\n',
            rf"^cluster: {ALONE}; is this Sluice's configuration, .* takes\?$",
        ),
        ('[[listeners]]\nbind = "::"\n', rf"^listeners: {ALONE}"),
        ('[quotas]\nmode = "observe"\n', rf"^quotas: {ALONE}"),
        ("quota = 1", r"^quota: must be a list"),
        ("quota = [1]", r"^quota\[0\]: must be a table, not 1"),
        (one('client_id = "a"'), r"^quota\[0\]: client_id 'a' has no limit"),
        (one("producer_byte_rate = 1"), r"^quota\[0\]: names no user"),
        (one("client_id = 5"), r"^quota\[0\]\.client_id: must be a string, not 5"),
        (one('client_id = "a"', "producer_byte_rate = -1"), r"^quota\[0\]\.producer_byte_rate: .* -1"),
        (one('client_id = "a"', 'producer_byte_rate = "2 MB"'), r"^quota\[0\]\.producer_byte_rate: .*'2 MB'"),
        (one('client_id = "a"', "produce = 3"), r"^quota\[0\]\.produce: unknown key, value 3"),
        (one('ip = "a"', 'user = "b"', "connection_creation_rate = 3"), r"^quota\[0\]\.ip: .*combined"),
        (2 * one('user = "a"', "producer_byte_rate = 1"), r"^quota\[1\]: user 'a' is defined twice"),
    ],
)
def test_error_names_table_key_and_value(text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (10**400, "too large"),
        ("9" * 30, "'9{30}' is too large"),
        (2**63, "too large"),
        (1e300, "1e.300 is too large"),
        (float("inf"), "^x: must be a finite number, not inf"),
        ("2MiB", "^x: unknown unit 'MiB': .*, not '2MiB'"),
        (True, "^x: must be a number or a string .*, not True"),
    ],
)
def test_limit_that_is_no_amount_is_refused_with_its_value(written: object, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        parse_limit(written, "x")


A, B = Entity(client_id="a"), Entity("ann", DEFAULT)
FILE = """\
# Quotas of the shop; ask ops before you change them.

# Reports may be slow.
[[quota]]
client_id = "a"             # all of them
producer_byte_rate = "2M"   # OPS-12
# once more: "5M"
consumer_byte_rate = 4_000_000

# Ann.
[[quota]]
user = 'ann'
client_id = "<default>"
request_percentage = 12.5
"""


def document(text: str) -> Document:
    return Document.read(text.splitlines(keepends=True))[0]


def edited(text: str, *changes: tuple[Entity, dict[str, float]]) -> str:
    """The text after one edit, which must say what the changes say."""
    made = document(text)
    edit = made.edit(changes)
    new = "".join(made.text(edit))
    made.apply(edit)
    assert "".join(made.text({})) == new
    definitions = parse(new)
    for entity, values in changes:
        assert definitions.values(entity) == values
    return new


def test_reading_tells_every_entity_once() -> None:
    made, changed, gone = Document.read(FILE.splitlines(keepends=True))
    assert gone == []
    assert list(changed.entries()) == [
        (A, {"producer_byte_rate": 2e6, "consumer_byte_rate": 4e6}),
        (B, {"request_percentage": 12.5}),
    ]
    _, changed, gone = Document.read(FILE.splitlines(keepends=True), made)
    assert (len(changed), gone) == (0, [])


def test_reading_again_returns_differences() -> None:
    new = FILE.replace("12.5", "13.0") + '[[quota]]\nip = "::1"\nconnection_creation_rate = 5\n'
    new = new.replace('"a" ', '"c" ')
    _, changed, gone = Document.read(new.splitlines(keepends=True), document(FILE))
    assert gone == [code(*A)]
    assert list(changed.entries()) == [
        (Entity(client_id="c"), {"producer_byte_rate": 2e6, "consumer_byte_rate": 4e6}),
        (B, {"request_percentage": 13.0}),
        (Entity(ip="::1"), {"connection_creation_rate": 5}),
    ]


@pytest.mark.parametrize(
    ("limits", "old", "new"),
    [
        ({}, "", ""),
        ({"producer_byte_rate": 3e6}, '"2M"   # OPS-12', '"3M"   # OPS-12'),
        ({"controller_mutation_rate": 0.5}, "4_000_000\n", "4_000_000\ncontroller_mutation_rate = 0.5\n"),
    ],
    ids=["nothing", "a changed limit keeps its line and comment", "a new limit stands behind the last"],
)
def test_edit_leaves_the_rest_of_the_text(limits: dict[str, float], old: str, new: str) -> None:
    values = {"producer_byte_rate": 2e6, "consumer_byte_rate": 4e6, **limits}
    assert edited(FILE, (A, values)) == FILE.replace(old, new)


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ('"2M"', 2.5e6, '"2500k"'),
        ('"2M"', 4_194_304, '"4194304"'),
        ('"2Mi"', 4_194_304, '"4Mi"'),
        ("'2 Mi'", 2048, "'2Ki'"),
        ('"2M"', 2.0**62, f'"{2**62}"'),
        ("2_000_000", 4e6, "4000000"),
        ('"2000000"', 4e6, '"4000000"'),
        ('"1k"', 2000.5, "2000.5"),
    ],
)
def test_changed_limit_keeps_the_form_of_its_amount(before: str, value: float, after: str) -> None:
    key = "request_percentage" if value % 1 else "producer_byte_rate"
    text = f'[[quota]]\nclient_id = "a"\n{key} = {{}} # kept\n'
    assert edited(text.format(before), (A, {key: value})) == text.format(after)


def test_removed_limit_takes_its_line_only() -> None:
    new = edited(FILE, (A, {"consumer_byte_rate": 4e6}))
    assert new == FILE.replace('producer_byte_rate = "2M"   # OPS-12\n', "")


def test_removed_entity_leaves_the_comments_on_their_own_lines() -> None:
    before, behind = FILE[: FILE.index("[[quota]]")], FILE[FILE.index("[[quota]]\nuser") :]
    assert edited(FILE, (A, {})) == before + '# once more: "5M"\n\n# Ann.\n' + behind


def test_entity_that_comes_back_stands_where_its_comments_are() -> None:
    made = document(FILE)
    made.apply(made.edit([(A, {})]))
    made.apply(made.edit([(A, {"producer_byte_rate": 5})]))
    new = "".join(made.text({}))
    table = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 5\n'
    assert new.index(table) < new.index("[[quota]]\nuser")
    made.apply(made.edit([(A, {"producer_byte_rate": 6})]))
    assert "".join(made.text({})) == new.replace("= 5\n", "= 6\n")


def test_new_entity_is_the_last_table() -> None:
    ip = (Entity(ip=DEFAULT), {"connection_creation_rate": 2.0})
    assert edited(FILE, (Entity("bob"), {"producer_byte_rate": 1}), ip) == (
        FILE + '\n[[quota]]\nuser = "bob"\nproducer_byte_rate = 1\n\n'
        '[[quota]]\nip = "<default>"\nconnection_creation_rate = 2\n\n'
    )


@pytest.mark.parametrize(
    "text", ["", "# nothing yet", "# nothing yet\n", '[[quota]]\nuser = "b"\nproducer_byte_rate = 1']
)
def test_first_table_and_the_last_line_without_an_end(text: str) -> None:
    assert edited(text, (A, {"producer_byte_rate": 1})).startswith(text)


def test_last_line_without_an_end_takes_a_new_limit() -> None:
    text = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = 1'
    new = edited(text, (A, {"producer_byte_rate": 1, "consumer_byte_rate": 2}))
    assert new == text + "\nconsumer_byte_rate = 2\n"


def test_windows_lines_stay_windows_lines() -> None:
    text = FILE.replace("\n", "\r\n")
    bob = (Entity("bob"), {"producer_byte_rate": 1.0})
    new = edited(text, (A, {"producer_byte_rate": 1, "request_percentage": 2.0}), bob)
    assert new.count("\n") == new.count("\r\n")


@pytest.mark.parametrize(
    "table",
    [
        '"client_id" = "a"\n"producer_byte_rate" = 1\n',
        "client_id = 'a'\n'producer_byte_rate' = '1k'  # kept\n",
        'client_id = "a"\n"producer\\u005fbyte_rate" = 1\n',
        'client_id = """a"""\nproducer_byte_rate = 0x10\n',
        "producer_byte_rate = 1\nclient_id = '''\na'''\nconsumer_byte_rate = \"1\"\n",
    ],
)
def test_unusual_forms_are_edited_too(table: str) -> None:
    text = f"[[quota]]\n{table}\n# of ann\n[[quota]]\nuser = 'ann'\nproducer_byte_rate = 7\n"
    ann = (Entity("ann"), {"producer_byte_rate": 7.0})
    for values in ({"producer_byte_rate": 2.0}, {"controller_mutation_rate": 0.25}, {}):
        new = edited(text, (A, values), ann)
        assert "# of ann\n[[quota]]\nuser = 'ann'\n" in new


def test_discarded_edit_changes_no_line() -> None:
    made = document(FILE)
    made.edit([(A, {}), (Entity("bob"), {"producer_byte_rate": 1})])
    assert "".join(made.text({})) == FILE


def test_many_removed_tables_end_no_text_early() -> None:
    text = "".join(f'[[quota]]\nclient_id = "{n}"\nproducer_byte_rate = 1\n' for n in range(2500))
    made = document(text)
    edit = made.edit([(Entity(client_id=str(n)), {}) for n in range(2400)])
    assert len(parse("".join(made.text(edit)))) == 100


@pytest.mark.parametrize(
    "text",
    ["quota = []\n", 'quota = [{client_id = "a", producer_byte_rate = 1}]\n', "[[quota]]\n[other]\n", "x\n"],
)
def test_text_that_is_no_row_of_tables_is_not_read(text: str) -> None:
    with pytest.raises(FormError):
        document(text)


def test_entity_defined_twice_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"quota\[2\]: .* defined twice"):
        document(FILE + FILE[FILE.index("[[quota]]") : FILE.index("# Ann")])


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


TABLE = '[[quota]]\nclient_id = "a"\n'


def test_text_is_cut_before_every_table() -> None:
    text = f"# ours\n\n{TABLE}# of b\n  [[ quota ]] # b\nuser = 'b'\n"
    found = list(blocks(text.splitlines(keepends=True)))
    assert found == ["# ours\n\n", f"{TABLE}# of b\n", "  [[ quota ]] # b\nuser = 'b'\n"]


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


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        *((text, True) for text in ("", "\n", "# [[quota]]\n", "#\n  # two\n")),
        *((text, False) for text in ("a = 1\n", "[quota]\n", "quota = []\n", "nonsense\n", "# \x01\n")),
    ],
)
def test_comments_alone_may_stand_in_front(text: str, stands: bool) -> None:
    assert is_preamble(text) == stands


def test_comments_in_front_of_the_table_belong_to_it() -> None:
    assert table(f"# kept\n\n{TABLE}") == {"client_id": "a"}


def test_a_quotas_file_removes_nothing() -> None:
    with pytest.raises(DefinitionError, match=r"quota\[0\]\.remove: unknown key"):
        parse('[[quota]]\nclient_id = "old"\nremove = true\n')
