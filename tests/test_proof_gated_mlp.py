"""docs/proofs/gated-mlp.md: the hosts of Theorems A and B, built as matrices and run beside the target."""

import numpy as np
import pytest

GATES = {
    "silu": lambda z: z / (1 + np.exp(-z)),
    "relu": lambda z: np.maximum(z, 0),
}


def softmax(scores):
    """Causal."""
    scores = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def signed(scores):
    """Attention whose rows do not sum to 1."""
    return np.tanh(scores)


class Layout:
    """Names of coordinates, in order of their first use."""

    def __init__(self):
        self.places = {}

    def __call__(self, name, *shape):
        count = int(np.prod(shape, dtype=int))
        if name not in self.places:
            start = sum(size for _, size in self.places.values())
            self.places[name] = (start, count)
        start, _ = self.places[name]
        return np.arange(start, start + count).reshape(shape)

    @property
    def m(self):
        return sum(size for _, size in self.places.values())


def gated(products, m):
    """G, N, O of an MLP that adds sign * y_a * y_b to y_c for each (c, a, b, sign): two hidden units a product."""
    G, N, out_rows = (
        np.zeros((m, 2 * len(products))),
        np.zeros((m, 2 * len(products))),
        np.zeros((2 * len(products), m)),
    )
    for i, (c, a, b, sign) in enumerate(products):
        G[a, 2 * i], G[a, 2 * i + 1] = 1, -1
        N[b, 2 * i] = N[b, 2 * i + 1] = 1
        out_rows[2 * i, c], out_rows[2 * i + 1, c] = sign, -sign
    return G, N, out_rows


def selection(m, places):
    matrix = np.zeros((m, len(places)))
    matrix[places, range(len(places))] = 1
    return matrix


def host_a(H, L, d, b):
    """Theorem A: (m, E of a target, blocks, places of the output)."""
    at = Layout()
    reader = {(x, t, h): at((x, t, h), d) for x in "QKV" for t in range(L) for h in range(H)}
    moved = {(t, h): at(("o", t, h), d) for t in range(L) for h in range(H)}
    inner = {
        (x, t, h, g): at(("C", x, t, h, g), d, d)
        for x in "QKV"
        for t in range(L - 1)
        for h in range(H)
        for g in range(H)
    }
    last, out = {h: at(("W_O", h), d, b) for h in range(H)}, at("out", b)

    def embedding(W, c):
        E = np.zeros((b, at.m))
        for h in range(H):
            for x in "QKV":
                E[:, reader[x, 0, h]] = W[x][0, h]
            E[:, last[h]] = np.multiply.outer(c, W["O"][-1, h])
        for (x, t, h, g), places in inner.items():
            E[:, places] = np.multiply.outer(c, W["O"][t, h] @ W[x][t + 1, g])
        return E

    def block(t):
        if t < L - 1:
            products = [
                (reader[x, t + 1, g][j], moved[t, h][i], inner[x, t, h, g][i, j], 1)
                for x in "QKV" for h in range(H) for g in range(H) for i in range(d) for j in range(d)
            ]  # fmt: skip
        else:
            products = [
                (out[j], moved[t, h][i], last[h][i, j], 1) for h in range(H) for i in range(d) for j in range(b)
            ]
        heads = [(reader["Q", t, h], reader["K", t, h], reader["V", t, h], moved[t, h]) for h in range(H)]
        return heads, gated(products, at.m)

    return at.m, embedding, [block(t) for t in range(L)], out


def host_b(H, L, d, b, tied):
    """Theorem B: the same block in every layer."""
    at = Layout()
    slots = 1 if tied else L - 1
    reader = {(x, h): at((x, h), d) for x in "QKV" for h in range(H)}
    moved, one = {h: at(("o", h), d) for h in range(H)}, at("one", 1)[0]
    slot = [
        {(x, h, g): at(("C", s, x, h, g), d, d) for x in "QKV" for h in range(H) for g in range(H)}
        for s in range(slots)
    ]
    last, out = {h: at(("W_O", h), d, b) for h in range(H)}, at("out", b)

    def embedding(W, c):
        E = np.zeros((b, at.m))
        E[:, one] = c
        for h in range(H):
            for x in "QKV":
                E[:, reader[x, h]] = W[x][0, h]
            E[:, last[h]] = np.multiply.outer(c, W["O"][-1, h])
        for s in range(slots):
            for (x, h, g), places in slot[s].items():
                E[:, places] = np.multiply.outer(c, W["O"][s, h] @ W[x][(s + 1) % L, g])
        return E

    products = [
        (reader[x, g][j], moved[h][i], slot[0][x, h, g][i, j], 1)
        for x in "QKV" for h in range(H) for g in range(H) for i in range(d) for j in range(d)
    ]  # fmt: skip
    products += [(out[j], moved[h][i], last[h][i, j], 1) for h in range(H) for i in range(d) for j in range(b)]
    cleared = [*reader.values(), *moved.values(), out]
    if not tied:
        cleared += [places.ravel() for register in slot for places in register.values()]
        products += [
            (to, source, one, 1)
            for s in range(slots - 1)
            for name in slot[s]
            for to, source in zip(slot[s][name].ravel(), slot[s + 1][name].ravel(), strict=True)
        ]
    products += [(place, place, one, -1) for places in cleared for place in places]
    heads = [(reader["Q", h], reader["K", h], reader["V", h], moved[h]) for h in range(H)]
    return at.m, embedding, [(heads, gated(products, at.m))] * L, out


