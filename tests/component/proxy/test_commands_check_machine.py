"""What `sluice check` finds on this machine: names that do not resolve, ports that are taken."""

import errno
import os
import socket

import pytest

from proxy.commands.check import machine_warnings
from tests.cluster import free_ports
from tests.support.configurations import parsed

TAKEN = f"{os.strerror(errno.EADDRINUSE)}, as it is while Sluice runs here"
NOT_HERE = os.strerror(errno.EADDRNOTAVAIL)


def warnings(listener: str, admin: str = "") -> list[str]:
    text = f'[cluster]\nbootstrap = "127.0.0.1:9092"\n[admin]\nbind = "{admin}"\n[[listeners]]\n{listener}'
    return list(machine_warnings(parsed(text)))


def ports(bootstrap: int, first: int, more: str = "") -> str:
    return f"bootstrap_port = {bootstrap}\nfirst_broker_port = {first}\nbroker_id_max = 0\n{more}"


def test_free_ports_and_an_address_are_no_warning() -> None:
    bootstrap, first = free_ports(2)
    assert warnings(ports(bootstrap, first)) == []


def test_ports_in_use_are_named_with_their_key() -> None:
    bootstrap, first, admin = free_ports(3)
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", admin)):
        assert warnings(ports(bootstrap, first), f"127.0.0.1:{admin}") == [
            f"listeners[0].first_broker_port: port {first} of 127.0.0.1 cannot be bound: {TAKEN}",
            f"admin.bind: port {admin} of 127.0.0.1 cannot be bound: {TAKEN}",
        ]


def test_ports_that_were_tried_are_free_again() -> None:
    bootstrap, first = free_ports(2)
    assert warnings(ports(bootstrap, first)) == []
    with socket.create_server(("127.0.0.1", bootstrap)), socket.create_server(("127.0.0.1", first)):
        pass


def test_many_ports_are_one_bounded_line() -> None:
    # An address of documentation (RFC 5737), which no machine has.
    single, many = warnings('bind = "192.0.2.1"\nbroker_id_max = 6\n')
    assert single == f"listeners[0].bootstrap_port: port 19090 of 192.0.2.1 cannot be bound: {NOT_HERE}"
    assert many == (
        "listeners[0].first_broker_port: ports 19100, 19101, 19102, 19103, 19104 and 2 more of 192.0.2.1 cannot be "
        f"bound: {NOT_HERE}"
    )


def test_advertised_host_that_does_not_resolve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, *_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, f"nothing known of {host}")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    bootstrap, first = free_ports(2)
    (said,) = warnings(ports(bootstrap, first, 'advertised_host = "kafka.example"\n'))
    assert said == (
        "listeners[0].advertised_host: 'kafka.example' does not resolve on this machine (nothing known of "
        "kafka.example): clients are told this name, and have to resolve it"
    )
