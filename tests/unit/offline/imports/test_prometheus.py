"""Responses of query_range and CSV files -> points of series; which series are read, and which are not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline.errors import InputError
from offline.imports.csv_rates import read_csv
from offline.imports.labels import Client, Meaning, Reading, broker_ids
from offline.imports.prometheus import POINTS_MAX, Server, Window, read_matrix, windows

DAY_MS = 86_400_000


def matrix(path: Path, *series: tuple[Mapping[str, str], list[list[Any]]], **more: Any) -> Path:
    result = [{"metric": labels, "values": values} for labels, values in series]
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}, **more}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


# Which series.


@pytest.mark.parametrize(
    ("labels", "meant"),
    [
        # The JMX exporter with the rules of its example.
        (
            {"__name__": "kafka_server_quota_byte_rate", "resource": "Produce", "user": "u", "clientId": "c"},
            Meaning(Client("produce", "u", "c", ""), "bytes", False),
        ),
        (
            {
                "__name__": "kafka_server_quota_throttle_time",
                "resource": "Fetch",
                "clientId": "c",
                "instance": "b:1",
            },
            Meaning(Client("fetch", "", "c", "b:1"), "throttle", False),
        ),
        # The JMX exporter without rules, with names and labels in lower case or not.
        (
            {"__name__": "kafka_server_Fetch_byte_rate", "client_id": "c", "user": ""},
            Meaning(Client("fetch", "", "c", ""), "bytes", False),
        ),
        # Strimzi's Metrics Reporter, scraped from pods.
        (
            {
                "__name__": "kafka_server_produce_byte_rate",
                "client_id": "c",
                "user": "CN%3Da",
                "instance": "10.0.0.1:9404",
                "kubernetes_pod_name": "my-broker-3",
            },
            Meaning(Client("produce", "CN=a", "c", "my-broker-3"), "bytes", False),
        ),
        # Sluice's own.
        (
            {"__name__": "sluice_client_bytes_total", "type": "Fetch", "client_id": "c", "user": ""},
            Meaning(Client("fetch", "", "c", ""), "bytes", True),
        ),
        (
            {"__name__": "sluice_client_throttle_seconds_total", "type": "Fetch", "client_id": "c"},
            Meaning(Client("fetch", "", "c", ""), "throttle", True),
        ),
        # sum by (client_id, resource) (...)
        ({"client_id": "c", "resource": "Produce"}, Meaning(Client("produce", "", "c", ""), "bytes", False)),
    ],
)
def test_names_of_exporters_are_known(labels: dict[str, str], meant: Meaning) -> None:
    assert Reading().meaning(labels) == meant


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"__name__": "kafka_server_leaderreplication_byte_rate"}, "no label names"),
        ({"__name__": "kafka_server_quota_byte_rate", "resource": "Produce"}, "no label names"),
        (
            {"__name__": "kafka_server_quota_request_time", "resource": "Request", "user": "u"},
            "request quota",
        ),
        ({"__name__": "kafka_server_request_throttle_time", "user": "u"}, "request quota"),
        ({"__name__": "kafka_server_quota_byte_rate", "resource": "Other", "user": "u"}, "is of other"),
        ({"__name__": "kafka_server_quota_byte_rate", "user": "u"}, "use --direction"),
        ({"__name__": "sluice_client_quota_byte_rate", "type": "Fetch", "user": "u"}, "not known"),
        ({"__name__": "sluice_client_debt_bytes", "type": "Fetch", "user": "u"}, "not known"),
        ({"client_id": "c"}, "use --direction"),
    ],
)
def test_what_is_no_rate_of_a_client_is_not_read(labels: dict[str, str], said: str) -> None:
    assert said in str(Reading().meaning(labels))


def test_operator_names_direction_and_labels() -> None:
    reading = Reading("fetch", {"client-id": "App", "broker": "host"})
    labels = {"__name__": "team:rates:avg15s", "app": "web", "client_id": "x", "host": "b1"}
    assert reading.meaning(labels) == Meaning(Client("fetch", "", "web", "b1"), "bytes", False)


def test_brokers_that_end_in_the_same_number_are_numbered() -> None:
    assert broker_ids(["a-1:1", "b-1:1"]) == {"a-1:1": 0, "b-1:1": 1}
    assert broker_ids(["7", "3"]) == {"3": 3, "7": 7}


# Files.


def test_points_of_a_matrix(tmp_path: Path) -> None:
    labels = {"__name__": "kafka_server_produce_byte_rate", "client_id": "c"}
    path = matrix(
        tmp_path / "a.json",
        (labels, [[1435781430.781, "1.5"], [1435781445.781, "NaN"], [1435781460.781, "2e6"]]),
    )
    (found,) = read_matrix(path)
    assert found.labels == labels
    assert found.file == "a.json"
    assert found.at_ms.tolist() == [1435781430781, 1435781445781, 1435781460781]
    assert np.array_equal(found.values, [1.5, np.nan, 2e6], equal_nan=True)


def test_matrix_may_have_nothing_in_it(tmp_path: Path) -> None:
    assert list(read_matrix(matrix(tmp_path / "a.json"))) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a.json: is empty"),
        ('{"status":"success","data":{"resultType":"matrix","result":[{"met', "is no response of Prometheus"),
        ("<html>", "is no response of Prometheus"),
        ('{"status":"error","errorType":"bad_data","error":"parse error at 3"}', "parse error at 3"),
        ('{"status":"success","data":{"resultType":"vector","result":[]}}', "is a vector, and no matrix"),
        (
            '{"status":"success","warnings":["store is gone"],"data":{"resultType":"matrix","result":[]}}',
            "may not be whole: store is gone",
        ),
        (
            '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"x"]]}]}}',
            r'a.json: the series \{a="b"\} cannot be read',
        ),
        (
            '{"status":"success","data":{"resultType":"matrix","result":[7]}}',
            "a.json: the series  cannot be read",
        ),
    ],
)
def test_wrong_files_are_named_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        list(read_matrix(tmp_path / "a.json"))


def test_missing_file_is_named(tmp_path: Path) -> None:
    for read in (read_matrix, read_csv):
        with pytest.raises(InputError, match=r"none\.json: No such file"):
            list(read(tmp_path / "none.json"))


def read_text(path: Path, text: str) -> list[tuple[dict[str, str], list[int], list[float]]]:
    path.write_text(text, encoding="utf-8")
    return [(dict(found.labels), found.at_ms.tolist(), found.values.tolist()) for found in read_csv(path)]


def test_long_csv_has_labels_in_columns(tmp_path: Path) -> None:
    text = (
        "time,client_id,direction,broker,value\n"
        "2026-01-01T00:00:15Z,web,produce,1,1000\n"
        "1767225615,app,fetch,2,5e3\n"
        "1767225630000,web,produce,1,2000\n\n"
    )
    assert read_text(tmp_path / "a.csv", text) == [
        (
            {"client_id": "web", "direction": "produce", "broker": "1"},
            [1767225615000, 1767225630000],
            [1000, 2000],
        ),
        ({"client_id": "app", "direction": "fetch", "broker": "2"}, [1767225615000], [5000]),
    ]


def test_wide_csv_is_what_grafana_exports(tmp_path: Path) -> None:
    text = (
        "\ufeffsep=,\n"
        '"Time","kafka_server_fetch_byte_rate{client_id=""a, b"", instance=""k-1:1""}","web"\n'
        "2026-01-01 00:00:15,10,20\n"
        "2026-01-01 00:00:30,,30\n"
    )
    (first, second) = read_text(tmp_path / "a.csv", text)
    assert first[0] == {"__name__": "kafka_server_fetch_byte_rate", "client_id": "a, b", "instance": "k-1:1"}
    assert first[1] == [1767225615000, 1767225630000]
    assert np.array_equal(first[2], [10, np.nan], equal_nan=True)
    assert second == ({"client_id": "web"}, [1767225615000, 1767225630000], [20, 30])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column time"),
        ("when,web\n1,2\n", "has no column time"),
        ("time,web\n1,1.5 MB/s\n", r"a\.csv, line 2: '1\.5 MB/s' is no number of bytes/s .*Formatted data"),
        ("time,web\nyesterday,1\n", r"a\.csv, line 2: 'yesterday' is no time"),
        ("time,web\n-5,1\n", "is no time"),
        ("time,web\n1,2,3\n", "line 2: has 3 columns, and the header 2"),
        ("time,web\n1," + "9" * 200_000 + "\n", "is no CSV in UTF-8"),
    ],
)
def test_wrong_lines_are_named_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_text(tmp_path / "a.csv", text)


# Queries.


def test_windows_stay_below_what_prometheus_answers_and_have_each_point_once() -> None:
    whole = Window(0, 30 * DAY_MS, 15_000)
    found = windows(whole)
    points = [at_ms for each in found for at_ms in range(each.start_ms, each.end_ms + 1, each.step_ms)]
    assert points == list(range(0, 30 * DAY_MS + 1, 15_000))
    assert max((each.end_ms - each.start_ms) // each.step_ms + 1 for each in found) == POINTS_MAX < 11_000


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Server("prometheus:9090"), "is no URL"),
        (Server("file:///etc/passwd"), "is no URL"),
        (Server("http://prometheus:9090", token="secret"), "over https only"),
        (Server("https://prometheus:9090", ca_file="none.pem"), "none.pem: is no file of certificates"),
    ],
)
def test_wrong_servers_are_told_before_anything_is_asked(tmp_path: Path, server: Server, said: str) -> None:
    with pytest.raises(InputError, match=said):
        server.ask(["up"], Window(0, 10, 10), tmp_path)
