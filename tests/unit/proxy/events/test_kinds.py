"""The events that there are: docs/api.md names each with its fields, and no others."""

import re
from pathlib import Path

from proxy.events import Event, kinds
from proxy.events.kinds import By, Waiting

TABLE = (Path(__file__).parents[4] / "docs" / "api.md").read_text(encoding="utf-8")
CLIENT = Waiting("ann", "web", 0.6, "producer_byte_rate", "user 'ann'", 2e6)
EVENTS = (
    kinds.started("1.0", enforcing=True),
    kinds.quota_changed("user 'ann'", "producer_byte_rate", 1.0, None, By("User:ops", "10.0.0.4")),
    kinds.config_reloaded("signal", "quotas.mode", 0),
    kinds.mode_changed("observe", "enforce"),
    kinds.enforcement_switched(enforcing=False, by=By("ops"), reason="fire"),
    kinds.broker_lost(2, "refused"),
    kinds.broker_back(2),
    kinds.brokers_without_port("clients", "7", "broker 7 has no port"),
    kinds.cluster_lost("refused"),
    kinds.cluster_back(3),
    kinds.holder_moved("gw-1", "gw-2", "10.0.0.2:19095"),
    kinds.reassignment_step("orders", 0, "1,2,3"),
    kinds.reassignment_ended("orders", 0, "done", "1,2,3"),
    kinds.worker_ended(1, "exit code 1"),
    kinds.client_waits(CLIENT),
    kinds.client_waits_ended(CLIENT),
    kinds.clients_wait(40),
)


def test_every_kind_is_here_under_the_name_of_its_function() -> None:
    made = {
        name
        for name, found in vars(kinds).items()
        if getattr(found, "__annotations__", {}).get("return") is Event
    }
    assert {event.kind for event in EVENTS} == made


def test_each_has_one_sentence() -> None:
    assert all(event.text.endswith((".", "refused")) and "\n" not in event.text for event in EVENTS)


def test_the_table_has_the_fields_of_each_kind_and_no_others() -> None:
    rows: set[str] = set()
    for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \| ([^|]+) \|$", TABLE, flags=re.MULTILINE):
        names = re.findall(r"`(\w+)`", row[0])
        events: list[Event] = [event for event in EVENTS if event.kind in names]
        fields = {name for event in events for name in event.fields}
        told = set(re.findall(r"`(\w+)`", row[1])) - set(names)
        if events:
            assert told == fields, names
            rows.update(names)
    assert rows == {event.kind for event in EVENTS}
