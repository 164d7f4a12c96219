"""`sluice quotas explain`: the entities by precedence, and the one that applies."""

import json

from proxy.commands.quotas import document, lines
from quotas.definitions.entities import DEFAULT, Entity

QUOTAS = {
    Entity("ann"): {"producer_byte_rate": 5000.0},
    Entity(client_id=DEFAULT): {"producer_byte_rate": 9000.0, "request_percentage": 12.5},
    Entity(topic="orders"): {"producer_byte_rate": 1.0},
}


def test_first_entity_with_a_limit_applies() -> None:
    found = document(QUOTAS, "ann", "web-1")
    produce = found["keys"]["producer_byte_rate"]
    assert [one["entity"] for one in produce if one["applies"]] == ["user 'ann'"]
    assert [(one["precedence"], one["value"]) for one in produce if one["value"]] == [
        (3, 5000.0),
        (8, 9000.0),
    ]
    assert json.loads(json.dumps(found)) == found


def test_lines_say_why() -> None:
    printed = list(lines(document(QUOTAS, "ann", "web-1")))
    assert printed[0] == "producer_byte_rate: 5000"
    assert "  3  user 'ann': 5000  applies: the highest precedence of those that have a limit" in printed
    assert "  8  client-id <default>: 9000  has a lower precedence" in printed
    assert "  1  user 'ann', client-id 'web-1': –  has no limit" in printed
    assert "consumer_byte_rate: unlimited; none of 8 entities has a limit" in printed


def test_client_without_a_user() -> None:
    printed = list(lines(document(QUOTAS, "", "web-1")))
    assert "producer_byte_rate: 9000" in printed
    assert "consumer_byte_rate: unlimited; none of 2 entities has a limit" in printed
