"""quotas.definitions.toml_groups: the group's table, and edits that keep its form and its comments."""

import pytest

from quotas.definitions.entities import Entity
from quotas.definitions.toml_file import Document, parse, render
from quotas.definitions.toml_groups import Group, edited_group, groups_of, read_group, render_group
from quotas.errors import DefinitionError

TEXT = """\
# Ours.
[[group]] # the web team
name = "web"
client_ids = [
  "web-*",   # all of theirs
  "front",
]
users = ["svc"] # one

# behind
"""
BEFORE = Group("web", ("web-*", "front"), ("svc",))
JOINS = {"member": 1.0}


@pytest.mark.parametrize(
    ("after", "old", "new"),
    [
        (BEFORE._replace(users=("svc", "b")), '["svc"] # one', '["svc", "b"] # one'),
        (BEFORE._replace(client_ids=("web-*", "front", "x")), '  "front",\n', '  "front",\n  "x",\n'),
        (BEFORE._replace(client_ids=("front",)), '  "web-*",   # all of theirs\n', "  # all of theirs\n"),
        (BEFORE._replace(client_ids=("web-*",)), '  "front",\n', ""),
        (BEFORE._replace(users=()), '["svc"] # one', "[] # one"),
        (BEFORE._replace(each=True), 'name = "web"\n', 'name = "web"\nbudget = "each"\n'),
    ],
)
def test_edit_changes_what_differs_alone(after: Group, old: str, new: str) -> None:
    assert old in TEXT
    assert edited_group(TEXT, BEFORE, after) == TEXT.replace(old, new)


def test_budget_that_is_written_is_replaced() -> None:
    text = '[[group]]\nname = "a"\nusers = ["u"]\nbudget = "each"  # for now\n'
    edited = edited_group(text, Group("a", (), ("u",), each=True), Group("a", (), ("u",)))
    assert edited == text.replace('"each"', '"together"')


def test_last_name_goes_with_the_comma_before_it() -> None:
    text = '[[group]]\nname = "a"\nusers = ["u", "v"]\n'
    assert edited_group(text, Group("a", (), ("u", "v")), Group("a", (), ("u",))) == text.replace(', "v"', "")


def test_concurrent_changes_of_members_both_stay_in_the_file() -> None:
    document, found, _ = Document.read(TEXT.splitlines(keepends=True))
    assert found == parse(TEXT)
    for entity, values in (
        (Entity("new", group="web"), JOINS),
        (Entity(client_id="front", group="web"), {}),
        (Entity(group="web"), {"each": 1.0, "producer_byte_rate": 5.0}),
    ):
        document.apply(document.edit([(entity, values)]))
    text = "".join(document.text({}))
    assert (
        text
        == TEXT.replace('  "front",\n', "")
        .replace('["svc"]', '["svc", "new"]')
        .replace('name = "web"\n', 'name = "web"\nbudget = "each"\n')
        .rstrip("\n")
        + '\n\n[[quota]]\ngroup = "web"\nproducer_byte_rate = 5\n\n'
    )


def test_group_without_anything_goes_and_its_comments_stay() -> None:
    document, _, _ = Document.read(TEXT.splitlines(keepends=True))
    edit = document.edit([(entity, {}) for entity, _ in BEFORE.entries()])
    assert "".join(document.text(edit)).split() == ["#", "Ours.", "#", "behind"]


def test_budget_for_each_member_stays_without_members() -> None:
    text = '[[group]]\nname = "a"\nclient_ids = ["x"]\nbudget = "each"\n'
    document, found, _ = Document.read(text.splitlines(keepends=True))
    edit = document.edit([(Entity(client_id="x", group="a"), {})])
    found.put(Entity(client_id="x", group="a"), {})
    document.apply(edit)
    assert parse("".join(document.text(edit))) == parse(render(found)) == found


