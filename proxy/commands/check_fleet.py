"""The part of `sluice check` on `[fleet]`, and on the fleet's members if one of them runs.

One member is asked, by default the one that this configuration is for. It reports the differences between members that
it has seen for 5 s; the configuration itself is compared with this member.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from proxy.commands.admin_page import Document, read_document
from proxy.config import Address, Config, FleetOptions, engine_options
from proxy.system.errors import ConfigError, ServerError
from proxy.system.files import read_secret
from quotas.definitions.definitions import Definitions

_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# Of the program, not of a configuration.
_NOT_CONFIGURED: Final = ("version",)


class Members(NamedTuple):
    """The response of the member that was asked.

    Args:
        asked: its admin port; "" if there is none.
        problem: why it did not respond; "" if it did.
        names: all members.
        differences: a sentence for each difference between members, and between this configuration and the member.
    """

    asked: str
    problem: str
    names: Sequence[str] = ()
    differences: Sequence[str] = ()


def lines(options: FleetOptions) -> Iterator[str]:
    """Yield lines on how quotas are shared with other processes; none if they are not shared."""
    if not options.configured:
        return
    where = "this process" if options.holds_by_name else str(options.holder)
    if options.holder is None:
        where = f"chosen by the group {options.group}"
    yield f"fleet: {options.own_name!r}, one of at most {options.members_max} members; the holder is {where}"
    if options.cluster is not None:
        brokers = ", ".join(map(str, options.bootstrap))
        yield f"  its own cluster, for the group and Sluice's topics: {brokers}"
    if options.may_hold:
        signed = "signed" if options.secret_file else "not signed"
        if options.tls is not None:
            signed += f", TLS, members' certificates {options.tls.client_auth}"
        yield f"  members reach it at {options.own_address}: {options.bind}, {signed}"


def check_secret(options: FleetOptions, *, may_be_missing: bool) -> None:
    """Check that the fleet's secret can be used.

    Args:
        may_be_missing: whether this may be another machine than the one where `serve` runs.

    Raises:
        ConfigError: it cannot be read, or is too short.
    """
    if options.secret_file is None:
        return
    # Imported late: most configurations have no fleet.
    from proxy.fleet.secret import KEY, secret_problem

    try:
        read_secret(options.secret_file, KEY)
    except OSError as error:
        if may_be_missing and isinstance(error, FileNotFoundError):
            return
        problem = secret_problem(options.secret_file, error).removeprefix(f"{KEY}: ")
        raise ConfigError(KEY, problem) from error


def document(options: FleetOptions) -> Mapping[str, object] | None:
    """Return the settings of the fleet as values of JSON; None without a fleet."""
    if not options.configured:
        return None
    return {
        "name": options.own_name,
        "members_max": options.members_max,
        "holder": None if options.holder is None else str(options.holder),
        "group": options.group if options.holder is None else None,
        "bootstrap": [str(address) for address in options.bootstrap],
        "holds": options.holds_by_name,
        "cut_off": options.cut_off,
    }


def ask_members(config: Config, definitions: Definitions, admin: str | None, own_name: str) -> Members | None:
    """Ask a member for the facts of all members, and compare this configuration; None without a fleet.

    Args:
        definitions: the quotas of this configuration.
        admin: the admin port to ask; None for the one of this configuration.
        own_name: the name of this configuration beside the names of members.
    """
    if not config.fleet.configured:
        return None
    asked = admin or _admin_of(config.admin.bind)
    if not asked:
        return Members("", "this configuration has no admin port; --admin names a member's")
    try:
        page = read_document(asked, "/fleet")
    except ServerError as error:
        return Members(asked, str(error))
    if not page.get("member"):
        return Members(asked, f"{asked} is no member of a fleet")
    names = [member["name"] for member in page["members"]]
    own = _differences(config, definitions, own_name, page)
    return Members(asked, "", names, [*page["disagreements"], *own])


def compared(members: Members | None) -> Iterator[str]:
    """Yield the lines about members for people."""
    if members is None:
        return
    if members.problem:
        yield f"warning: the members of the fleet were not compared: {members.problem}"
        return
    yield f"members of the fleet, by {members.asked}: {', '.join(members.names)}"
    yield from (f"  differs: {sentence}" for sentence in members.differences)


def members_document(members: Members) -> Mapping[str, object]:
    """Return the response about members as values of JSON."""
    return {**members._asdict(), "names": list(members.names), "differences": list(members.differences)}


def _admin_of(bind: Address | None) -> str:
    return "" if bind is None else str(bind._replace(host=_LOOPBACK_OF.get(bind.host, bind.host)))


def _differences(config: Config, definitions: Definitions, own_name: str, page: Document) -> Sequence[str]:
    """Compare this configuration with the member that was asked."""
    # Imported late: most configurations have no fleet.
    from proxy.fleet.facts import DIGEST, differences, facts_of

    theirs = next((member for member in page["members"] if member["run"] == page["run"]), None)
    if theirs is None:  # it has no lease yet
        return ()
    definitions.keep_digest()
    own = facts_of(
        config.quotas, config.reassignment, config.fleet.members_max, engine_options(config), definitions
    )
    left_out = _NOT_CONFIGURED if config.quotas.store == "file" else (*_NOT_CONFIGURED, DIGEST)
    facts = {name: value for name, value in own.items() if name not in left_out}
    return list(differences([(own_name, facts), (theirs["name"], theirs)]).values())
