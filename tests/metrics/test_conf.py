"""The dashboard, the alerts and the scaling in conf/: what they ask for exists, by its name and by
its labels; and promtool, where it can be had, agrees and sees each alert fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from offsetlog.cli.page import command as page_command
from offsetlog.cli.params import HostPort
from offsetlog.metrics import server
from offsetlog.metrics.families import FAMILIES
from tests.pages import ROOT
from tests.servers import promtool

CONF = ROOT / "conf"
DASHBOARD = json.loads((CONF / "grafana_dashboard.json").read_text())
ALERTS = yaml.safe_load((CONF / "prometheus_alerts.yaml").read_text())
SCALING = yaml.safe_load((CONF / "keda.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
LABELS = {family.name: {*family.labels, "job", "instance"} for family in FAMILIES}
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(rule["expr"] for rule in RULES),
    *(trigger["metadata"]["query"] for trigger in SCALING["spec"]["triggers"]),
]
WORDS = {
    "sum", "max", "count", "by", "on", "and", "rate", "deriv", "changes", "absent", "clamp_min",
    "group_left", "time",
}  # fmt: skip


def wrong_with(expression: str) -> list[str]:
    """Metrics and labels of an expression that are not there."""
    matched = re.findall(r"(\w+)\s*\{([^}]*)\}", expression)
    wrong = [name for name, _ in matched if name not in LABELS]
    for name, labels in matched:
        own = LABELS.get(name, set())
        wrong += [f"{name}: {label}" for label in re.findall(r"(\w+)\s*[=!]", labels)
                  if label not in own]  # fmt: skip
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", "", expression)
    # What follows "and on (...)" chooses among what stands before it, by those labels alone.
    first, *others = re.split(r"\band\s+on\s*\(([^)]*)\)", bare)
    for by, part in [("", first), *zip(others[::2], others[1::2], strict=True)]:
        grouped = re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", part)
        part = re.sub(r"\b(by|on|group_left)\s*\([^)]*\)", r"\1", part)
        names = set(re.findall(r"[a-z_]\w*", part)) - WORDS
        wrong += sorted(names - LABELS.keys())
        carried = [LABELS[name] for name in names & LABELS.keys()]
        labels = {word.strip() for words in [*grouped, by] for word in words.split(",")} - {""}
        wrong += [f"by {one}" for one in labels if not all(one in own for own in carried)]
    return wrong


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_asked_for_exists(expression: str) -> None:
    assert not wrong_with(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "kafka_consumergroup_lags",
        'kafka_consumergroup_lag{group="g"}',
        "sum by (group) (kafka_consumergroup_lag)",
        "sum by (partition) (kafka_consumergroup_members)",
        "kafka_consumergroup_lag < on (topic, member) kafka_topic_partitions",
        "kafka_consumergroup_lag > 0 and on (topic) kafka_consumergroup_members > 0",
    ],
)
def test_what_does_not_exist_is_noticed(expression: str) -> None:
    assert wrong_with(expression)


def test_the_dashboard_is_whole() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 8
    for panel in panels:
        assert panel["title"] and panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= VARIABLES.keys()
            names = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            by = re.search(r"by \(([^)]*)\)", target["expr"])
            assert names == (by[1].split(", ") if by else [])
    for variable in VARIABLES.values():
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert asked is not None
            metric, label = asked.groups()
            assert label in LABELS[metric]
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for at in places
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


def test_every_metric_is_on_the_dashboard_or_said_why_not() -> None:
    shown = {name for expression in EXPRESSIONS for name in re.findall(r"\w+", expression)}
    left_out = {"offsetlog_query_lag", "offsetlog_query_lag_bytes"}
    left_out |= {"offsetlog_query_current_offset"}  # In seconds they are there.
    assert LABELS.keys() - shown == left_out


def test_the_collector_scrapes_what_is_served() -> None:
    """Each part that a pipeline names is there, and the target is what the comment starts."""
    file = CONF / "otel_collector.yaml"
    recipe = yaml.safe_load(file.read_text())
    [(kind, pipeline)] = recipe["service"]["pipelines"].items()
    assert kind == "metrics" and set(pipeline) == {"receivers", "processors", "exporters"}
    for part, names in pipeline.items():
        assert list(recipe[part]) == names
    [job] = recipe["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert job["metrics_path"] == server.PATH and job.get("scheme", "http") == "http"
    [target] = [one for static in job["static_configs"] for one in static["targets"]]
    told = re.search(r"^# Use it with: .* metrics --listen (\S+)$", file.read_text(), re.M)
    assert told is not None and HostPort().parse(told[1]) == HostPort().parse(target)
    page = next(one for one in page_command.params if one.name == "port")
    assert f"127.0.0.1:{page.default}." in file.read_text()


def test_alerts_say_what_they_are_about() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        text = " ".join(rule["annotations"].values())
        used = set(re.findall(r"\$labels\.(\w+)", text))
        by = re.findall(r"by \(([^)]*)\)", rule["expr"])
        kept = set(by[0].split(", ")) if by else {"consumergroup", "topic", "partition"}
        assert used <= kept, rule["alert"]


def test_scaling_follows_the_lag_of_one_group() -> None:
    assert SCALING["kind"] == "ScaledObject" and SCALING["apiVersion"].startswith("keda.sh/")
    for trigger in SCALING["spec"]["triggers"]:
        about = trigger["metadata"]
        assert trigger["type"] == "prometheus" and float(about["threshold"]) > 0
        assert isinstance(about["threshold"], str) and isinstance(about["activationThreshold"], str)
        assert 'consumergroup="billing"' in about["query"]


# --- promtool ----------------------------------------------------------------------------------


@pytest.fixture
def program() -> Path:
    program = promtool.install()
    if program is None:
        pytest.skip("there is no promtool here, and none from Debian")
    return program


def run(*command: object, folder: Path) -> None:
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_reads_every_expression(program: Path, tmp_path: Path) -> None:
    run(program, "check", "rules", CONF / "prometheus_alerts.yaml", folder=tmp_path)
    rules = [
        {"record": f"e:{n}", "expr": re.sub(r"\$__rate_interval", "5m", expression)}
        for n, expression in enumerate(EXPRESSIONS)
    ]
    document = {"groups": [{"name": "all", "rules": rules}]}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(document))
    run(program, "check", "rules", "all.yaml", folder=tmp_path)


def test_each_alert_fires_when_it_should(program: Path, tmp_path: Path) -> None:
    cases = Path(__file__).with_name("alert_cases.yaml")
    for file in (cases, CONF / "prometheus_alerts.yaml"):
        shutil.copy(file, tmp_path)
    tested = {test["alertname"] for case in yaml.safe_load(cases.read_text())["tests"]
              for test in case["alert_rule_test"] if test["exp_alerts"]}  # fmt: skip
    assert tested == {rule["alert"] for rule in RULES}
    run(program, "test", "rules", cases.name, folder=tmp_path)
