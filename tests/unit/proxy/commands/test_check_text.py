"""What `sluice check` says of the members of a fleet; the member that is asked stands in."""

import pytest

from proxy.commands import check_text
from proxy.commands.check_text import Members, ask_members, compared, members_document
from proxy.commands.servers import Document
from proxy.config import Config, engine_options
from proxy.fleet.facts import facts_of
from proxy.fleet.messages import Facts
from proxy.system.errors import ServerError
from quotas.definitions.definitions import Definitions
from quotas.definitions.entities import Entity
from tests.support.configurations import parsed

FILE = "sluice.toml"
FLEET = '[cluster]\nbootstrap = "10.0.0.9:9092"\n[[listeners]]\n[fleet]\nholder = "gw-1:19070"\n'


def made(quotas: str = "", admin: str = "") -> Config:
    return parsed(f"{FLEET}[quotas]\n{quotas}\n{admin}")


def limits(rate: float = 5) -> Definitions:
    return Definitions({Entity("ann"): {"producer_byte_rate": rate}})


def facts(config: Config, definitions: Definitions) -> Facts:
    definitions.keep_digest()
    return {
        **facts_of(config.quotas, config.reassignment, 8, engine_options(config), definitions),
        "version": "0.0",
    }


def page(*disagreements: str, **changed: str) -> Document:
    """What gw-1 shows, which has the configuration without quotas of its own, but for what is changed."""
    said = {**facts(made(), limits()), **changed}
    members = [{"name": "gw-1", "run": "1", **said}, {"name": "gw-2", "run": "2"}]
    return {"member": True, "run": "1", "members": members, "disagreements": list(disagreements)}


def asked(
    monkeypatch: pytest.MonkeyPatch,
    shown: Document,
    config: Config | None = None,
    definitions: Definitions | None = None,
    admin: str | None = None,
) -> Members:
    pages = {}

    def read(address: str, path: str) -> Document:
        pages[address] = path
        return shown

    monkeypatch.setattr(check_text, "read_document", read)
    found = ask_members(config or made(), definitions or limits(), admin, FILE)
    assert found is not None
    assert pages in ({found.asked: "/fleet"}, {})
    return found


def test_nothing_is_asked_without_a_fleet() -> None:
    alone = parsed('[cluster]\nbootstrap = "10.0.0.9:9092"\n[[listeners]]\n')
    assert ask_members(alone, limits(), None, FILE) is None
    assert list(compared(None)) == []


def test_member_that_has_this_configuration_differs_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, page())
    assert found == Members("127.0.0.1:19080", "", ["gw-1", "gw-2"], [])
    assert list(compared(found)) == ["members of the fleet, by 127.0.0.1:19080: gw-1, gw-2"]


def test_what_members_have_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, page("the mode differs: observe at gw-2; enforce at gw-1"))
    assert list(compared(found)) == [
        "members of the fleet, by 127.0.0.1:19080: gw-1, gw-2",
        "  differs: the mode differs: observe at gw-2; enforce at gw-1",
    ]
    assert members_document(found) == {
        "asked": "127.0.0.1:19080",
        "problem": "",
        "names": ["gw-1", "gw-2"],
        "differences": ["the mode differs: observe at gw-2; enforce at gw-1"],
    }


def test_configuration_that_the_member_does_not_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, page(), made('policy = "kip13"'))
    assert found.differences == ["the policy differs: kip13 at sluice.toml; schedule at gw-1"]
    quotas = asked(monkeypatch, page(), definitions=limits(6)).differences
    assert [text.partition(":")[0] for text in quotas] == ["the quotas differ"]


def test_quotas_of_a_topic_are_not_in_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    config = made('store = "topic"')
    shown = page(store="topic __sluice-quotas", quotas_digest="00")
    assert asked(monkeypatch, shown, config, Definitions()).differences == []


@pytest.mark.parametrize(
    ("bind", "admin", "address"),
    [
        ("0.0.0.0:9", None, "127.0.0.1:9"),
        ("[::]:9", None, "[::1]:9"),
        ("10.0.0.1:9", None, "10.0.0.1:9"),
        ("10.0.0.1:9", "gw-2:9", "gw-2:9"),
    ],
)
def test_member_of_this_configuration_is_asked_or_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, bind: str, admin: str | None, address: str
) -> None:
    config = made(admin=f'[admin]\nbind = "{bind}"\n')
    assert asked(monkeypatch, page(), config, admin=admin).asked == address


def test_member_that_cannot_be_asked_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str, path: str) -> Document:
        raise ServerError(f"http://{address}{path}: Connection refused")

    monkeypatch.setattr(check_text, "read_document", refuse)
    found = ask_members(made(), limits(), None, FILE)
    assert list(compared(found)) == [
        "warning: the members of the fleet were not compared: http://127.0.0.1:19080/fleet: Connection refused"
    ]
    assert found is not None
    assert not found.differences


def test_process_that_is_no_member_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, {"member": False}).problem == "127.0.0.1:19080 is no member of a fleet"


def test_configuration_without_an_admin_port_names_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, page(), made(admin='[admin]\nbind = ""\n'))
    assert "--admin names a member's" in found.problem


def test_member_that_has_just_begun_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {**page(), "run": "3"}
    assert asked(monkeypatch, shown, made('policy = "schedule"')).differences == []
