"""Prometheus' rules and Grafana's dashboard: well-formed, and about metrics that exist."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.packaging.conftest import ROOT, run
from tests.packaging.promql import FUNCTIONS, balanced, functions, metrics, ranged

_DOCKER: Final = ROOT / "docker"
_DURATION: Final = re.compile(r"(\d+(ms|[smhdwy]))+")
_PROMETHEUS_OWN: Final = frozenset({"up"})
_SEVERITIES: Final = frozenset({"critical", "warning", "info"})


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((_DOCKER / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _dashboard() -> dict[str, Any]:
    found = json.loads((_DOCKER / "grafana" / "dashboards" / "sluice.json").read_text())
    assert isinstance(found, dict)
    return found


def _panels() -> list[dict[str, Any]]:
    """Return the panels, without the rows' titles."""
    return [panel for panel in _dashboard()["panels"] if panel["type"] != "row"]


def _expressions() -> list[str]:
    """Return the expressions of all panels and annotations."""
    dashboard = _dashboard()
    shown = [target["expr"] for panel in _panels() for target in panel["targets"]]
    return shown + [one["expr"] for one in dashboard["annotations"]["list"]]


def _everywhere(value: object, key: str) -> Iterator[Any]:
    """Yield the values of a key at any depth."""
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for inner in value.values():
            yield from _everywhere(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _everywhere(inner, key)


def _documented() -> set[str]:
    """Return the metrics of docs/metrics.md, which a test of its own compares with the code."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"^\| `([a-z_]+)`", text, re.MULTILINE))
    return (
        names | {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")} | _PROMETHEUS_OWN
    )


def well_formed(expression: str) -> bool:
    """Return whether an expression is one, as far as `promql` can say."""
    return balanced(expression) and functions(expression) <= FUNCTIONS and ranged(expression)


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_alert_is_well_formed(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Sluice[A-Za-z]+", rule["alert"])
    assert _DURATION.fullmatch(rule.get("for", "1m"))
    assert rule["labels"]["severity"] in _SEVERITIES
    assert rule["annotations"]["summary"].count("{{") == rule["annotations"]["summary"].count("}}")


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_alert_reads_metrics_that_exist(rule: dict[str, Any]) -> None:
    assert well_formed(rule["expr"])
    assert metrics(rule["expr"]) <= _documented()


def test_alerts_name_no_job() -> None:
    assert [rule["alert"] for rule in _rules() if re.search(r"\bjob=", rule["expr"])] == []


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool, which comes with Prometheus, is not here"
)
def test_alerts_fire_when_they_should() -> None:
    rules = Path(__file__).parent / "alerts.test.yml"
    run("promtool", "test", "rules", rules.name, cwd=rules.parent)


def test_alerts_have_names_of_their_own_and_are_explained() -> None:
    names = [rule["alert"] for rule in _rules()]
    explained = (ROOT / "docs" / "how-to" / "monitor.md").read_text()

    assert len(set(names)) == len(names)
    assert [name for name in names if f"`{name}`" not in explained] == []


@pytest.mark.parametrize("panel", _panels(), ids=lambda panel: f"{panel['id']}-{panel['title']}")
def test_panel_reads_metrics_that_exist(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert well_formed(target["expr"])
        assert metrics(target["expr"]) <= _documented()


def test_annotations_read_metrics_that_exist() -> None:
    for annotation in _dashboard()["annotations"]["list"]:
        assert well_formed(annotation["expr"])
        assert metrics(annotation["expr"]) <= _documented()


def test_every_expression_asks_for_the_chosen_processes() -> None:
    selectors = [
        (expression, selector)
        for expression in _expressions()
        for selector in re.findall(r"\b(?:sluice|process)_\w+(\{[^{}]*\})?", expression)
    ]
    chosen = '{job=~"$job",instance=~"$instance"'
    assert [expression for expression, selector in selectors if not selector.startswith(chosen)] == []


def test_dashboard_names_no_job_and_no_data_source() -> None:
    text = json.dumps(_dashboard())
    sources = [one for one in _everywhere(_dashboard(), "datasource") if isinstance(one, dict)]

    assert {one["uid"] for one in sources} == {"${datasource}"}
    assert 'job=\\"' not in text


def test_dashboard_uses_variables_that_it_has() -> None:
    dashboard = _dashboard()
    listed = [one["name"] for one in dashboard["templating"]["list"]]
    queries = [one["definition"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    used = set(re.findall(r"\$(\w+)", " ".join([*_expressions(), *queries])))

    assert listed[:2] == ["datasource", "job"]
    assert used - {"__rate_interval"} == set(listed) - {"datasource"}
    for query in queries:
        name = re.match(r"label_values\((\w+)", query)
        assert name is not None
        assert name[1] in _documented()


def test_dashboard_shows_each_group_of_metrics() -> None:
    shown = set().union(*map(metrics, _expressions()))
    groups = ("client_longest", "client_waited", "topic", "replication", "reassignment", "fleet", "quota")
    for group in groups:
        assert any(name.startswith(f"sluice_{group}_") for name in shown), group


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in _dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24  # Grafana's grid
        assert taken.isdisjoint(cells)
        taken |= cells


def test_prometheus_scrapes_the_gateways_admin_port() -> None:
    settings = yaml.safe_load((_DOCKER / "prometheus" / "prometheus.yml").read_text())

    assert settings["rule_files"] == ["alerts.yml"]
    assert settings["scrape_configs"][0]["static_configs"][0]["targets"] == ["sluice:19080"]
