"""Clients that wait in several processes: one event when the first says so, one when the last says that it ended."""

from collections.abc import Sequence

import pytest

from proxy.events import Event
from proxy.events.broker_states import BrokerStates
from proxy.explain.rules import Rule
from proxy.explain.waiting import Judgement, Waiter
from proxy.process.watching import ProcessEvents
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity

PRODUCE = Rule("produce", "producer_byte_rate")


def begins(*client_ids: str, part: float = 0.62, rule: Rule | None = PRODUCE) -> Judgement:
    return Judgement(tuple(Waiter("", client_id, part, rule) for client_id in client_ids), (), 0)


def ends(*client_ids: str) -> Judgement:
    return Judgement((), tuple(Waiter("", client_id, 0.1, None) for client_id in client_ids), 0)


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def waits(told: list[Event]) -> ProcessEvents:
    definitions = Definitions()
    definitions.put(Entity(client_id="web"), {"producer_byte_rate": 2e6})
    return ProcessEvents(told.append, definitions, None, BrokerStates(told.append))


def kinds(told: Sequence[Event]) -> list[tuple[str, object]]:
    return [(event.kind, event.fields.get("client_id")) for event in told]


def test_event_names_the_quota_in_force(waits: ProcessEvents, told: list[Event]) -> None:
    waits.judged(0, begins("web"))
    assert told[0].text == "web waits 62% of its time for producer_byte_rate 2.0 MB/s of client-id 'web'."
    assert told[0].fields["value"] == 2e6


def test_quota_that_is_gone_or_unknown_leaves_the_client(waits: ProcessEvents, told: list[Event]) -> None:
    waits.judged(0, begins("other"))
    waits.judged(0, begins("third", rule=None))
    assert [event.text for event in told] == [
        "other waits 62% of its time for producer_byte_rate.",
        "third waits 62% of its time.",
    ]


def test_client_of_two_processes_begins_with_the_first_and_ends_with_the_last(
    waits: ProcessEvents, told: list[Event]
) -> None:
    for source, judgement in ((7, begins("web")), (8, begins("web")), (7, ends("web"))):
        waits.judged(source, judgement)
    assert kinds(told) == [("client_waits", "web")]
    waits.judged(8, ends("web"))
    assert kinds(told)[1:] == [("client_waits_ended", "web")]


def test_process_that_ends_ends_its_clients_waits(waits: ProcessEvents, told: list[Event]) -> None:
    waits.judged(7, begins("a", "b"))
    waits.judged(8, begins("b"))
    waits.ended(7)
    assert kinds(told)[2:] == [("client_waits_ended", "a")]
    waits.ended(8)
    assert kinds(told)[3:] == [("client_waits_ended", "b")]


def test_end_without_a_begin_is_no_event(waits: ProcessEvents, told: list[Event]) -> None:
    waits.judged(7, ends("a"))
    waits.ended(9)
    assert told == []


def test_those_that_are_not_named_are_counted(waits: ProcessEvents, told: list[Event]) -> None:
    waits.judged(7, Judgement((), (), 40))
    assert (told[0].kind, told[0].fields) == ("clients_wait", {"clients": 40})
