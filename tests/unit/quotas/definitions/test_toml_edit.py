"""quotas.definitions.toml_file: what an alteration does to a text, and what it leaves alone."""

import pytest

from quotas.definitions.entities import DEFAULT, Entity, code
from quotas.definitions.toml_file import Document, parse
from quotas.errors import DefinitionError, FormError

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


def test_text_without_changes_is_the_same() -> None:
    assert edited(FILE) == FILE


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


def test_changed_limit_keeps_its_line_and_comment() -> None:
    new = edited(FILE, (A, {"producer_byte_rate": 3e6, "consumer_byte_rate": 4e6}))
    assert new == FILE.replace('"2M"   # OPS-12', '"3M"   # OPS-12')


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
    ],
)
def test_changed_limit_keeps_the_form_of_its_amount(before: str, value: float, after: str) -> None:
    text = '[[quota]]\nclient_id = "a"\nproducer_byte_rate = {} # kept\n'
    assert edited(text.format(before), (Entity(client_id="a"), {"producer_byte_rate": value})) == text.format(
        after
    )


def test_changed_percentage_is_a_number() -> None:
    text = '[[quota]]\nclient_id = "a"\nrequest_percentage = {}\n'
    assert edited(
        text.format('"1k"'), (Entity(client_id="a"), {"request_percentage": 2000.5})
    ) == text.format("2000.5")


def test_new_limit_stands_behind_the_last() -> None:
    values = {"producer_byte_rate": 2e6, "consumer_byte_rate": 4e6, "controller_mutation_rate": 0.5}
    new = edited(FILE, (A, values))
    assert new == FILE.replace("4_000_000\n", "4_000_000\ncontroller_mutation_rate = 0.5\n")


def test_removed_limit_takes_its_line_only() -> None:
    new = edited(FILE, (A, {"consumer_byte_rate": 4e6}))
    assert new == FILE.replace('producer_byte_rate = "2M"   # OPS-12\n', "")


def test_removed_entity_leaves_the_comments_on_their_own_lines() -> None:
    new = edited(FILE, (A, {}))
    assert new == (
        "# Quotas of the shop; ask ops before you change them.\n\n# Reports may be slow.\n"
        '# once more: "5M"\n\n# Ann.\n' + FILE[FILE.index("[[quota]]\nuser") :]
    )


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
    new = edited(
        FILE,
        (Entity("bob"), {"producer_byte_rate": 1}),
        (Entity(ip=DEFAULT), {"connection_creation_rate": 2}),
    )
    assert new == (
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
    new = edited(
        text,
        (A, {"producer_byte_rate": 1, "request_percentage": 2.0}),
        (Entity("bob"), {"producer_byte_rate": 1}),
    )
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


def test_definition_that_cannot_be_names_its_table() -> None:
    with pytest.raises(DefinitionError, match=r"quota\[1\]\.producer_byte_rate: must be greater than 0"):
        document(
            '[[quota]]\nuser = "b"\nproducer_byte_rate = 1\n[[quota]]\nuser = "a"\nproducer_byte_rate = 0\n'
        )


def test_entity_defined_twice_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"quota\[2\]: .* defined twice"):
        document(FILE + FILE[FILE.index("[[quota]]") : FILE.index("# Ann")])
