"""The equations of attention-matching at one target, entry by entry, from a host's dense matrices."""

import itertools

import numpy as np

from utfproof.constructions.random import integer_target
from utfproof.util.arrays import exact


def dense(matrix):
    return matrix.to_dense(object) if hasattr(matrix, "to_dense") else np.asarray(matrix, dtype=object)


def maps_of(host):
    """R_Q, R_K, R_V [L][H] and U as object arrays."""
    shape = host.shape
    grids = [
        [[dense(part if i < 2 else part[0]) for i, part in enumerate(host.maps(layer, h))] for h in range(shape.heads)]
        for layer in range(shape.layers)
    ]
    return grids, dense(host.U)


def streams_of(start, forms, shape):
    """start times the product of every word of length 0 ... L, by length; letter 0 is the stream where there is one."""
    found = [[start]]
    for layer in range(shape.layers):
        letters = [None] * shape.residual + list(forms[layer])
        found.append([x if letter is None else x.dot(letter) for x in found[-1] for letter in letters])
    return found


def misses(host, target, E):
    """The equations (layer, head, word, word') of the logits and the words of the outputs that E does not solve."""
    shape = host.shape
    grids, U = maps_of(host)
    E = exact(E)
    identity = exact(target.embedding())
    ours = streams_of(E, [[head[2] for head in row] for row in grids], shape)
    values = [[exact(target.value_form(layer, h)) for h in range(shape.heads)] for layer in range(shape.layers)]
    theirs = streams_of(identity, values, shape)
    missed = []
    for layer, h in itertools.product(range(shape.layers), range(shape.heads)):
        form = exact(target.attention_form(layer, h))
        queries = [x.dot(grids[layer][h][0]) for x in ours[layer]]
        keys = [x.dot(grids[layer][h][1]) for x in ours[layer]]
        left = [x.dot(form) for x in theirs[layer]]
        for w, v in itertools.product(range(len(left)), repeat=2):
            if (queries[w].dot(keys[v].T) != left[w].dot(theirs[layer][v].T)).any():
                missed.append((layer, h, w, v))
    W_U = exact(target.unembedding())
    missed += [
        ("output", w)
        for w, (x, y) in enumerate(zip(ours[-1], theirs[-1], strict=True))
        if (x.dot(U) != y.dot(W_U)).any()
    ]
    return missed


def drawn(shape, seed, *, tied=False):
    """An integer target, from -9 to 9."""
    return integer_target(shape, seed, tied=tied, bound=9)
