"""What the routes of a claim share, read from the source: never said by hand.

Where a claim holds results against each other it names them: `agree({"FLINT": ..., "plain integers": ...})`. What a route rests on
is everything that its expression reaches: the local names that it is made of, the functions and classes that these name, and so
on; methods by their name, of the classes that are reached and of those that describe the object examined. What stands under a
local name that both are made of is given to both. Beside that both read the object (shapes, systems, selection matrices, hosts);
where they reach any other code together, they are not two routes. Operators, and functions that a table
holds (bounds, constructions), are not followed; tests hold what is reached against what runs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache, cached_property
from pathlib import Path
from typing import Any

from utfproof.claims.computed import Shared

EXAMINED = ("shapes", "systems", "ground", "constructions", "models", "paper", "errors", "attention", "claims.hosts")
"""Rooms of the object examined, which both routes read."""
CLASSES = ("shapes", "systems", "systems.biases", "ground.selection")
"""Rooms whose classes are looked through for every method that is called."""
NOTATION = (
    *(
        "claims.plain.rows",
        "claims.plain.words",
        "claims.plain.identity",
        "claims.plain.transpose",
        "claims.plain.beside",
    ),
    *(
        "claims.decisions.dense",
        "claims.small_models.array",
        "matching.equations.exact_target",
        "matching.equations._converted",
    ),
    *(
        "exact.symbolic.generic.Layout",
        "exact.symbolic.lower_bound._grid",
        "exact.symbolic.statements",
        "exact.symbolic.words",
    ),
    *(
        "exact.symbolic.normalisation.Surd",
        "exact.symbolic.normalisation.root_parts",
        "exact.symbolic.normalisation.trimmed",
    ),
    *("claims.plain.rational_attention", "claims.normalised_models.distance"),
)
"""How both write things down: between NumPy's numbers and lists, the order of words, names of indeterminates, numbers a + b√c; the
attention that stands for any, and the distance that is compared."""
SYMBOLIC = "exact.symbolic"
DECLARED: dict[str, dict[str, tuple[str, ...]]] = {
    f"{SYMBOLIC}.generic:generic_r_all": {"SymPy": ("_by_layers", "from_ring"), "plain integers": ("_by_paths",)},
    f"{SYMBOLIC}.determinant:determinant_polynomial": {
        "SymPy": ("_by_minors",),
        "plain integers": ("_by_permutations",),
    },
    f"{SYMBOLIC}.lower_bound:spanning": {"NumPy": ("_vectors",), "plain integers": ("_vector",)},
    f"{SYMBOLIC}.blocks:block_diagonal": {"NumPy": ("_find",), "plain integers": ("_is_identity",)},
    "claims.companions:beyond": {
        "prover beyond the bound": ("dimension_certificate",),
        "checker beyond the bound": ("checker.check_file",),
    },
}
"""Functions that hold two results against each other without naming them -> the functions that compute either."""
WRAPPERS = {
    _lru_cache_wrapper: "__wrapped__",
    property: "fget",
    cached_property: "func",
    classmethod: "__func__",
    staticmethod: "__func__",
}
"""What stands before a function -> where it keeps it."""
ADDING = ("append", "extend", "add")
"""Methods that make a name of what they are given."""
Parts = dict[str, list[ast.AST]]
SIDES = ("SymPy", "plain integers")
"""Names of what `exact.symbolic.results.decide(statement, first, second)` holds against each other."""


@dataclass(frozen=True)
class Names:
    """What a piece of source names. functions, classes: of the package, by name. methods: names called of objects."""

    functions: Mapping[str, Any]
    classes: Mapping[str, type]
    libraries: frozenset[str]
    methods: frozenset[str]


def _short(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}".removeprefix("utfproof.")


def apart(names: Iterable[str]) -> list[str]:
    """Those of these functions that are neither about the object examined nor how things are written down."""
    allowed = (*(f"{room}." for room in EXAMINED), *NOTATION)
    return sorted(name for name in names if not name.replace(":", ".").startswith(allowed))


def words(found: Shared) -> str:
    """What two routes share, by modules, in a few words."""
    modules = dict.fromkeys(name.partition(":")[0] for name in found.shared)
    return f"both read with {', '.join(modules)}" if modules else "no code of the package in common"


def _plain(thing: Any) -> Any:
    """The function under a cache, a property or a class method."""
    while (name := WRAPPERS.get(type(thing))) is not None:
        thing = getattr(thing, name)
    return thing


class CodeSource:
    """The package's source: each function's syntax, and what names stand for. texts: other texts of modules, by name."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self.texts = texts or {}
        self._trees: dict[str, dict[str, ast.AST]] = {}
        self._names: dict[str, Names] = {}

    def node(self, function: Any) -> ast.AST | None:
        """The definition of a function or a class of the package."""
        module = function.__module__
        if module not in self._trees:
            text = self.texts.get(module) or Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8")
            self._trees[module] = dict(_definitions(ast.parse(text)))
        return self._trees[module].get(function.__qualname__)

    def written(self, function: Any) -> bool:
        """Whether it stands in the package's source: what dataclasses and named tuples generate does not."""
        return str(function.__module__).startswith("utfproof") and self.node(function) is not None

    @cache  # noqa: B019 (as long as the source)
    def parts(self, function: Any) -> list[ast.AST]:
        """All nodes of its definition; none for what has none."""
        node = self.node(function)
        return [] if node is None else list(ast.walk(node))

    @cache  # noqa: B019
    def space(self, function: Any) -> dict[str, Any]:
        """What names stand for in a function: those of its module, and what it imports itself."""
        return {**vars(sys.modules[function.__module__]), **_imports(self.parts(function))}

    def names(self, function: Any) -> Names:
        """What the whole function names."""
        name = _short(function)
        if name not in self._names:
            parts = self.parts(function)
            self._names[name] = named(parts, self.space(function), _bound(parts))
        return self._names[name]

    @cached_property
    def examined(self) -> dict[str, type]:
        """Classes that describe the object examined."""
        modules = [importlib.import_module(f"utfproof.{room}") for room in CLASSES]
        return {
            _short(c): c for m in modules for c in vars(m).values() if inspect.isclass(c) and c.__module__ == m.__name__
        }

    def reach(self, start: Names) -> Names:
        """The names, and all that they lead to."""
        functions, classes = dict(start.functions), dict(start.classes)
        libraries, methods = set(start.libraries), set(start.methods)
        waiting, seen, done = list(functions.values()), set(functions), set()
        while True:
            while waiting:
                found = self.names(waiting.pop())
                classes |= found.classes
                libraries |= found.libraries
                methods |= found.methods
                functions |= found.functions
                waiting += [f for name, f in found.functions.items() if name not in seen]
                seen |= set(found.functions)
            for name, kind in {**self.examined, **classes}.items():
                for attribute in (
                    methods | ({"__init__", "__call__", "__post_init__"} if name in classes else set())
                ) & set(vars(kind)):
                    if (name, attribute) not in done:
                        done.add((name, attribute))
                        method = _plain(vars(kind)[attribute])
                        if (
                            isinstance(method, types.FunctionType)
                            and _short(method) not in seen
                            and self.written(method)
                        ):
                            seen.add(_short(method))
                            functions[_short(method)] = method
                            waiting.append(method)
            if not waiting:
                return Names(functions, classes, frozenset(libraries), frozenset(methods))


