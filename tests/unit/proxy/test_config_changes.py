"""What a reload may apply, and what needs a restart."""

import pytest

from proxy.config import Changes, Config, compare, merge_live
from tests.support.configurations import parsed

SMALL = '[cluster]\nbootstrap = "127.0.0.1:9092"\n[[listeners]]\nname = "a"\n'


def made(text: str = "", small: str = SMALL) -> Config:
    return parsed(small + text)


def test_equal_configurations_have_no_changes() -> None:
    assert compare(made(), made()) == Changes()


@pytest.mark.parametrize(
    ("text", "live", "restart"),
    [
        ('[quotas]\nmode = "observe"\nproducer_default = 5', ("quotas.mode", "quotas.producer_default"), ()),
        ('[quotas]\nfile = "q"\nproducer_override = "a:1"', ("quotas.file", "quotas.producer_override"), ()),
        ('[quotas]\npolicy = "kip13"', ("quotas.policy", "quotas.hold_seconds_max"), ()),
        ('[quotas]\nscope = "broker"', (), ("quotas.scope",)),
        ('[log]\nlevel = "debug"\nformat = "json"', ("log.level",), ("log.format",)),
        ("[limits]\nidle_seconds = 1", (), ("limits.idle_seconds",)),
        ('[admin]\nbind = ""', (), ("admin.bind",)),
        ("[[listeners]]\nname = 'b'\nbootstrap_port = 18090\nfirst_broker_port = 18100", (), ("listeners",)),
    ],
)
def test_changed_keys_are_named(text: str, live: tuple[str, ...], restart: tuple[str, ...]) -> None:
    assert compare(made(), made(text)) == Changes(live, restart)


def test_changed_listener_is_named_by_its_key() -> None:
    changes = compare(made(), made(small=SMALL.replace('"a"', '"b"') + "broker_id_max = 5\n"))
    assert changes == Changes((), ("listeners[0].name", "listeners[0].broker_id_max"))


def test_merge_takes_live_keys_and_keeps_the_others() -> None:
    old = made('[limits]\nidle_seconds = 5\n[log]\nformat = "text"')
    new = made(
        '[limits]\nidle_seconds = 7\n[log]\nformat = "json"\nlevel = "error"\n'
        '[quotas]\nmode = "observe"\nscope = "broker"',
        small=SMALL + "broker_id_max = 9\n",
    )
    merged = merge_live(old, new)
    assert (merged.quotas.mode, merged.log.level) == ("observe", "error")
    assert (merged.limits.idle_seconds, merged.log.format, merged.quotas.scope) == (5.0, "text", "cluster")
    assert merged.listeners == old.listeners
    assert compare(old, merged).restart == ()
    assert compare(merged, new).live == ()
