"""Single values of the configuration: what is taken, what is refused, and that an error names key and value."""

from pathlib import Path

import pytest

from proxy.config import readers
from proxy.config.readers import Address, Reader
from proxy.system.errors import ConfigError


@pytest.mark.parametrize(
    ("read", "written", "meant"),
    [
        (readers.text, "a b", "a b"),
        (readers.boolean, True, True),
        (readers.boolean, "false", False),
        (readers.boolean, "True", True),
        (readers.choice("a", "b"), "b", "b"),
        (readers.count(0, 10), "10", 10),
        (readers.count(0, 10_000), "10k", 10_000),
        (readers.seconds(0, 10), 0.5, 0.5),
        (readers.seconds(0, 10), "10", 10.0),
        (readers.port, 65535, 65535),
        (readers.rate, "2M", 2_000_000),
        (readers.host, "kafka-1.example.org", "kafka-1.example.org"),
        (readers.host, "kafka_1", "kafka_1"),
        (readers.host, "10.0.0.1", "10.0.0.1"),
        (readers.host, "[::1]", "::1"),
        (readers.host, "::", "::"),
        (readers.address, "kafka:9092", Address("kafka", 9092)),
        (readers.address, " kafka:9092 ", Address("kafka", 9092)),
        (readers.address, "[2001:db8::1]:9092", Address("2001:db8::1", 9092)),
        (readers.optional_address, "", None),
        (readers.optional_address, "h:1", Address("h", 1)),
        (readers.addresses, "a:1,b:2", (Address("a", 1), Address("b", 2))),
        (readers.addresses, ["a:1", "b:2"], (Address("a", 1), Address("b", 2))),
        (readers.upstreams, {"2": "b:2", "1": "a:1"}, {1: Address("a", 1), 2: Address("b", 2)}),
        (readers.upstreams, {}, {}),
        (readers.file_path, "a/b.toml", Path("a/b.toml")),
        (readers.optional_file_path, "", None),
        (readers.client_rates, "clientA:4M,clientB:10M", {"clientA": 4_000_000, "clientB": 10_000_000}),
        (readers.client_rates, "a:b:1", {"a:b": 1}),
        (readers.client_rates, "", {}),
    ],
)
def test_reader_takes(read: Reader, written: object, meant: object) -> None:
    assert read("key", written) == meant


@pytest.mark.parametrize(
    ("read", "written", "problem"),
    [
        (readers.text, "", "not empty"),
        (readers.text, 5, "must be a string"),
        (readers.boolean, 1, "true or false"),
        (readers.boolean, "yes", "true or false"),
        (readers.choice("a", "b"), "c", 'must be "a" or "b"'),
        (readers.choice("a", "b"), ["a"], 'must be "a" or "b"'),
        (readers.choice("a", unbuilt={"z": "z is not built yet"}), "z", "z is not built yet"),
        (readers.count(1, 10), 0, "between 1 and 10"),
        (readers.count(1, 10), 11, "between 1 and 10"),
        (readers.count(1, 10), True, "must be a number"),
        (readers.seconds(0, 10), 10.5, "between 0 and 10 seconds"),
        (readers.seconds(0, 10), -1, "between 0 and 10 seconds"),
        (readers.seconds(0, 10), "soon", "must be a number"),
        (readers.port, 0, "between 1 and 65535"),
        (readers.port, 65536, "between 1 and 65535"),
        (readers.rate, 0, "between 1"),
        (readers.host, "a:1", "without a port"),
        (readers.host, "a b", "host name"),
        (readers.host, "", "host name"),
        (readers.host, 7, "host name"),
        (readers.address, "kafka", "host:port"),
        (readers.address, 9092, "host:port"),
        (readers.address, ":9092", "must be host:port; the host 0.0.0.0 is for all addresses"),
        (readers.address, "kafka:", "host:port"),
        (readers.address, "kafka:x", "host:port"),
        (readers.address, "kafka:²", "host:port"),
        (readers.address, "kafka:0", "port must be between"),
        (readers.address, "kafka:65536", "port must be between"),
        (readers.address, "kafka:" + "9" * 5000, "port must be between"),
        (readers.address, "::1:9092", "in brackets"),
        (readers.address, "SASL_SSL://kafka1:9092", "without SASL_SSL://"),
        (readers.addresses, [], "several"),
        (readers.addresses, "", "several"),
        (readers.addresses, 9092, "several"),
        (readers.upstreams, "a:1", "a table of broker ids"),
        (readers.upstreams, {"x": "a:1"}, "must be a number"),
        (readers.upstreams, {"-1": "a:1"}, "must be between 0 and"),
        (readers.client_rates, 5, "must be a string"),
        (readers.client_rates, "a", "not client id, colon and rate"),
        (readers.client_rates, ":5", "not client id, colon and rate"),
        (readers.client_rates, "a:1,a:2", "twice"),
        (readers.client_rates, "a:1,", "not client id, colon and rate"),
    ],
)
def test_reader_refuses(read: Reader, written: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read("section.key", written)
    assert caught.value.path == "section.key" or caught.value.path.startswith("section.key.")
    assert str(caught.value).startswith("section.key")
    assert "got" in str(caught.value)


def test_address_in_a_list_is_named_by_its_index() -> None:
    with pytest.raises(ConfigError, match=r"^cluster\.bootstrap\[1\]: .* \(got 'b'\)$"):
        readers.addresses("cluster.bootstrap", ["a:1", "b"])


def test_override_names_the_client_id_at_fault() -> None:
    with pytest.raises(ConfigError, match=r"^quotas\.producer_override\[b\]: unknown unit 'X'"):
        readers.client_rates("quotas.producer_override", "a:1,b:1X")


@pytest.mark.parametrize(("address", "text"), [(Address("h", 1), "h:1"), (Address("::1", 2), "[::1]:2")])
def test_address_is_written_as_it_is_read(address: Address, text: str) -> None:
    assert str(address) == text
    assert readers.address("key", text) == address


def test_long_values_are_cut_in_errors() -> None:
    with pytest.raises(ConfigError) as caught:
        readers.host("key", "a b" * 10_000)
    assert len(str(caught.value)) < 200


def test_tilde_at_the_start_of_a_path_is_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/operator")
    for read in (readers.file_path, readers.optional_file_path):
        assert read("quotas.file", "~/quotas.toml") == Path("/home/operator/quotas.toml")
        assert read("quotas.file", "a~/~b") == Path("a~/~b")


def test_home_directory_that_is_not_known_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^quotas\.file: begins with ~, and this home directory is not known; "
    ):
        readers.file_path("quotas.file", "~no such user/quotas.toml")
