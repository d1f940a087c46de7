"""`utfproof symbolic`: what it computes, against SymPy's determinant and the theory's counts, and what it does not claim."""

import json

import pytest
import sympy

from utfproof.cli.app import run
from utfproof.exact.symbolic.determinant import determinant_degree
from utfproof.matching import symbolic as made
from utfproof.shapes import Shape


def asked(capsys, *words):
    code = run(["symbolic", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def shape_options(H, L, d, d_in):
    return ["-H", str(H), "-L", str(L), "-d", str(d), "--d-in", str(d_in)]


def polynomial(terms):
    return sum(c * sympy.prod([sympy.Symbol(name) for name in factors]) for c, factors in terms)


@pytest.mark.parametrize("tied", [False, True])
def test_the_line_is_sympys_determinant(capsys, tied):
    """det R_all in symbols at the sparse host, t = 0, and at the drawn host, t = 1."""
    code, found = asked(capsys, *shape_options(1, 1, 1, 1), "--entries", *(["--tied"] * tied))
    assert (code, found["limits"]) == (0, [])
    matrix = sympy.Matrix([[polynomial(entry) for entry in row] for row in found["r_all"]["entries"]])
    assert len(sympy.expand(matrix.det()).args) == 18
    coefficients = list(map(int, found["line"]["coefficients"]))
    assert coefficients[0] == found["line"]["at_the_sparse_host"]
    assert len(coefficients) == found["line"]["degree"] + 1


@pytest.mark.full
def test_r_all_at_two_heads_and_two_layers_in_full(capsys):
    code, found = asked(capsys, *shape_options(2, 2, 1, 1), "--entries")
    assert (code, found["nonzero"]) == (0, True)
    entries = found["r_all"]["entries"]
    assert [len(entries), len(entries[0])] == [16, 16]
    assert sum(len(entry) for row in entries for entry in row) == found["r_all"]["terms"] == 18496
    assert {len(factors) for row in entries for _, factors in row[-1]} == {3}  # R_V R_V U


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (2, 2, 1, 2)])
@pytest.mark.parametrize("tied", [False, True])
def test_the_line_starts_at_plus_or_minus_one(dims, tied):
    shape = Shape(*dims)
    found = made.symbolic(shape, tied=tied)
    assert found.nonzero
    assert abs(found.line.constant) == 1
    assert 0 <= found.line.degree <= found.degree == determinant_degree(shape)
    assert found.line(0) == found.line.constant


def test_tied_entries_are_not_multilinear(capsys):
    _, found = asked(capsys, *shape_options(1, 2, 1, 1), "--tied")
    assert (found["r_all"]["multilinear"], found["r_all"]["highest_degree_in_one_symbol"]) == (False, 2)


def test_a_broken_sparse_host_is_noticed(monkeypatch):
    def blind(name, shape):
        host = build(name, shape)
        return type(host)(**{**vars(host), "R_K": host.R_Q})

    build = made.build_host
    monkeypatch.setattr(made, "build_host", blind)
    found = made.symbolic(Shape(2, 1, 1, 1))
    assert found.line.constant == 0


def test_what_is_too_large_is_said(capsys):
    code, found = asked(capsys, *shape_options(4, 3, 4, 4))
    assert (code, found["nonzero"], found["line"], found["r_all"]) == (4, None, None, None)
    assert len(found["limits"]) == 2
    assert run(["symbolic", "-H", "2"]) == 2
