"""quotas.definitions.toml_file: text in, definitions out, and back."""

import pytest

from quotas.definitions.definitions import StaticQuotas
from quotas.definitions.entities import DEFAULT, Entity
from quotas.definitions.toml_file import parse, parse_limit, render
from quotas.errors import DefinitionError

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


def test_rendered_text_parses_to_the_same() -> None:
    assert parse(render(parse(TEXT))) == parse(TEXT)


def test_empty_text_defines_nothing() -> None:
    assert len(parse("")) == 0
    assert render(parse("")) == ""


def test_strange_names_survive_a_round_trip() -> None:
    text = '[[quota]]\nclient_id = "Q!-@#$%^&*() \\"\\\\ \\u0007 \\u007f ü"\nproducer_byte_rate = 1\n'
    assert parse(render(parse(text))) == parse(text)


def test_static_settings_lie_below_the_file() -> None:
    definitions = parse(TEXT, StaticQuotas(producer_default=7.0, producer_override={"reports": 9.0}))
    assert definitions.limit("producer_byte_rate", "", "reports")[0] == 2e6
    assert definitions.limit("producer_byte_rate", "", "other")[0] == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[quota", "not TOML"),
        ("quotas = 1", r"^quotas: unknown key, value 1"),
        ('[[quotas]]\nuser = "a"\n', r"^quotas: unknown table; did you mean \[\[quota\]\]\?$"),
        (
            '[cluster]\npassword = "hidden"\n[[quota]]\nuser = "a"\nproducer_byte_rate = 1\n',
            r"^cluster: a quotas file has \[\[quota\]\] tables alone; is this Sluice's configuration, .* takes\?$",
        ),
        ('[[listeners]]\nbind = "::"\n', r"^listeners: a quotas file has \[\[quota\]\] tables alone"),
        ('[quotas]\nmode = "observe"\n', r"^quotas: a quotas file has \[\[quota\]\] tables alone"),
        ("quota = 1", r"^quota: must be a list"),
        ("quota = [1]", r"^quota\[0\]: must be a table, not 1"),
        ('[[quota]]\nclient_id = "a"\n', r"^quota\[0\]: client_id 'a' has no limit"),
        ("[[quota]]\nproducer_byte_rate = 1\n", r"^quota\[0\]: names no user"),
        (
            "[[quota]]\nclient_id = 5\nproducer_byte_rate = 1\n",
            r"^quota\[0\]\.client_id: must be a string, not 5",
        ),
        ('[[quota]]\nclient_id = ""\nproducer_byte_rate = 1\n', r"^quota\[0\]\.client_id: must not be empty"),
        ('[[quota]]\nclient_id = "a"\nproducer_byte_rate = -1\n', r"^quota\[0\]\.producer_byte_rate: .* -1"),
        (
            '[[quota]]\nclient_id = "a"\nproducer_byte_rate = "-2M"\n',
            r"^quota\[0\]\.producer_byte_rate: must be greater than 0",
        ),
        (
            '[[quota]]\nclient_id = "a"\nproducer_byte_rate = "2 MB"\n',
            r"^quota\[0\]\.producer_byte_rate: .*'2 MB'",
        ),
        (
            '[[quota]]\nclient_id = "a"\nproducer_byte_rate = true\n',
            r"^quota\[0\]\.producer_byte_rate: .*True",
        ),
        ('[[quota]]\nclient_id = "a"\nproduce = 3\n', r"^quota\[0\]\.produce: unknown key, value 3"),
        ('[[quota]]\nip = "a"\nuser = "b"\nconnection_creation_rate = 3\n', r"^quota\[0\]\.ip: .*combined"),
        (
            '[[quota]]\nuser = "a"\nproducer_byte_rate = 1\n[[quota]]\nuser = "a"\nproducer_byte_rate = 2\n',
            r"^quota\[1\]: user 'a' is defined twice",
        ),
    ],
)
def test_error_names_table_key_and_value(text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse(text)


def test_amounts_have_decimal_and_binary_suffixes() -> None:
    assert [parse_limit(text, "x") for text in ("2k", "3M", "1G", "2Ki", "3Mi", "1Gi", "7")] == [
        2e3,
        3e6,
        1e9,
        2048,
        3 * 2**20,
        2**30,
        7,
    ]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (10**400, "too large"),
        ("9" * 30, "'9{30}' is too large"),
        (2**63, "too large"),
        (1e300, "1e.300 is too large"),
        (float("inf"), "^x: must be a finite number, not inf"),
        (float("nan"), "^x: must be a finite number, not nan"),
        ("inf", "^x: must be a number, .*, not 'inf'"),
        ("2MiB", "^x: unknown unit 'MiB': .*, not '2MiB'"),
        ("2_000", "^x: must be a number, .*, not '2_000'"),
        (True, "^x: must be a number or a string .*, not True"),
    ],
)
def test_limit_that_is_no_amount_is_refused_with_its_value(written: object, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        parse_limit(written, "x")


def test_limit_is_exact() -> None:
    assert [parse_limit(text, "x") for text in ("0.3M", "4.35k", "-1")] == [300_000, 4_350, -1]
