"""Two heads, odd depth, any width: the host of powers serves integer targets exactly, and refuses the others."""

import numpy as np
import pytest

from utfproof.claims.small_models import serves
from utfproof.constructions.krylov import embed_krylov, krylov_dimension, krylov_host
from utfproof.constructions.random import integer_target
from utfproof.errors import NotDefined, OutsideClass
from utfproof.ground.arrays import exact
from utfproof.shapes import Shape
from utfproof.systems import Target

pytestmark = pytest.mark.numerical

SHAPES = [(2, 1, 1, 1), (2, 1, 2, 2), (2, 1, 4, 4), (2, 1, 3, 2), (2, 3, 2, 2), (2, 5, 1, 1)]


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("padding", [0, 2])
def test_integer_targets_are_served_exactly(dims, padding):
    shape = Shape(*dims)
    m = krylov_dimension(shape) + padding
    target = integer_target(shape, 3, bound=3)
    E, U = embed_krylov(shape, m, target)
    assert bool(serves(krylov_host(shape, m), E, U, target))
    # the check can fail
    E = E.copy()
    E[0, 0] += 1
    assert not bool(serves(krylov_host(shape, m), E, U, target))


@pytest.mark.parametrize("dims", [(3, 1, 1, 1), (2, 2, 1, 1), (2, 1, 1, 2), (2, 1, 2, 2, 3)])
def test_other_shapes_are_refused(dims):
    with pytest.raises(NotDefined):
        krylov_host(Shape(*dims), 9)


@pytest.mark.parametrize(
    ("first", "second"),
    [([[1, 0], [0, 0]], [[1, 2], [3, 4]]), ([[1, 0], [0, 1]], [[2, 0], [0, 2]])],
    ids=["singular M_0", "derogatory ratio"],
)
def test_targets_outside_the_class_are_refused(first, second):
    shape = Shape(2, 1, 2, 2)
    values = exact(np.array([[first, second]]))
    identity = exact(np.array([[[[1, 0], [0, 1]]] * 2]))
    target = Target(shape, identity, identity, values, identity)
    with pytest.raises(OutsideClass):
        embed_krylov(shape, 3, target)
