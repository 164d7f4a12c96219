"""What `sluice check` says of groups and capacities: promised, left, and what can never be had."""

import pytest

from proxy.commands.check_capacities import capacities, capacities_document, capacity_warnings, groups
from quotas.definitions.definitions import Definitions, StaticQuotas
from quotas.definitions.toml_file import parse

TEXT = """
[[capacity]]
scope = "broker"
in = "80M"

[[group]]
name = "web"
client_ids = ["web-*"]
users = ["svc"]

[[group]]
name = "apps"
users = ["app-*"]
budget = "each"
"""


def quota(entity: str, *limits: str) -> str:
    return "\n".join(("[[quota]]", entity, *limits, ""))


def found(*quotas: str, static: StaticQuotas | None = None) -> Definitions:
    return parse(TEXT + "\n".join(quotas), static)


WEB = quota('group = "web"', 'producer_byte_rate = "30M"', 'producer_byte_rate_ceiling = "60M"')
ANN = quota('user = "ann"', 'producer_byte_rate = "20M"')
OTHERS = quota('client_id = "<default>"', 'producer_byte_rate = "1M"', 'consumer_byte_rate = "900M"')
APPS = quota('group = "apps"', 'producer_byte_rate = "2M"')


def test_sum_is_of_entries_with_a_name() -> None:
    definitions = found(WEB, ANN, OTHERS, APPS)
    assert list(capacities(definitions, "broker")) == [
        "capacity in of each broker: 80M bytes/s; 50M promised by 2 limits, 30M left",
        "  and 1M to each client of client-id <default>, however many there are",
        "  and 2M to each client of group 'apps', however many there are",
    ]
    assert list(capacity_warnings(definitions, "broker")) == []
    assert list(capacities_document(definitions, "broker")) == [
        {"key": "producer_byte_rate", "scope": "broker", "rate": 80e6, "promised": 50e6, "left": 30e6}
    ]


def test_static_settings_promise_as_entries_do() -> None:
    static = StaticQuotas(producer_default=1_000_000, producer_override={"a": 3_000_000, "b": 4_000_000})
    entry = quota('client_id = "a"', 'producer_byte_rate = "5M"')  # in place of the override
    first, *others = capacities(found(entry, static=static), "broker")
    assert first.endswith("9M promised by 2 limits, 71M left")
    assert others == ["  and 1M to each client of client-id <default>, however many there are"]


@pytest.mark.parametrize(
    ("quotas", "warnings"),
    [
        (
            [WEB, quota('user = "ann"', 'producer_byte_rate = "70M"')],
            [
                (
                    "capacity in of each broker: 100M bytes/s are promised, and there are 80M: when all want "
                    "theirs, each gets 80% of it"
                )
            ],
        ),
        (
            [quota('user = "ann"', 'producer_byte_rate = "5M"', 'producer_byte_rate_ceiling = "90M"')],
            [
                (
                    "producer_byte_rate_ceiling of user 'ann': 90M can never be had: capacity in of each broker is 80M "
                    "bytes/s"
                )
            ],
        ),
        (
            [quota('user = "ann"', 'producer_byte_rate = "90M"', "from = 2900-01-01T00:00:00Z")],
            [
                (
                    "producer_byte_rate of user 'ann', when 'from=2900-01-01T00:00:00Z': 90M can never be had: "
                    "capacity in of each broker is 80M bytes/s"
                )
            ],
        ),
        ([quota('topic = "t"', 'producer_byte_rate = "90M"')], []),
        (
            [quota('group = "none"', 'producer_byte_rate = "1M"')],
            ["quota of group 'none' has no effect: no [[group]] has this name, or it has no members"],
        ),
    ],
)
def test_promises_that_cannot_be_kept_are_warnings(quotas: list[str], warnings: list[str]) -> None:
    assert list(capacity_warnings(found(*quotas), "broker")) == warnings


def test_terms_without_a_capacity_have_no_effect() -> None:
    definitions = parse(quota('user = "ann"', "weight = 2"))
    assert list(capacity_warnings(definitions, "broker")) == [
        "weight of user 'ann' has no effect: no [[capacity]] is stated"
    ]


def test_ceiling_of_any_number_of_clients_needs_a_rate() -> None:
    ceiling = 'producer_byte_rate_ceiling = "9M"'
    apps = quota('group = "apps"', ceiling)
    definitions = found(quota('client_id = "<default>"', ceiling), quota('user = "ann"', ceiling), apps)
    assert list(capacity_warnings(definitions, "broker")) == [
        f"producer_byte_rate_ceiling of {entity} has no effect without producer_byte_rate: clients that are "
        "promised nothing are one class together"
        for entity in ("client-id <default>", "group 'apps'")
    ]
    promised = found(quota('client_id = "<default>"', 'producer_byte_rate = "1M"', ceiling))
    assert list(capacity_warnings(promised, "broker")) == []


def test_rates_of_each_broker_are_not_summed_up_against_the_capacity_of_all() -> None:
    cluster = TEXT.replace('"broker"', '"cluster"')
    bob = quota('user = "bob"', 'producer_byte_rate = "70M"')
    definitions = parse(cluster + ANN + bob)
    assert list(capacities(definitions, "broker")) == [
        (
            "capacity in of all brokers: 80M bytes/s; 90M promised by 2 limits, each at every broker, while the "
            "capacity is that of all"
        )
    ]
    assert list(capacity_warnings(definitions, "broker")) == []
    assert [one["left"] for one in capacities_document(definitions, "broker")] == [None]
    assert len(list(capacity_warnings(definitions, "cluster"))) == 1


def test_groups_are_listed_with_their_members() -> None:
    assert list(groups(found())) == [
        "group 'web': client ids 'web-*'; users 'svc'; one budget together",
        "group 'apps': users 'app-*'; each has the budget for itself",
    ]


def test_catch_up_reads_are_promised_of_what_brokers_give() -> None:
    limits = ('consumer_byte_rate = "20M"', 'catch_up_byte_rate = "50M"', "catch_up_lag = 5")
    entry = quota('user = "ann"', *limits, 'catch_up_byte_rate_ceiling = "90M"')
    definitions = parse(f'[[capacity]]\nscope = "broker"\nout = "80M"\n{entry}')
    assert list(capacities(definitions, "broker")) == [
        "capacity out of each broker: 80M bytes/s; 70M promised by 2 limits, 10M left"
    ]
    assert list(capacity_warnings(definitions, "broker")) == [
        "catch_up_byte_rate_ceiling of user 'ann': 90M can never be had: capacity out of each broker is 80M bytes/s"
    ]
    assert list(capacity_warnings(parse(quota('user = "ann"', *limits)), "broker")) == []