def test_form_that_is_not_known_is_written_anew() -> None:
    text = '[[group]]\nname = "a"\n"users" = ["u"]  # quoted\n'
    document, _, _ = Document.read(text.splitlines(keepends=True))
    edit = document.edit([(Entity("v", group="a"), JOINS)])
    assert parse("".join(document.text(edit))) == parse('[[group]]\nname = "a"\nusers = ["u", "v"]\n')


def test_table_says_what_its_entities_do() -> None:
    each = BEFORE._replace(each=True)
    for group in (BEFORE, each):
        assert groups_of(group.entries()) == {"web": group}
        assert parse(render_group(group)) == parse(render_group(groups_of(group.entries())["web"]))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"users": ["u"]}, r"^x\.name: must be the name of the group"),
        ({"name": "", "users": ["u"]}, r"^x\.name: must be the name of the group"),
        ({"name": "g"}, r"^x: group 'g' has no client_ids and no users"),
        ({"name": "g", "users": "u"}, r"^x\.users: must be a list of strings"),
        ({"name": "g", "users": [1]}, r"^x\.users: must be a list of strings"),
        ({"name": "g", "users": ["u", "v", "u"]}, r"^x\.users: names 'u' twice"),
        ({"name": "g", "users": ["u"], "budget": "both"}, r'^x\.budget: must be "together"'),
        ({"name": "g", "user": ["u"]}, r"^x\.user: unknown key; did you mean"),
    ],
)
def test_wrong_table_is_told(table: dict[str, object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        read_group(table, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (2 * '[[group]]\nname = "g"\nusers = ["u"]\n', r"^group\[1\]: group 'g' is defined twice"),
        (
            '[[group]]\nname = "g"\nusers = ["u*"]\n[[group]]\nname = "h"\nusers = ["ua"]\n',
            r"^group: 'u\*' of group 'g' and 'ua' of group 'h' name the same clients",
        ),
        (
            '[[group]]\nname = "g"\nclient_ids = ["a*b"]\n',
            r"^group\[0\]\.client_id: 'a\*b': \* may only stand",
        ),
        ('[[quota]]\ngroup = "g"\nuser = "u"\nweight = 1\n', r"^quota\[0\]\.group: 'g' cannot be combined"),
        ('[[quota]]\ngroup = "<default>"\nweight = 1\n', r"^quota\[0\]\.group: there is no default group"),
        ("[[capacity]]\nin = 5\n", r'^capacity\[0\]\.scope: must be "broker"'),
        ('[[capacity]]\nscope = "broker"\n', r"^capacity\[0\]: states no capacity"),
        ('[[capacity]]\nscope = "broker"\nup = 5\n', r"^capacity\[0\]\.up: unknown key"),
        (
            2 * '[[capacity]]\nscope = "broker"\nin = 5\n',
            r"^capacity\[1\]: capacity 'broker' is defined twice",
        ),
        (
            '[[capacity]]\nscope = "broker"\nin = 5\n[[capacity]]\nscope = "cluster"\nin = 5\nout = 6\n',
            r"^capacity\.in: is stated for the scopes broker and cluster",
        ),
        (
            '[[quota]]\nuser = "u"\nproducer_byte_rate = 5\nproducer_byte_rate_ceiling = 4\n',
            r"^quota\[0\]\.producer_byte_rate_ceiling: 4 must be at least producer_byte_rate, which is 5",
        ),
        ('[[quota]]\nuser = "u"\nexempt = 5\n', r"^quota\[0\]\.exempt: must be true, not 5"),
        (
            '[[quota]]\nuser = "u"\nweight = 1\nhours = "never"\n',
            r"^quota\[0\]\.hours: 'never': must be as in",
        ),
    ],
)
def test_what_contradicts_itself_is_told(text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse(text)
    with pytest.raises(DefinitionError):
        Document.read(text.splitlines(keepends=True))


def test_exempt_that_is_false_is_not_exempt() -> None:
    text = '[[quota]]\nuser = "u"\nproducer_byte_rate = 5\nexempt = false\n'
    assert parse(text) == parse(text.replace("exempt = false\n", ""))
