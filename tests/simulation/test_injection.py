"""Clock, ids, chance, threads, locks and limits are handed in: a history patches no module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.simulation.limits import FORMAT, tiny_format

PRODUCT = ("offsetlog", "pyspark_offsetlog")
PLANTED = {"mutations.py", "group_mutations.py", "delta_mutations.py"}


def patches(tree: ast.Module) -> Iterator[ast.AST]:
    """Where a name of the product's modules is given another value."""
    ours = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).partition(".")[0] in PRODUCT
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("setattr", "patched", "delattr"):
                yield node
        is_stored = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        if is_stored and getattr(node.value, "id", "") in ours:
            yield node


def test_only_planted_bugs_and_the_numbers_of_the_format_are_patched() -> None:
    found = {}
    for path in Path(__file__).parent.glob("*.py"):
        if path.name not in PLANTED and not path.name.startswith("test_"):
            found[path.name] = [node.lineno for node in patches(ast.parse(path.read_text()))]
    here = {name for name, lines in found.items() if lines}
    assert here == {"planting.py", "limits.py"}, found
    assert len(found["limits.py"]) == len(found["planting.py"]) / 2 == 1


def test_the_numbers_of_the_format_are_what_they_were_afterwards() -> None:
    before = [where.__dict__[name] for where, name, _ in FORMAT]
    with tiny_format():
        assert [where.__dict__[name] for where, name, _ in FORMAT] != before
    assert [where.__dict__[name] for where, name, _ in FORMAT] == before
