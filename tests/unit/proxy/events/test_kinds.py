"""The events that there are: docs/api.md names each with its fields, and no others."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from proxy.events import Event, kinds
from proxy.events.kinds import By
from proxy.events.ring import Ring
from proxy.explain.documents import EventRow, decode

TABLE = (Path(__file__).parents[4] / "docs" / "api.md").read_text(encoding="utf-8")
OPS = By("User:ops", "10.0.0.4")
EVENTS: tuple[Event, ...] = (
    kinds.Started("1.0", True),
    kinds.QuotaChanged("user 'ann'", "producer_byte_rate", 1.0, None, *OPS),
    kinds.ConfigReloaded(ok=True, cause="signal", keys="quotas.mode"),
    kinds.ModeChanged("observe", "enforce"),
    kinds.EnforcementSwitched(False, "ops", "", "fire"),
    kinds.BrokerLost(2, "refused"),
    kinds.BrokerBack(2),
    kinds.BrokersWithoutPort("clients", "7", "broker 7 has no port"),
    kinds.ClusterLost("refused"),
    kinds.ClusterBack(3),
    kinds.HolderMoved("gw-1", "gw-2", "10.0.0.2:19095"),
    kinds.ReassignmentStep("orders", 0, "1,2,3"),
    kinds.ReassignmentEnded("orders", 0, "done", "1,2,3"),
    kinds.WorkerEnded(1, "exit code 1"),
    kinds.ClientWaits("ann", "web", 0.6, "producer_byte_rate", "user 'ann'", 2e6),
    kinds.ClientWaitsEnded("ann", "web", 0.6),
    kinds.ClientsWait(40),
    kinds.PromisesExceedCapacity("producer_byte_rate", 1, 8e7, 0.8),
    kinds.PromisesFitCapacity("producer_byte_rate", 1),
    kinds.CapacityUsedUp("consumer_byte_rate", -1, 2e8, 3),
    kinds.CapacityNotUsedUp("consumer_byte_rate", -1),
)


def test_every_kind_is_here() -> None:
    made = [one for one in vars(kinds).values() if isinstance(one, type) and issubclass(one, Event)]
    with_a_sentence = {one for one in made if one is not Event and {"text", "sentence"} & vars(one).keys()}
    assert {type(event) for event in EVENTS} == with_a_sentence


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: str(event.kind))
def test_what_the_ring_has_is_the_row_that_readers_decode(event: Event) -> None:
    ring = Ring()
    ring.add(event, 0.0, 0)
    [written] = ring.after(0, 1).events
    assert decode(written.encode(), EventRow) == EventRow(
        1, "1970-01-01T00:00:00.000Z", event.kind, event.text
    )
    assert msgspec.json.decode(written, type=type(event)) == event
    assert list(json.loads(written)) == ["id", "at", "kind", "text", *type(event).__struct_encode_fields__]


def test_audited_change_is_the_same_on_the_wire_and_has_no_line() -> None:
    changed = ("user 'ann'", "producer_byte_rate", 1.0, None, *OPS)
    change, audited = kinds.QuotaChanged(*changed), kinds.AuditedQuotaChanged(*changed)
    assert (audited.kind, audited.text, audited.fields) == (change.kind, change.text, change.fields)
    assert (audited.line, change.line) == ("", "quota changed")


def test_each_has_one_sentence() -> None:
    assert all(event.text.endswith((".", "refused")) and "\n" not in event.text for event in EVENTS)


def test_the_table_has_the_fields_of_each_kind_and_no_others() -> None:
    rows: set[str] = set()
    for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \| ([^|]+) \|$", TABLE, flags=re.MULTILINE):
        names = re.findall(r"`(\w+)`", row[0])
        events = [event for event in EVENTS if event.kind in names]
        fields = {name for event in events for name in event.fields}
        told = set(re.findall(r"`(\w+)`", row[1])) - set(names)
        if events:
            assert told == fields, names
            rows.update(names)
    assert rows == {event.kind for event in EVENTS}