def named(parts: Iterable[ast.AST], space: Mapping[str, Any], local: frozenset[str]) -> Names:
    """What these nodes name, with the names in `space`, where `local` hides some."""
    functions: dict[str, Any] = {}
    classes: dict[str, type] = {}
    libraries: set[str] = set()
    methods: set[str] = set()
    for part in (part for part in parts if isinstance(part, ast.Name | ast.Attribute)):
        if isinstance(part, ast.Attribute):
            methods.add(part.attr)
        thing = _plain(_resolve(part, space, local))
        home = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)
        top = str(home or "").partition(".")[0]
        if top and top != "utfproof":
            libraries |= {top} - sys.stdlib_module_names - {"builtins"}
        elif isinstance(thing, types.FunctionType):
            functions[_short(thing)] = thing
        else:
            classes |= {_short(kind): kind for kind in _kinds(thing)}
    return Names(functions, classes, frozenset(libraries), frozenset(methods))


def _definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from _definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(node, prefix)


def _kinds(thing: Any) -> Iterator[type]:
    """The package's classes among a class, an instance's, and those of what a table holds."""
    table = (
        thing.values()
        if isinstance(thing, dict)
        else thing
        if isinstance(thing, tuple | list | set | frozenset)
        else ()
    )
    for entry in (thing, *table):
        kind = entry if inspect.isclass(entry) else type(entry)
        yield from (part for part in kind.__mro__ if part.__module__.startswith("utfproof"))


