"""How the rooms hang together: what the source itself says, each file parsed once for all of these tests.

No circle of imports, no decision by an error's text, one name for one thing, short files, no parser written twice. And a list
of names stands once, in its registry: constructions, kinds, parts of kernels and tasks are asked for by property. Outside the
registries, the two independent checkers and the format page, no literal of the package holds two registered names, and no
condition asks for one by name. What may all the same is listed here, with the reason.
"""

import ast
import copy
import importlib.util
import itertools
import re
import statistics
from collections import Counter
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import planting
import pytest

from utfproof.attention import PARTS
from utfproof.certificates import checker
from utfproof.constructions import CONSTRUCTIONS
from utfproof.training.tasks import TASKS

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "utfproof").rglob("*.py"))
SOURCES = [*PACKAGE, *sorted((ROOT / "scripts").glob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONG = {"utfproof/certificates/checker.py", "tests/sceptic.py"}
"""The two independent checkers are one file each by design."""
MOST_LINES = {"utfproof": 500, "tests": 600}
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
            if (
                isinstance(child, ast.If)
                and getattr(child.test, "id", getattr(child.test, "attr", "")) == "TYPE_CHECKING"
            ):
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


@pytest.mark.full
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
    long = {name: lines for name, lines in lengths.items() if lines > MOST_LINES[name.split("/")[0]]}
    assert set(long) <= LONG, long


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


# --- lists of names ----------------------------------------------------------------------------------------

NAMES = {
    "construction": set(CONSTRUCTIONS),
    "kind": set(checker.KINDS),
    "part": {part.name.split(":")[0] for part in PARTS},
    "task": set(TASKS),
}
REGISTRIES = {
    "construction": "utfproof/constructions/",
    "kind": "utfproof/certificates/",
    "part": "utfproof/attention/",
    "task": "utfproof/training/tasks/",
}
CHECKER = "utfproof/certificates/checker.py"
ALLOWED = {
    ("construction", "utfproof/claims/"): "a statement speaks of the hosts that it names",
    ("construction", "utfproof/benchmarks/"): "contestants of measurements that are on record",
    ("construction", "utfproof/training/"): "the hosts that the paper trained, and those that further runs are made of",
    ("construction", "scripts/"): "measurements and pages that are about certain hosts",
    ("part", "utfproof/claims/"): "a statement speaks of the kernels that it names",
    ("part", "utfproof/models/"): "what files of other libraries call their own masks and positions",
    ("task", "utfproof/claims/"): "a statement speaks of the tasks that it names",
    ("task", "utfproof/paper/"): "the paper's own tables",
    ("task", "scripts/"): "quotations of the paper, and measurements on record",
}
"""(what, where): why names may be listed there."""
WORDS = {"tied", "random"}
"""Names that are common words too: a comparison with one of them alone says nothing."""


def sources():
    return {str(path.relative_to(ROOT)): tree_of(path) for path in SOURCES}


def listed(tree, names):
    """(line, the names) of every tuple, list, set or dict with two of these names, and of every comparison with one."""
    found = []
    for node in ast.walk(tree):
        compared = isinstance(node, ast.Compare)
        if compared:
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        else:
            parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
        held = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)} & names
        if len(held) > 1 or (compared and held - WORDS):
            found.append((node.lineno, sorted(held)))
    return found


@pytest.mark.parametrize("what", NAMES)
def test_no_list_of_names_stands_outside_its_registry(what):
    rooms = (REGISTRIES[what], CHECKER, *(place for kind, place in ALLOWED if kind == what))
    found = {path: listed(tree, NAMES[what]) for path, tree in sources().items() if not path.startswith(rooms)}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(("what", "place"), ALLOWED)
def test_what_is_allowed_is_there(what, place):
    """An exception that is no longer one goes."""
    assert any(listed(tree, NAMES[what]) for path, tree in sources().items() if path.startswith(place))


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ('HOSTS = ("sparse", "tied")', True),
        ('KEPT = {"sparse": 1, "other": 2, "sparse-front": 3}', True),
        ('def f(name):\n    return name == "shared-key"', True),
        ('def f(name):\n    return name in ("shared-key", "other")', False),
        ('def f(name):\n    return name in ("shared-key", "shared-query")', True),
        ('HOST = "sparse"', False),
        ('def f(host):\n    return host == "tied"', False),
    ],
)
def test_a_planted_list_is_found(planted, found):
    assert bool(listed(ast.parse(planted), NAMES["construction"])) == found


# --- no parser is written twice ------------------------------------------------------------------------------

READS = {
    "split",
    "partition",
    "rpartition",
    "fullmatch",
    "match",
    "finditer",
    "splitlines",
    "loads",
    "isdecimal",
    "isdigit",
}
MAKES = {"int", "float", "Fraction", "loads", "MalformedInput"}
INDEPENDENT = ("checker.py", "checker_numpy.py")
ALIKE = 0.8
"""Share of what two parsers have in common from which on they are one."""


class Nameless(ast.NodeTransformer):
    """Code without its names and constants."""

    def visit_Name(self, node):
        return ast.Name("x", node.ctx)

    def visit_Constant(self, node):
        return ast.Constant(type(node.value).__name__)

    def visit_JoinedStr(self, node):
        return ast.Constant("str")


def parsers(tree):
    """{name: words of its code without names} of the functions that take a text apart and make values of it, or refuse it."""
    found = {}
    for node in tree.body:
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, ast.FunctionDef):
                calls = [part.func for part in ast.walk(function) if isinstance(part, ast.Call)]
                called = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
                if called & READS and called & MAKES:
                    body = copy.deepcopy(function.body[ast.get_docstring(function) is not None :])
                    body = [Nameless().visit(part) for part in body]
                    found[function.name] = re.findall(r"\w+", ast.dump(ast.Module(body, [])))
    return found


def twins(pairs):
    """The names of two parsers that are alike but for names, of pairs of (name, words)."""
    found = []
    for (one, left), (other, right) in pairs:
        match = SequenceMatcher(None, left, right, autojunk=False)
        if match.real_quick_ratio() >= ALIKE and match.quick_ratio() >= ALIKE and match.ratio() >= ALIKE:
            found.append((one, other))
    return found


@cache
def package_parsers():
    paths = [path for path in PACKAGE if path.name not in INDEPENDENT]
    return {(path.stem, name): words for path in paths for name, words in parsers(tree_of(path)).items()}


def test_no_parser_is_written_twice():
    found = package_parsers()
    assert len(found) > 50
    assert twins(itertools.combinations(found.items(), 2)) == []


def test_a_parser_that_is_written_again_is_found():
    again = """
def ends(word):
    hit = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", word.replace("_", ""), re.ASCII)
    return None if hit is None else (int(hit[1]), int(hit[2] or hit[1]))
"""
    pairs = itertools.product(package_parsers().items(), parsers(ast.parse(again)).items())
    assert twins(pairs) == [(("shapes", "span"), "ends")]


def test_digits_are_recognised_in_one_place():
    """Numbers of any length, and digits of other scripts, are met once; a form's check makes no number."""
    places = [path for path in PACKAGE if re.search(r"\.is(decimal|digit|numeric)\(", path.read_text())]
    assert {path.name for path in places} - set(INDEPENDENT) == {"shapes.py", "forms.py"}


# --- docstrings --------------------------------------------------------------------------------------------


def test_no_docstring_holds_a_heading_or_a_fence():
    """The API pages show them as prose."""
    for path in PACKAGE:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                assert not re.search(r"^(#|:::|```)", ast.get_docstring(node), flags=re.MULTILINE), (path, node.lineno)
