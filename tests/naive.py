"""The definitions written out slowly, as a second opinion: dense integers, one word at a time, no shared code.

Only plain Python and object arrays: nothing here calls the package's own R_all, W_all or forward pass.
"""

import itertools

import numpy as np


def words(H, length):
    return list(itertools.product(range(H), repeat=length))


def dense(matrix):
    return matrix.to_dense(object) if hasattr(matrix, "to_dense") else np.asarray(matrix)


def host_matrices(host):
    """{(kind, layer, head): dense matrix} and U; layers from 1."""
    H, L = host.shape.heads, host.shape.layers
    table = {}
    for layer in range(1, L + 1):
        for h in range(H):
            query, key, value = host.maps(layer - 1, h)
            table["Q", layer, h], table["K", layer, h] = dense(query), dense(key)
            product = dense(value[0])
            for factor in value[1:]:
                product = product @ dense(factor)
            table["V", layer, h] = product
    return table, dense(host.U)


def r_all(host):
    """R_all column block by column block, in canonical order."""
    H, L = host.shape.heads, host.shape.layers
    table, U = host_matrices(host)

    def routed(word):
        out = None
        for layer, h in enumerate(word, start=1):
            step = table["V", layer, h]
            out = step if out is None else out @ step
        return out

    blocks = []
    for kind in ("Q", "K"):
        for layer in range(1, L + 1):
            for word in words(H, layer):
                prefix, reader = routed(word[:-1]), table[kind, layer, word[-1]]
                blocks.append(reader if prefix is None else prefix @ reader)
    blocks += [routed(word) @ U for word in words(H, L)]
    return np.concatenate(blocks, axis=1)


def w_all(target):
    """W_all column block by column block."""
    H, L = target.shape.heads, target.shape.layers
    W_E, W_U = target.embedding(), target.unembedding()

    def routed(word):
        out = W_E
        for layer, h in enumerate(word):
            _, _, w_v, w_o = target.parameters(layer, h)
            out = (out @ w_v) @ w_o
        return out

    blocks = []
    for which in (0, 1):
        for layer in range(1, L + 1):
            for word in words(H, layer):
                blocks.append(routed(word[:-1]) @ target.parameters(layer - 1, word[-1])[which])
    blocks += [routed(word) @ W_U for word in words(H, L)]
    return np.concatenate(blocks, axis=1)


def prefix_tree(H, L, d, d_out):
    """The repaired sparse host from its description: blocks of a prefix tree, R_V diagonal projections."""
    offsets, position = {}, 0
    for depth in range(L + 1):
        for word in words(H, depth):
            offsets[word] = position
            position += d_out if depth == L else 2 * H * d
    m = position
    width = {word: d_out if len(word) == L else 2 * H * d for word in offsets}

    def projection(layer, h):
        out = np.zeros((m, m), dtype=object)
        for word, start in offsets.items():
            if len(word) >= layer and word[layer - 1] == h:
                for i in range(width[word]):
                    out[start + i, start + i] = 1
        return out

    def reader(layer, place):
        out = np.zeros((m, d), dtype=object)
        for word in words(H, layer - 1):
            for i in range(d):
                out[offsets[word] + place * d + i, i] = 1
        return out

    U = np.zeros((m, d_out), dtype=object)
    for word in words(H, L):
        for i in range(d_out):
            U[offsets[word] + i, i] = 1
    layers = range(1, L + 1)
    R_Q = [[reader(layer, h) for h in range(H)] for layer in layers]
    R_K = [[reader(layer, H + h) for h in range(H)] for layer in layers]
    return R_Q, R_K, [[projection(layer, h) for h in range(H)] for layer in layers], U


def trie_and_register(H, L, d, d_out):
    """The tied host from its description."""
    trie, position = {}, 0
    for length in range(1, L + 1):
        for word in words(H, length):
            trie[word] = position
            position += 2 * d
    register = {}
    for word in words(H, L):
        register[word] = position
        position += d_out
    m = position
    R_Q, R_K, R_V = [], [], []
    for h in range(H):
        q, k = np.zeros((m, d), dtype=object), np.zeros((m, d), dtype=object)
        for i in range(d):
            q[trie[h,] + i, i] = 1
            k[trie[h,] + d + i, i] = 1
        v = np.zeros((m, m), dtype=object)
        for word, start in trie.items():
            if len(word) < L:
                for i in range(2 * d):
                    v[trie[h, *word] + i, start + i] = 1
        for word, start in register.items():
            for i in range(d_out):
                v[register[h, *word[:-1]] + i, start + i] = 1
        R_Q.append(q), R_K.append(k), R_V.append(v)
    U = np.zeros((m, d_out), dtype=object)
    for i in range(d_out):
        U[register[(0,) * L] + i, i] = 1
    return R_Q, R_K, R_V, U
