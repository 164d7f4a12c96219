"""Single values of the configuration: what is taken, what is refused, and that an error names key and value."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from proxy.config.options import ListenerOptions, QuotaSettings
from proxy.config.schema import NONE, Address, Addresses, Host, Port, Rate, number, read_value
from proxy.system.errors import ConfigError

OPTIONAL_ADDRESS = Annotated[Address | None, NONE]
OPTIONAL_PATH = Annotated[Path | None, NONE]
UPSTREAMS = ListenerOptions.__annotations__["upstreams"]
RATES = QuotaSettings.__annotations__["producer_override"]


@pytest.mark.parametrize(
    ("annotation", "written", "meant"),
    [
        (str, "a b", "a b"),
        (bool, True, True),
        (bool, "false", False),
        (bool, "True", True),
        (Literal["a", "b"], "b", "b"),
        (Annotated[int, number(0, 10)], "10", 10),
        (Annotated[int, number(0, 10_000)], "10k", 10_000),
        (Annotated[float, number(0, 10)], 0.5, 0.5),
        (Annotated[float, number(0, 10)], "10", 10.0),
        (Annotated[float, number(0, 10)], 10, 10.0),
        (Port, 65535, 65535),
        (Rate, "2M", 2_000_000),
        (Host, "kafka-1.example.org", "kafka-1.example.org"),
        (Host, "kafka_1", "kafka_1"),
        (Host, "10.0.0.1", "10.0.0.1"),
        (Host, "[::1]", "::1"),
        (Host, "::", "::"),
        (Address, "kafka:9092", Address("kafka", 9092)),
        (Address, " kafka:9092 ", Address("kafka", 9092)),
        (Address, "[2001:db8::1]:9092", Address("2001:db8::1", 9092)),
        (OPTIONAL_ADDRESS, "", None),
        (OPTIONAL_ADDRESS, "h:1", Address("h", 1)),
        (Addresses, "a:1,b:2", (Address("a", 1), Address("b", 2))),
        (Addresses, ["a:1", "b:2"], (Address("a", 1), Address("b", 2))),
        (UPSTREAMS, {"2": "b:2", "1": "a:1"}, {1: Address("a", 1), 2: Address("b", 2)}),
        (UPSTREAMS, {}, {}),
        (UPSTREAMS, "2=b:2, 1=[::1]:1", {1: Address("::1", 1), 2: Address("b", 2)}),
        (Path, "a/b.toml", Path("a/b.toml")),
        (OPTIONAL_PATH, "", None),
        (RATES, "clientA:4M,clientB:10M", {"clientA": 4_000_000, "clientB": 10_000_000}),
        (RATES, "a:b:1", {"a:b": 1}),
        (RATES, "", {}),
    ],
)
def test_reader_takes(annotation: Any, written: object, meant: object) -> None:
    found = read_value("key", annotation, written)
    assert found == meant
    assert isinstance(meant, Mapping) or type(found) is type(meant)


@pytest.mark.parametrize(
    ("annotation", "written", "problem"),
    [
        (str, "", "not empty"),
        (str, 5, "must be a string"),
        (bool, 1, "true or false"),
        (bool, "yes", "true or false"),
        (Literal["a", "b"], "c", 'must be "a" or "b"'),
        (Literal["a", "b"], ["a"], 'must be "a" or "b"'),
        (Annotated[int, number(1, 10)], 0, "between 1 and 10"),
        (Annotated[int, number(1, 10)], 11, "between 1 and 10"),
        (Annotated[int, number(1, 10)], True, "must be a number"),
        (Annotated[float, number(0, 10)], 10.5, "between 0 and 10 seconds"),
        (Annotated[float, number(0, 10)], -1, "between 0 and 10 seconds"),
        (Annotated[float, number(0, 10)], "soon", "must be a number"),
        (Port, 0, "between 1 and 65535"),
        (Port, 65536, "between 1 and 65535"),
        (Rate, 0, "between 1"),
        (Host, "a:1", "without a port"),
        (Host, "a b", "host name"),
        (Host, "", "host name"),
        (Host, 7, "host name"),
        (Address, "kafka", "host:port"),
        (Address, 9092, "host:port"),
        (Address, ":9092", "must be host:port; the host 0.0.0.0 is for all addresses"),
        (Address, "kafka:", "host:port"),
        (Address, "kafka:x", "host:port"),
        (Address, "kafka:²", "host:port"),
        (Address, "kafka:0", "port must be between"),
        (Address, "kafka:65536", "port must be between"),
        (Address, "kafka:" + "9" * 5000, "port must be between"),
        (Address, "::1:9092", "in brackets"),
        (Address, "SASL_SSL://kafka1:9092", "without SASL_SSL://"),
        (Addresses, [], "several"),
        (Addresses, "", "several"),
        (Addresses, 9092, "several"),
        (UPSTREAMS, "a:1", "a table of broker ids"),
        (UPSTREAMS, {"x": "a:1"}, "must be a number"),
        (UPSTREAMS, {"-1": "a:1"}, "must be between 0 and"),
        (RATES, 5, "must be a string"),
        (RATES, "a", "not client id, colon and rate"),
        (RATES, ":5", "not client id, colon and rate"),
        (RATES, "a:1,a:2", "twice"),
        (RATES, "a:1,", "not client id, colon and rate"),
    ],
)
def test_reader_refuses(annotation: Any, written: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read_value("section.key", annotation, written)
    assert caught.value.path == "section.key" or caught.value.path.startswith("section.key.")
    assert str(caught.value).startswith("section.key")
    assert "got" in str(caught.value)


def test_address_in_a_list_is_named_by_its_index() -> None:
    with pytest.raises(ConfigError, match=r"^cluster\.bootstrap\[1\]: .* \(got 'b'\)$"):
        read_value("cluster.bootstrap", Addresses, ["a:1", "b"])


def test_override_names_the_client_id_at_fault() -> None:
    with pytest.raises(ConfigError, match=r"^quotas\.producer_override\[b\]: unknown unit 'X'"):
        read_value("quotas.producer_override", RATES, "a:1,b:1X")


@pytest.mark.parametrize(("address", "text"), [(Address("h", 1), "h:1"), (Address("::1", 2), "[::1]:2")])
def test_address_is_written_as_it_is_read(address: Address, text: str) -> None:
    assert str(address) == text
    assert read_value("key", Address, text) == address


def test_long_values_are_cut_in_errors() -> None:
    with pytest.raises(ConfigError) as caught:
        read_value("key", Host, "a b" * 10_000)
    assert len(str(caught.value)) < 200


def test_tilde_at_the_start_of_a_path_is_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/operator")
    for annotation in (Path, OPTIONAL_PATH):
        assert read_value("quotas.file", annotation, "~/quotas.toml") == Path("/home/operator/quotas.toml")
        assert read_value("quotas.file", annotation, "a~/~b") == Path("a~/~b")


def test_home_directory_that_is_not_known_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^quotas\.file: begins with ~, and this home directory is not known; "
    ):
        read_value("quotas.file", Path, "~no such user/quotas.toml")
