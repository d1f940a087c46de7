"""`utfproof symbolic`: R_all with one symbol an entry, its determinant polynomial, and why it is not zero."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import ShapeOptions, amount, option, written
from utfproof.cli.outcome import Outcome
from utfproof.cli.questions import refuse_given
from utfproof.ground.files import write_bytes
from utfproof.ground.progress import stage

if TYPE_CHECKING:
    from utfproof.exact.symbolic.determinant import LinePolynomial
    from utfproof.exact.symbolic.generic import GenericMatrix, Multilinearity
    from utfproof.matching.symbolic import Symbolic as Found


@command("Example: utfproof symbolic --heads 2 --layers 2 --head-dim 1 --d-in 1 --latex r-all.tex")
def symbolic(
    *,
    shape: ShapeOptions,
    tied: Annotated[bool, option("The same symbols in every layer.", "--tied")] = False,
    seed: Annotated[int, option("Seed of the host at the other end of the line.")] = 0,
    seconds: Annotated[float, option("Time limit of the determinants on the line.", check=amount)] = 600.0,
    entries: Annotated[
        bool, option("With --json: every entry of R_all and every term of the determinant.", "--entries")
    ] = False,
    latex: Annotated[Path | None, written("LaTeX to write: matrix, determinant, blocks.")] = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Compute R_all in symbols and its determinant p: why almost every host has rank M.

    R_all has one symbol for every parameter entry; p is its determinant at m = M.

    In full up to (2,2,1,1); beyond, p is known on a line through the sparse host, and what is over a limit is said. Exit 0:
    p is not the zero polynomial. 3: the line takes more than --seconds. 4: nothing could be computed.
    """
    from utfproof.matching.symbolic import symbolic

    if "as_json" not in stated:
        refuse_given(stated, "entries are printed with --json", "entries")
    with stage("symbolic", whole=True):
        found = symbolic(shape.shape(), tied=tied, seed=seed, seconds=seconds)
    if latex is not None:
        from utfproof.reporting.symbolic import latex_page

        write_bytes(latex, latex_page(found).encode())
    code = {True: 0, False: 1, None: 4}[found.nonzero]
    return Outcome(_document(found, entries), "symbolic", _rows(found), code)


def _document(found: Found, entries: bool) -> dict[str, Any]:
    from utfproof.certificates.format import shape_document
    from utfproof.shapes import matching_dimension

    M = matching_dimension(found.shape)
    document: dict[str, Any] = {
        "shape": shape_document(found.shape, M),
        "tied": found.tied,
        "nonzero": found.nonzero,
        "degree": found.degree,
        "limits": list(found.limits),
        "r_all": None,
        "determinant": None,
        "line": None,
        "blocks": {"sizes": [{"kind": kind, "blocks": count, "width": width} for kind, count, width in found.sizes]},
        "spanning": None,
    }
    if found.generic is not None and found.multilinear is not None:
        document["r_all"] = _r_all(found.generic, found.multilinear, found.homogeneous, entries)
    if found.determinant is not None:
        p = found.determinant
        document["determinant"] = {"terms": p.terms, "degrees": list(p.degrees), "routes": list(p.routes)}
        if entries:
            document["determinant"]["polynomial"] = _terms(p.polynomial, p.layout.names())
    if found.line is not None:
        document["line"] = _line(found.line, found)
    if found.blocks is not None:
        permutation = found.blocks.permutation
        document["blocks"] |= {
            "holds": found.blocks.holds,
            "permutation": None if permutation is None else list(permutation),
            "reason": found.blocks.reason,
        }
    if found.spanning is not None:
        document["spanning"] = {
            "holds": found.spanning.holds,
            "vectors": found.spanning.vectors,
            "rank": found.spanning.rank,
        }
    return document


def _r_all(generic: GenericMatrix, linear: Multilinearity, homogeneous: bool | None, entries: bool) -> dict[str, Any]:
    """R_all itself, entry by entry where that is asked for."""
    document: dict[str, Any] = {
        "symbols": generic.layout.size,
        "terms": generic.terms,
        "routes": list(generic.routes),
        "homogeneous_columns": homogeneous,
        "multilinear": linear.holds,
        "highest_degree_in_one_symbol": linear.highest,
    }
    if entries:
        names = generic.layout.names()
        document["entries"] = [[_terms(entry, names) for entry in row] for row in generic.entries]
    return document


def _line(line: LinePolynomial, found: Found) -> dict[str, Any]:
    """The determinant along a line through a construction."""
    return {
        "from": "tied" if found.tied else "sparse",
        "to": f"integers -2 ... 2, seed {found.seed}",
        "coefficients": [str(value) for value in line.coefficients],
        "degree": line.degree,
        "at_the_sparse_host": line.constant,
        "confirmed_at": list(line.fresh),
        "routes": list(line.routes),
    }


def _terms(entry: dict[tuple[int, ...], int], names: tuple[str, ...]) -> list[list[Any]]:
    """[coefficient, names of the factors] for every term."""
    return [[coefficient, [names[i] for i in monomial]] for monomial, coefficient in entry.items()]


def _rows(found: Found) -> dict[str, Any]:
    from utfproof.shapes import matching_dimension

    M = matching_dimension(found.shape)
    rows: dict[str, Any] = {"shape": f"{found.shape}, {'tied' if found.tied else 'untied'} host, m = M = {M}"}
    if found.generic is not None and found.multilinear is not None:
        linear = found.multilinear
        rows["R_all"] = f"{M} × {M}, {found.generic.terms} terms in {found.generic.layout.size} symbols"
        rows["its entries"] = (
            "multilinear"
            if linear.holds
            else f"not multilinear: degree {linear.highest} in one symbol, as in {linear.monomial}"
        )
    rows["degree of p"] = f"{found.degree}: the columns are homogeneous, of degree l or L + 1"
    if found.determinant is not None:
        rows["p in full"] = f"{found.determinant.terms} terms, all of degree {found.degree}"
    if found.line is not None:
        rows["p on a line"] = f"degree {found.line.degree} in t; {found.line.constant} at the sparse host, t = 0"
    sizes = ", ".join(f"{count} of width {width} ({kind})" for kind, count, width in found.sizes)
    if found.blocks is not None:
        rows["sparse R_all"] = f"rows permuted: identity blocks {sizes}" if found.blocks.holds else found.blocks.reason
    if found.spanning is not None:
        rows["attention products"] = f"{found.spanning.vectors} vectors of rank {found.spanning.rank}"
    rows["so"] = {
        True: "p is not the zero polynomial: almost every host of this shape has rank M",
        False: "p is zero on the line: nothing follows",
        None: "nothing was computed at this size",
    }[found.nonzero]
    for limit in found.limits:
        rows[f"not done {len(rows)}"] = limit
    return rows