def run_host(blocks, X, E, out, gate, attention):
    y = X @ E
    m = E.shape[1]
    for heads, (G, N, out_rows) in blocks:
        update = np.zeros_like(y)
        for queries, keys, values, to in heads:
            R_V = selection(m, values) @ selection(m, to).T
            A = attention((y @ selection(m, queries)) @ (y @ selection(m, keys)).T)
            update += A @ y @ R_V
        y = y + update
        y = y + (gate(y @ G) * (y @ N)) @ out_rows
    return y[:, out]


def run_target(W, X, attention):
    for t in range(len(W["Q"])):
        X = sum(
            attention((X @ W["Q"][t, h]) @ (X @ W["K"][t, h]).T) @ X @ W["V"][t, h] @ W["O"][t, h]
            for h in range(W["Q"].shape[1])
        )
    return X


def drawn(H, L, d, b, generator, tied=False):
    W = {x: generator.normal(size=(L, H, *((d, b) if x == "O" else (b, d)))) / np.sqrt(b) for x in "QKVO"}
    return {x: np.broadcast_to(part[:1], part.shape) if tied else part for x, part in W.items()}


def inputs(n, b, generator):
    """Rows with X c = 1, c not constant: no one-hots."""
    X, c = generator.normal(size=(n, b)), np.arange(1.0, b + 1)
    X[:, 0] = 1 - X[:, 1:] @ c[1:]
    return X, c


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("attention", [softmax, signed])
@pytest.mark.parametrize("shape", [(2, 3, 1, 2), (2, 2, 2, 3), (1, 4, 1, 1), (3, 2, 1, 2), (2, 1, 2, 2)])
def test_hosts_act_as_targets(shape, attention, gate):
    """One host for several targets; the sizes are those of the page."""
    H, L, d, b = shape
    generator = np.random.default_rng(3)
    hosts = [(host_a(*shape), False, 3 * H * H * d * d * (L - 1) + 4 * H * d * L + H * d * b + b)]
    if L > 1:
        base = H * d * b + 4 * H * d + b + 1
        hosts.append((host_b(*shape, tied=False), False, 3 * H * H * d * d * (L - 1) + base))
        hosts.append((host_b(*shape, tied=True), True, 3 * H * H * d * d + base))
    for (m, embedding, blocks, out), tied, size in hosts:
        assert m == size
        for _ in range(3):
            W = drawn(*shape, generator, tied)
            X, c = inputs(6, b, generator)
            expected = run_target(W, X, attention)
            found = run_host(blocks, X, embedding(W, c), out, GATES[gate], attention)
            assert abs(found - expected).max() <= 1e-11 * max(1, abs(expected).max())


def test_figures_of_the_page():
    assert host_a(2, 20, 1, 2)[0] == 394
    assert {host_b(2, L, 1, 2, tied=True)[0] for L in (2, 5, 30)} == {27}


def test_a_host_without_the_constant_coordinate_fails():
    """Inputs with X c != 1 get another output."""
    shape, generator = (2, 2, 1, 2), np.random.default_rng(4)
    _, embedding, blocks, out = host_a(*shape)
    W = drawn(*shape, generator)
    X, c = inputs(5, 2, generator)
    found = run_host(blocks, 2 * X, embedding(W, c), out, GATES["silu"], softmax)
    assert abs(found - run_target(W, 2 * X, softmax)).max() > 1e-3


def data(parameters, H, L, d, b, attention):
    """Theorem F: logits less their first column, and outputs, of a context of all b tokens, for attention from outside."""
    W = np.split(parameters.reshape(L, H, 4, b * d), 4, axis=2)
    Q, K, V = (part.reshape(L, H, b, d) for part in W[:3])
    found = []
    for matrices in attention:
        X = np.eye(b)
        for layer in range(L):
            for head in range(H):
                logits = X @ Q[layer, head] @ (X @ K[layer, head]).T
                found.append(logits[:, 1:] - logits[:, :1])
            out = W[3][layer].reshape(H, d, b)
            X = sum(matrices[layer, h] @ X @ V[layer, h] @ out[h] for h in range(H))
        found.append(X)
    return np.concatenate([part.reshape(-1) for part in found])


@pytest.mark.parametrize(("shape", "rank"), [((2, 1, 1, 2), 10), ((2, 2, 1, 2), 18), ((2, 3, 1, 2), 26)])
def test_rank_of_the_data(shape, rank):
    """By central differences; the singular values that are not zero are above 1e-5 of the largest."""
    rng, (H, L, d, b) = np.random.default_rng(0), shape
    attention = rng.normal(size=(12, L, H, b, b))
    attention[..., 0] = 1 - attention[..., 1:].sum(axis=-1)
    at, step = rng.normal(size=4 * H * L * b * d), 1e-4
    columns = [data(at + e, *shape, attention) - data(at - e, *shape, attention) for e in step * np.eye(len(at))]
    values = np.linalg.svd(np.array(columns), compute_uv=False)
    assert (values > 1e-5 * values[0]).sum() == (values > 1e-7 * values[0]).sum() == rank
