"""The dashboard and the alerts ask for what there is, and the documents say what there is."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from docs.generate import generated_metrics
from service.api.docs_page import error_classes
from service.metrics.catalogue import ALL, PROCESS
from service.settings import ROOT, variables

DASHBOARD: dict[str, Any] = json.loads((ROOT / "config/grafana/firn.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "config/prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [pytest.param(p, t, id=f"{p['title']} {t['refId']}") for p in PANELS for t in p["targets"]]
ALERTS = [pytest.param(rule, id=rule["alert"]) for rule in RULES]
EVERYWHERE = {"job", "instance"}
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


def series() -> dict[str, set[str]]:
    """What can be asked for: every series' name, and its labels."""
    found = {"up": set(EVERYWHERE)}
    for kind in (*ALL, *PROCESS):
        for suffix in _SUFFIXES.get(kind.kind, ("",)):
            bucket = {"le"} if suffix == "_bucket" else set()
            found[kind.name + suffix] = {*kind.labels, *EVERYWHERE, *bucket}
    return found


def parsed(expression: str) -> Any:
    """An expression as Prometheus reads it, with what Grafana puts in."""
    return promql_parser.parse(expression.replace("$__rate_interval", "5m").replace("$__range", "6h"))


def inside(expression: Any) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(expression, lambda node: found.append(node))
    return found


def selectors(expression: Any) -> list[Any]:
    return [node for node in inside(expression) if isinstance(node, promql_parser.VectorSelector)]


def check(expression: str) -> set[str]:
    """Every series of an expression is one, and so is every label; the labels that its result may have."""
    whole, known = parsed(expression), series()
    asked = selectors(whole)
    assert asked, expression
    for selector in asked:
        assert selector.name in known, f"{selector.name} is not told"
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= known[selector.name], f"{selector.name} has no {labels - known[selector.name]}"
    for node in inside(whole):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            for selector in selectors(node.expr):
                assert set(node.modifier.labels) <= known[selector.name], f"{selector.name}: {node.modifier.labels}"
    kept = [set(n.modifier.labels) for n in inside(whole) if isinstance(n, promql_parser.AggregateExpr) and n.modifier]
    bare = [n for n in inside(whole) if isinstance(n, promql_parser.AggregateExpr) and n.modifier is None]
    if kept:
        return set.union(*kept)
    return set() if bare else set.union(*(known[selector.name] for selector in asked))


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_every_panel_asks_for_what_there_is_and_names_it_by_labels_it_gets(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    labels = check(target["expr"])
    assert set(re.findall(r"{{\s*(\w+)\s*}}", target["legendFormat"])) <= labels
    assert panel["title"]
    assert panel["description"].endswith(".")


@pytest.mark.parametrize("rule", ALERTS)
def test_every_alert_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    labels = check(rule["expr"])
    assert set(rule["annotations"]) == {"summary", "description", "action"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    for text in rule["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels, text
        assert set(re.findall(r"\bFIRN_[A-Z_]*[A-Z]\b", text)) <= variables().keys(), text


def test_no_two_alerts_have_a_name() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_failing_means_the_same_in_the_alert_and_on_the_dashboard_and_leaves_out_stops_and_deadlines() -> None:
    """A client chooses its deadline, so that nobody must be paged for it."""
    failing = {kind.code for kind in error_classes() if kind.status >= 500}
    failing -= {"SHUTTING_DOWN", "DEADLINE_EXCEEDED"}
    patterns = [
        matcher.value
        for expression in [*(rule["expr"] for rule in RULES), *(t["expr"] for p in PANELS for t in p["targets"])]
        for selector in selectors(parsed(expression))
        for matcher in selector.matchers.matchers
        if matcher.name == "code" and matcher.op == promql_parser.MatchOp.Re
    ]
    assert len(patterns) == 2
    for pattern in patterns:
        assert {k.code for k in error_classes() if re.fullmatch(pattern, k.code)} == failing


def test_every_code_and_outcome_that_is_asked_for_is_one() -> None:
    codes = {"ok", *(kind.code for kind in error_classes())}
    known = {(kind.name, kind.labels[0]): set(kind.known) for kind in ALL if kind.known}
    known.update({(kind.name, "code"): codes for kind in ALL if "code" in kind.labels})
    asked = [*(rule["expr"] for rule in RULES), *(t["expr"] for p in PANELS for t in p["targets"])]
    exact = [
        ((selector.name, matcher.name), matcher.value)
        for expression in asked
        for selector in selectors(parsed(expression))
        for matcher in selector.matchers.matchers
        if matcher.op in (promql_parser.MatchOp.Equal, promql_parser.MatchOp.NotEqual)
    ]
    checked = [(label, value) for label, value in exact if label in known]
    assert checked
    assert [(label, value) for label, value in checked if value not in known[label]] == []


def test_every_metric_is_on_the_dashboard() -> None:
    asked = {s.name for panel in PANELS for target in panel["targets"] for s in selectors(parsed(target["expr"]))}
    missing = {k.name for k in ALL if not any(k.name + suffix in asked for suffix in _SUFFIXES.get(k.kind, ("",)))}
    assert missing == set()


def test_the_dashboard_takes_any_data_source_and_its_panels_do_not_overlap() -> None:
    variables_ = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables_["datasource"]["type"] == "datasource"
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert {t["datasource"]["uid"] for t in panel["targets"]} == {"${datasource}"}
        used = set(re.findall(r"\$(\w+)", " ".join(t["expr"] for t in panel["targets"])))
        assert used <= {*variables_, "__rate_interval"}
    for name in ("instance", "tenant"):
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables_[name]["definition"]).groups()  # type: ignore[union-attr]
        assert label in series()[metric]
    cells = [cell for panel in DASHBOARD["panels"] for cell in _cells(panel["gridPos"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def _cells(at: dict[str, int]) -> Iterator[tuple[int, int]]:
    return ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))


def test_the_rows_of_the_dashboard_are_the_ones_promised() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Current state",
        "Requests",
        "Writes, batches and commits",
        "Queries",
        "Compaction and small files",
        "Jobs",
        "Dynamic tables",
        "Engine and process",
    ]


def test_every_metric_and_every_alert_is_documented() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    assert generated_metrics(text) == text, "run `python -m docs.generate`"
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert [row for row in rows if row.startswith("Firn")] == [rule["alert"] for rule in RULES]
    assert {row for row in rows if not row.startswith("Firn")} == {kind.name for kind in (*ALL, *PROCESS)}


def test_what_prometheus_and_grafana_are_started_with_is_there() -> None:
    """The files that the compose file mounts, and what these name."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    watching = {name: s for name, s in compose["services"].items() if s.get("profiles") == ["monitoring"]}
    assert set(watching) == {"prometheus", "grafana"}
    for service in watching.values():
        for mounted in service["volumes"]:
            source = mounted.split(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in compose["volumes"]
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"])
    prometheus = yaml.safe_load((ROOT / "config/prometheus/prometheus.yml").read_text())
    assert all((ROOT / "config/prometheus" / file).exists() for file in prometheus["rule_files"])
    (job,) = prometheus["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("firn", "/metrics")
    assert job["static_configs"] == [{"targets": ["firn:8080"]}]
    sources = yaml.safe_load((ROOT / "config/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((ROOT / "config/grafana/provisioning/dashboards/firn.yml").read_text())["providers"]
    assert f"./config/grafana/firn.json:{provider['options']['path']}/firn.json:ro" in watching["grafana"]["volumes"]
