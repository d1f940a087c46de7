"""The symbolic R_all in LaTeX: the matrix and the determinant where they fit on a page, and otherwise what is known of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from utfproof.shapes import matching_dimension

if TYPE_CHECKING:
    from utfproof.matching.symbolic import Symbolic

MOST_MATRIX, MOST_DETERMINANT = 120, 60
"""Terms that are written out."""
_NAME = re.compile(r"R_(Q|K|V)\[([\d,]+)\]\[(\d+),(\d+)\]|U\[(\d+),(\d+)\]")


def latex_page(found: Symbolic) -> str:
    """A fragment to be input into a document that loads amsmath."""
    shape, M = found.shape, matching_dimension(found.shape)
    host = "tied" if found.tied else "untied"
    lines = [
        f"% R_all in symbols: H = {shape.heads}, L = {shape.layers}, d = {shape.head_dim}, d_in = {shape.d_in}, {host}",
        rf"The {host} host has $M = {M}$ columns of $R_{{\mathrm{{all}}}}$; $p = \det R_{{\mathrm{{all}}}}$ at $m = M$ is",
        rf"homogeneous of degree ${found.degree}$.",
    ]
    if found.generic is not None:
        names = found.generic.layout.names()
        lines.append(f"$R_{{\\mathrm{{all}}}}$ has {found.generic.terms} terms in {found.generic.layout.size} symbols.")
        if found.generic.terms <= MOST_MATRIX:
            rows = [" & ".join(_polynomial(entry, names) for entry in row) for row in found.generic.entries]
            lines += [r"\[ R_{\mathrm{all}} = \begin{pmatrix}", " \\\\\n".join(rows), r"\end{pmatrix} \]"]
    if found.determinant is not None:
        lines.append(f"In full, $p$ has {found.determinant.terms} terms.")
        if found.determinant.terms <= MOST_DETERMINANT:
            written = _polynomial(found.determinant.polynomial, found.determinant.layout.names())
            lines += [r"\begin{multline*} p =", written.replace(" + ", " \\\\\n + ").replace(" - ", " \\\\\n - ")]
            lines.append(r"\end{multline*}")
    if found.line is not None:
        powers = [(c, k) for k, c in enumerate(found.line.coefficients) if c]
        written = " ".join(f"{c:+d}" + (f" t^{{{k}}}" if k else "") for c, k in powers)
        lines += [r"On the line from the sparse host ($t = 0$) to an integer host ($t = 1$):"]
        lines += [rf"\[ p(t) = {written.removeprefix('+')} \]"]
    blocks = ",\\; ".join(f"{count} \\times I_{{{width}}}" for _, count, width in found.sizes)
    if found.blocks is not None and found.blocks.holds:
        lines.append(rf"\[ P\, R_{{\mathrm{{all}}}} = \operatorname{{diag}}({blocks}) \]")
    if found.spanning is not None:
        lines.append(
            f"The {found.spanning.vectors} attention products of the spanning lemma have rank {found.spanning.rank}."
        )
    lines += [f"% not done: {limit}" for limit in found.limits]
    return "\n".join(lines) + "\n"


def _polynomial(entry: dict[tuple[int, ...], int], names: tuple[str, ...]) -> str:
    """The terms with their signs; layers, heads and coordinates from 1, as the paper counts them."""
    text = ""
    for monomial, coefficient in entry.items():
        factors = "".join(_symbol(names[i]) for i in monomial)
        size = "" if abs(coefficient) == 1 and factors else str(abs(coefficient))
        text += f" {'-' if coefficient < 0 else '+'} {size}{factors}"
    return text.removeprefix(" + ").strip() or "0"


def _symbol(name: str) -> str:
    found = _NAME.fullmatch(name)
    assert found is not None, name
    if found[1] is None:
        return f"u_{{{int(found[5]) + 1},{int(found[6]) + 1}}}"
    lead = ",".join(str(int(part) + 1) for part in found[2].split(","))
    return f"{found[1].lower()}^{{{lead}}}_{{{int(found[3]) + 1},{int(found[4]) + 1}}}"
