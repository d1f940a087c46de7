"""`utfproof symbolic`: R_all with one symbol an entry, its determinant polynomial, and why it is not zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import ShapeOptions, option
from utfproof.cli.outcome import Outcome
from utfproof.cli.questions import refuse_given
from utfproof.ground.progress import stage
from utfproof.shapes import matching_dimension

if TYPE_CHECKING:
    from utfproof.matching.symbolic import Symbolic as Found


@command("Example: utfproof symbolic --heads 2 --layers 2 --head-dim 1 --d-in 1")
def symbolic(
    *,
    shape: ShapeOptions,
    tied: Annotated[bool, option("The same symbols in every layer.", "--tied")] = False,
    seed: Annotated[int, option("Seed of the host at the other end of the line.")] = 0,
    entries: Annotated[bool, option("With --json: every entry of R_all.", "--entries")] = False,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Compute R_all in symbols and its determinant p: why almost every host has rank M.

    R_all has one symbol for every parameter entry, written out up to (2,2,1,1); p is its determinant at m = M, on a line
    through the sparse host. What is over a limit is said. Exit 0: p is not the zero polynomial. 4: nothing could be computed.
    """
    from utfproof.matching.symbolic import symbolic

    if "as_json" not in stated:
        refuse_given(stated, "entries are printed with --json", "entries")
    with stage("symbolic", whole=True):
        found = symbolic(shape.shape(), tied=tied, seed=seed)
    code = {True: 0, False: 1, None: 4}[found.nonzero]
    return Outcome(_document(found, entries), "symbolic", _rows(found), code)


def _document(found: Found, entries: bool) -> dict[str, Any]:
    from utfproof.certificates.format import shape_document

    generic, linear, line = found.generic, found.multilinear, found.line
    document: dict[str, Any] = {
        "shape": shape_document(found.shape, matching_dimension(found.shape)),
        "tied": found.tied,
        "seed": found.seed,
        "nonzero": found.nonzero,
        "degree": found.degree,
        "limits": list(found.limits),
        "r_all": None,
        "line": None,
    }
    if generic is not None and linear is not None:
        matrix = {"symbols": generic.layout.size, "terms": generic.terms, "routes": list(generic.routes)}
        matrix |= {"multilinear": linear.holds, "highest_degree_in_one_symbol": linear.highest}
        if entries:
            names = generic.layout.names()
            matrix["entries"] = [[_terms(entry, names) for entry in row] for row in generic.entries]
        document["r_all"] = matrix
    if line is not None:
        coefficients = [str(value) for value in line.coefficients]
        document["line"] = {"coefficients": coefficients, "degree": line.degree, "at_the_sparse_host": line.constant}
        document["line"] |= {"confirmed_at": list(line.fresh), "routes": list(line.routes)}
    return document


def _terms(entry: dict[tuple[int, ...], int], names: tuple[str, ...]) -> list[list[Any]]:
    """[coefficient, names of the factors] for every term."""
    return [[coefficient, [names[i] for i in monomial]] for monomial, coefficient in entry.items()]


def _rows(found: Found) -> dict[str, Any]:
    M, generic, linear = matching_dimension(found.shape), found.generic, found.multilinear
    rows: dict[str, Any] = {"shape": f"{found.shape}, {'tied' if found.tied else 'untied'} host, m = M = {M}"}
    if generic is not None and linear is not None:
        rows["R_all"] = f"{M} × {M}, {generic.terms} terms in {generic.layout.size} symbols"
        highest = f"not multilinear: degree {linear.highest} in one symbol, as in {linear.monomial}"
        rows["its entries"] = "multilinear" if linear.holds else highest
    rows["degree of p"] = f"{found.degree}: the columns are homogeneous, of degree l or L + 1"
    if found.line is not None:
        rows["p on a line"] = f"degree {found.line.degree} in t; {found.line.constant} at the sparse host, t = 0"
    rows["so"] = {
        True: "p is not the zero polynomial: almost every host of this shape has rank M",
        False: "p is zero on the line: nothing follows",
        None: "nothing was computed at this size",
    }[found.nonzero]
    return rows | {f"not done {i}": limit for i, limit in enumerate(found.limits, start=1)}
