"""The README's code runs, and what it and the other pages say of the package is so."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from bench import readme
from bench.figures import figure_names
from bench.figures_page import number
from bench.results import Row, load
from tests.pages import PAGES, ROOT, blocks, moved, run

README = ROOT / "README.md"
LINKS = [
    (page, target)
    for page in PAGES
    for target in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text())
]


def test_the_first_program(tmp_path: Path) -> None:
    programs = [moved(p, tmp_path) for p in blocks("python", README) if "offsetlog-first" in p]
    first, groups = programs
    for _ in range(2):
        out = run([sys.executable, "-c", first])
        assert "b'ann' b'3 apples'" in out
    assert re.search(r"\{0: \d, 1: \d, 2: \d\}", out)
    for _ in range(2):  # the reset at its end lets a second run read the same again
        out = run([sys.executable, "-c", groups])
        assert "b'3 apples'" in out
        assert out.count("partition=") == out.count("): 0") == 3


def test_the_page_on_groups(tmp_path: Path) -> None:
    [program] = blocks("python", ROOT / "docs" / "groups.md")
    out = run([sys.executable, "-c", moved(program, tmp_path)])
    assert "b'29'" in out


def test_the_same_without_a_program(tmp_path: Path) -> None:
    [script] = [text for text in blocks("sh", README) if "OFFSETLOG_ROOT" in text]
    out = run(["bash", "-euo", "pipefail"], moved(script, tmp_path))
    assert '"value": "3 apples"' in out or '"value":"3 apples"' in out
    assert sum(int(n) for n in re.findall(r"^orders:\d:(\d+)$", out, flags=re.MULTILINE)) == 2


def test_the_two_commands_exist() -> None:
    [script] = [text for text in blocks("sh", README) if "make demo" in text]
    targets = re.findall(r"^make (\w+)", script, flags=re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in [*targets, "bench", "soak"])


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_links_point_to_what_is_there(page: Path, target: str) -> None:
    path, _, heading = target.partition("#")
    file = page.parent / path if path else page
    assert file.exists()
    if heading:
        titles = re.findall(r"^#+ (.*)$", file.read_text(), flags=re.MULTILINE)
        assert heading in [re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles]


def test_every_page_is_in_the_readmes_table() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", README.read_text()))
    assert {str(page.relative_to(ROOT)) for page in PAGES if page != README} <= linked


def test_the_tests_that_are_named_exist() -> None:
    tests = ROOT / "tests"
    for page in (tests / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"):
        path = ""
        for file, name in re.findall(r"`([\w/]+\.py)?(?:::(\w+))?`", page.read_text()):
            path = file or path
            if path and "test_" in f"{path}{name}":
                source = tests / path.removeprefix("tests/")
                assert f"def {name}(" in source.read_text() if name else source.exists()


def test_the_rooms_that_are_named_exist() -> None:
    """The files that CONTRIBUTING.md names, but for those that its examples would add."""
    named = set(
        re.findall(
            r"`([\w/.]+\.(?:py|toml|cfg|txt))(?:::\w+)?`", (ROOT / "CONTRIBUTING.md").read_text()
        )
    )
    added = {"offsetlog/storage/object/oci.py", "conf/oci.toml", "offsetlog/cli/sizes.py"}
    places = [ROOT, ROOT / "offsetlog", ROOT / "spark_plugin" / "pyspark_offsetlog", ROOT / "tests"]
    assert added < named and len(named) > 30
    assert not {
        name for name in named - added
        if not any((place / name).exists() for place in [*places, ROOT / "tests" / "generators"])
    }  # fmt: skip


def test_the_walks_name_what_is_there() -> None:
    """Functions, methods and locks that docs/architecture.md names exist in the code."""
    names: set[str] = set()
    for package in ("offsetlog", "spark_plugin"):
        for path in (ROOT / package).rglob("*.py"):
            names.add(path.stem)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    names.add(node.name)
                if isinstance(node, ast.ClassDef):
                    for part in ast.walk(node):
                        if isinstance(part, ast.FunctionDef):
                            names.add(f"{node.name}.{part.name}")
                        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                            names.add(f"{node.name}.{part.attr}")
    for path in (ROOT / "spark_plugin").rglob("*.java"):
        words = set(re.findall(r"\w+", path.read_text()))
        names |= words | {f"{path.stem}.{word}" for word in words}
    page = (ROOT / "docs" / "architecture.md").read_text()
    _, _, walks = page.partition("## The life of an append")
    named = re.findall(r"`([A-Z]\w+(?:\.\w+)?|[a-z_]+)`", walks)
    assert len(named) > 60
    missing = set(named) - names - {"offsetlog", "pyspark_offsetlog"}
    assert not missing, missing


def test_the_page_on_logging() -> None:
    [program] = blocks("python", ROOT / "docs" / "logging.md")
    assert run([sys.executable, "-c", program]) == ""


def test_the_import_is_light() -> None:
    """No Arrow, no filesystem, no Spark until they are needed."""
    heavy = "pyarrow fsspec numpy deltalake pyspark pandas click rich s3fs"
    code = (
        "import sys, offsetlog; names = dir(offsetlog);"
        f"print([m for m in {heavy.split()!r} if m in sys.modules])"
    )
    assert run([sys.executable, "-c", code]).strip() == "[]"


def test_all_that_is_exported_can_be_imported() -> None:
    import offsetlog

    assert all(hasattr(offsetlog, name) for name in offsetlog.__all__)
    assert set(offsetlog.__all__) <= set(dir(offsetlog))
    for name in ("Log", "Producer", "Consumer", "Topic", "Group", "Record", "RecordMetadata"):
        assert getattr(offsetlog, name).__name__ == name and name in offsetlog.__all__
    assert issubclass(offsetlog.OffsetLogWarning, UserWarning)
    assert not hasattr(offsetlog, "Stream")


def test_an_editor_can_complete_every_setting() -> None:
    """No ``**settings`` at the front door, and the defaults are those of the class behind it."""
    from offsetlog import Consumer, Log, Producer

    def parameters(call: Any) -> dict[str, Any]:
        return dict(inspect.signature(call).parameters)

    for call in (Log.consumer, Log.producer, Log.maintain, Log.verify, Log.create_topic):
        kinds = {parameter.kind for parameter in parameters(call).values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
    for call, kind in ((Log.consumer, Consumer), (Log.producer, Producer)):
        behind = parameters(kind)
        del behind["host"]
        front = parameters(call)
        del front["self"]
        assert front == behind
        assert get_type_hints(call)["return"] is kind


def test_settings_are_the_ones_that_exist() -> None:
    from offsetlog.values import CONFIG_KEYS

    lines = README.read_text().splitlines()
    [line] = [line for line in lines if line.startswith("Settings by Kafka's names")]
    named = set(re.findall(r"`([a-z.]+)`", line))
    assert named - {"."} == set(CONFIG_KEYS)


def test_the_figures_are_those_that_were_measured() -> None:
    """``python -m bench.readme`` writes both pages; here it only looks."""
    run([sys.executable, "-m", "bench.readme", "--check"])


@pytest.mark.parametrize("name", ["README", "FIGURES"])
def test_a_page_that_shows_something_else_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    page = getattr(readme, name)
    copy = tmp_path / page.name
    monkeypatch.setattr(readme, name, copy)
    copy.write_text(page.read_text())
    assert readme.main(["--check"]) == 0
    shown = number(_results()[0]["ours"])
    assert shown in page.read_text()
    copy.write_text(page.read_text().replace(shown, "0.001"))
    assert readme.main(["--check"]) == 1


def _results() -> list[Row]:
    return load(readme.RESULTS)


def test_each_figure_is_shown_once() -> None:
    lines = readme.FIGURES.read_text().splitlines()
    for row in _results():
        name = row["name"].replace("_", " ")
        [line] = [line for line in lines if line.startswith(f"| {name} |")]
        assert line.endswith("| yes |" if row["met"] else "| **no** |")
        assert number(row["ours"]) in line and number(row["peer"]) in line
    missed = sum(not row["met"] for row in _results())
    assert sum(line.endswith("| **no** |") for line in lines) == missed


def test_the_readme_hides_no_peer_that_is_ahead() -> None:
    """Each figure of the summary stands beside all peers of its kind that were measured."""
    registered = set(figure_names())
    rows = {row["name"]: row for row in _results()}
    text = README.read_text()
    for line in readme.HEADLINES:
        names = [name for peers in line[3:] for name, _ in peers]
        assert {line.figure, *names} <= registered
        for name, row in rows.items():
            family = name == line.figure or name.startswith(f"{line.figure}_vs_")
            if family and row["peer_name"] != "ours, seven columns" and "hand_over" not in name:
                assert name in names, name
        shown = [one for one in text.splitlines() if one.startswith(f"| {line.what} |")]
        assert len(shown) == (line.figure in rows), line.what
        assert all(number(rows[name]["peer"]) in shown[0] for name in names if name in rows)
