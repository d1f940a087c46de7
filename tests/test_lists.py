"""A list of names stands once, in its registry: constructions, kinds, parts of kernels and tasks are asked for by property.

Outside the registries, the two independent checkers and the format page, no literal of the package holds two registered names,
and no condition asks for one by name. What may all the same is listed here, with the reason.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from utfproof.attention import PARTS
from utfproof.certificates import checker
from utfproof.constructions import CONSTRUCTIONS
from utfproof.training.tasks import TASKS

ROOT = Path(__file__).parents[1]
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


@cache
def sources():
    paths = [*(ROOT / "utfproof").rglob("*.py"), *(ROOT / "scripts").glob("*.py")]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(paths)}


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
