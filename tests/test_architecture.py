"""How the rooms hang together: no circle of imports, no decision by an error's text, one name for one thing, short files."""

import ast
import importlib.util
import statistics
from collections import Counter
from functools import cache
from pathlib import Path

import planting
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "utfproof").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONG = {"utfproof/certificates/checker.py", "tests/sceptic.py"}
"""The two independent checkers are one file each by design."""
MOST_LINES = 600
MEDIAN_BEFORE = 7
"""Lines of the median function of `utfproof` at the tag before-house, by `function_lengths`."""


@cache
def tree_of(path):
    return ast.parse(path.read_text())


# --- imports -----------------------------------------------------------------------------------------------


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree, modules):
    """The modules of the package that this one imports, within functions too, but for those that types alone need."""
    found = set()

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for other in child.orelse:
                    visit(other)
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                full = {f"{child.module}.{alias.name}": child.module for alias in child.names}
                found.update(name if name in modules else module for name, module in full.items())
            visit(child)

    visit(tree)
    return found & set(modules)


def circles(graph):
    """The strongly connected parts of more than one module, by Kosaraju's two searches."""

    def reach(start, edges, seen, order):
        stack = [(start, iter(sorted(edges[start])))]
        seen.add(start)
        while stack:
            for following in stack[-1][1]:
                if following not in seen:
                    seen.add(following)
                    stack.append((following, iter(sorted(edges[following]))))
                    break
            else:
                order.append(stack.pop()[0])

    order, seen = [], set()
    for name in graph:
        if name not in seen:
            reach(name, graph, seen, order)
    backwards = {name: {other for other in graph if name in graph[other]} for name in graph}
    parts, seen = [], set()
    for name in reversed(order):
        if name not in seen:
            parts.append([])
            reach(name, backwards, seen, parts[-1])
    return [sorted(part) for part in parts if len(part) > 1]


def import_graph(sources):
    """From {module: tree}: the modules that each one imports."""
    return {name: imported(tree, sources) - {name} for name, tree in sources.items()}


def test_there_is_no_circle_of_imports():
    """Those within functions count: they may keep a start light, not hide a circle."""
    assert circles(import_graph({module_name(path): tree_of(path) for path in PACKAGE})) == []


def test_a_circle_of_imports_is_found():
    lazy = "def f():\n    from utfproof.b import g\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from utfproof.b import g\n"
    back = "import utfproof.a\n"
    for first, expected in ((lazy, [["utfproof.a", "utfproof.b"]]), (typed, [])):
        graph = import_graph({"utfproof.a": ast.parse(first), "utfproof.b": ast.parse(back)})
        assert circles(graph) == expected


# --- errors ------------------------------------------------------------------------------------------------


def decisions_by_text(tree):
    """Lines where the text of a caught error is compared or searched."""
    lines = []
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        for node in ast.walk(handler):
            asked = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in SEARCHES:
                asked = [node.func, *node.args]
            texts = (f"str({handler.name})", f"{handler.name}.args", f"repr({handler.name})")
            if any(text in ast.unparse(part) for part in asked for text in texts):
                lines.append(node.lineno)
    return lines


SEARCHES = {"startswith", "endswith", "search", "match", "fullmatch", "find", "count", "findall"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [('"RoPE" in str(error)', True), ('str(error).startswith("no")', True), ("error.errno == 2", False)],
)
def test_a_decision_by_an_errors_text_is_found(asked, found):
    assert bool(decisions_by_text(ast.parse(f"try:\n    f()\nexcept E as error:\n    g({asked})"))) == found


def test_nothing_is_decided_by_the_text_of_an_error():
    assert {str(p): lines for p in PACKAGE if (lines := decisions_by_text(tree_of(p)))} == {}


# --- names and sizes ---------------------------------------------------------------------------------------


COMMANDS = {"cli", "jobs"}
"""A command's class is named after the command, whatever that has for its subject."""


def test_a_public_class_name_means_one_thing():
    names = Counter(
        node.name
        for path in PACKAGE
        if path.name != "checker.py" and path.parent.name not in COMMANDS
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_the_top_level_is_small():
    assert len([p for p in (ROOT / "utfproof").glob("*.py") if not p.name.startswith("__")]) <= 6


def test_files_are_short():
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in PACKAGE + TESTS}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES and name not in LONG} == {}


def function_lengths(trees):
    """Lines of every function, its signature and docstring included."""
    return [
        node.end_lineno - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_the_median_function_is_no_longer_than_it_was():
    assert statistics.median(function_lengths(map(tree_of, PACKAGE))) <= MEDIAN_BEFORE


def test_every_planted_fault_finds_its_line():
    for fault in planting.tables().values():
        source = Path(importlib.util.find_spec(fault.module).origin).read_text()
        assert source.count(fault.old) == 1, (fault.table, fault.name)