def _resolve(node: ast.AST, space: Mapping[str, Any], local: frozenset[str]) -> Any:
    """The object that a name or a chain of attributes stands for, None where it is a local one's."""
    if isinstance(node, ast.Name):
        return None if node.id in local else space.get(node.id)
    if isinstance(node, ast.Attribute):
        under = _resolve(node.value, space, local)
        return (
            getattr(under, node.attr, None) if isinstance(under, types.ModuleType) or inspect.isclass(under) else None
        )
    return None


def _imports(parts: list[ast.AST]) -> dict[str, Any]:
    """What a function imports itself."""
    found: dict[str, Any] = {}
    for node in parts:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: _member(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: _module(alias.name) for alias in node.names}
    return found


def _module(name: str) -> types.ModuleType:
    """The module; of a library that is not installed the name alone, which is all that counts of it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        if name.startswith("utfproof"):
            raise
        return types.ModuleType(name)


def _member(module: str, name: str) -> Any:
    found = getattr(_module(module), name, None)
    return _module(f"{module}.{name}") if found is None else found


def _bound(parts: list[ast.AST]) -> frozenset[str]:
    """Names that are bound in a function: arguments and what is assigned."""
    names = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return frozenset(names | {part.arg for part in parts if isinstance(part, ast.arg)})


def _made(parts: list[ast.AST], expression: ast.AST) -> list[ast.AST]:
    """The expression, and those that the local names in it are made of: assigned, looped over, added to."""
    nodes, waiting, seen = [expression], [expression], set[str]()
    while waiting:
        names = {part.id for part in ast.walk(waiting.pop()) if isinstance(part, ast.Name)} - seen
        seen |= names
        for part in parts:
            for name, value in _assignments(part):
                if name in names:
                    nodes.append(value)
                    waiting.append(value)
    return nodes


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """(local name, what it is made of) of a statement."""
    pairs: list[tuple[ast.AST, ast.AST | None]] = []
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += zip(target.elts, node.value.elts, strict=False)
            else:
                pairs.append((target, node.value))
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.For | ast.comprehension):
        pairs = [(node.target, node.iter)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
        pairs = [(node.func.value, argument) for argument in node.args]
    for place, value in pairs:
        if value is not None and not (isinstance(place, ast.Subscript) and isinstance(place.slice, ast.Constant)):
            yield from ((name, value) for name in _targets(place))


def _targets(place: ast.AST) -> Iterator[str]:
    """The names that an assignment changes: of `table[word]`, the table."""
    if isinstance(place, ast.Name):
        yield place.id
    elif isinstance(place, ast.Tuple | ast.List):
        for part in place.elts:
            yield from _targets(part)
    elif isinstance(place, ast.Subscript | ast.Attribute | ast.Starred):
        yield from _targets(place.value)


def _comparisons(parts: list[ast.AST], labels: set[str]) -> Iterator[Parts]:
    """Where a function names results by these routes: {route: what it is made of}, also a result at a time."""
    gathered: dict[str, Parts] = {}
    for node in parts:
        if isinstance(node, ast.Dict):
            entries = {k.value: v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)}
            if labels.intersection(entries) and not all(isinstance(v, ast.Constant) for v in node.values):
                yield {str(name): [expression] for name, expression in entries.items()}
        elif isinstance(node, ast.Assign | ast.AugAssign):
            place = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if (
                isinstance(place, ast.Subscript)
                and isinstance(place.slice, ast.Constant)
                and place.slice.value in labels
            ):
                found = gathered.setdefault(ast.unparse(place.value), {})
                found.setdefault(str(place.slice.value), []).append(node.value)
    yield from gathered.values()


def _compared(source: CodeSource, place: str, function: Any, labels: set[str]) -> Iterator[Parts]:
    """{route: what its result is made of}, for every place in a function where results are held against each other."""
    nodes, space = source.parts(function), source.space(function)
    if place in DECLARED and labels >= set(DECLARED[place]):
        yield {name: [ast.parse(entry) for entry in entries] for name, entries in DECLARED[place].items()}
    found = list(_comparisons(nodes, labels))
    if labels >= set(SIDES):
        calls = [part for part in nodes if isinstance(part, ast.Call) and len(part.args) >= 3]
        decided = [
            part for part in calls if getattr(_resolve(part.func, space, frozenset()), "__qualname__", "") == "decide"
        ]
        found += [dict(zip(SIDES, ([part.args[1]], [part.args[2]]), strict=True)) for part in decided]
    for entries in found:
        texts = [sorted(ast.unparse(e) for e in expressions) for expressions in entries.values()]
        if any(one in texts[i + 1 :] for i, one in enumerate(texts)):
            raise ValueError(f"{place}: routes that are one expression: {sorted(entries)}")
        yield {name: [part for e in expressions for part in _made(nodes, e)] for name, expressions in entries.items()}


def shared(check: Any, labels: set[str], source: CodeSource | None = None) -> Shared:
    """What the routes of these names rest on, in a claim's check and whatever it reaches. ValueError for a route that is
    nowhere named beside another, and where two routes are the same expression."""
    from utfproof.claims import companions

    source = source or CodeSource()
    start = [check, companions.beyond] if companions.PROVER in labels else [check]
    everything = source.reach(Names({_short(f): f for f in start}, {}, frozenset(), frozenset()))
    routes: dict[str, set[str]] = {}
    given: set[str] = set()
    both: set[str] = set()
    for place, function in everything.functions.items():
        for parts in _compared(source, place, function, labels):
            space, local = source.space(function), _bound(source.parts(function))
            reached = {}
            for name, nodes in parts.items():
                others = {id(part) for other, found in parts.items() if other != name for part in found}
                common = source.reach(named(_walk(node for node in nodes if id(node) in others), space, local))
                reached[name] = source.reach(
                    named(_walk(node for node in nodes if id(node) not in others), space, local)
                )
                given |= set(_modules(common))
                routes.setdefault(name, set()).update(_modules(reached[name]))
            reaches = list(reached.values())
            both |= {
                n
                for i, one in enumerate(reaches)
                for other in reaches[i + 1 :]
                for n in one.functions.keys() & other.functions
            }
    if missing := labels - set(routes):
        raise ValueError(f"nothing is computed under the names {sorted(missing)}")
    found = {name: tuple(sorted(modules)) for name, modules in sorted(routes.items()) if name in labels}
    return Shared(found, tuple(sorted(given)), tuple(sorted(both)))


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (part for node in nodes for part in ast.walk(node))


def _modules(reached: Names) -> list[str]:
    """The package's modules, and the libraries."""
    return [*{f.__module__.removeprefix("utfproof.") for f in reached.functions.values()}, *reached.libraries]
