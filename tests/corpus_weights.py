"""Hosts in files, tied targets and gauges, as the corpus and the tests draw them."""

import json
import random
import struct

import naive
import numpy as np
from make_corpus import (
    added,
    changed,
    document,
    drawn_targets,
    kernel_basis,
    linear,
    matrix_of,
    written,
)
from sceptic import (
    by_length,
    dense,
    digest_of,
    dimension,
    identity_host,
    identity_least,
    least_m,
    plain_places,
    target_rows,
)

# ----------------------------------------------------------------------------------------------------
# Weights from a file, tied targets and gauges: sections 4.8, 7, 8 and 11


def packed(kind, numbers):
    """Numbers as the bytes of this type; BF16 by truncation of float32."""
    if kind[0] in "IU":
        return b"".join(int(x).to_bytes(int(kind[1:]) // 8, "little", signed=kind[0] == "I") for x in numbers)
    if kind == "BF16":
        return b"".join(struct.pack("<f", x)[2:] for x in numbers)
    return struct.pack(f"<{len(numbers)}{ {'F64': 'd', 'F32': 'f', 'F16': 'e'}[kind] }", *numbers)


def safetensors(tensors, metadata=None, order=None):
    """A file's bytes. tensors: {name: (type, shape, bytes)}."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name in order or tensors:
        kind, shape, content = tensors[name]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def weights_shapes(tied, dims, m, inner=None):
    H, L, d, _, d_out = dims
    lead = (H,) if tied else (L, H)
    out = {"R_Q": (*lead, m, d), "R_K": (*lead, m, d), "U": (m, d_out)}
    values = {"R_V": (*lead, m, m)} if inner is None else {"R_Vv": (*lead, m, inner), "R_Vo": (*lead, inner, m)}
    return out | values


def drawn_weights(tied, dims, m, seed, kinds="F32", inner=None, size=9):
    """{name: (type, shape, bytes)}; kinds: one type, or one for each tensor."""
    source, out = random.Random(seed), {}
    for name, shape in weights_shapes(tied, dims, m, inner).items():
        kind = kinds if type(kinds) is str else kinds[name]
        low = 0 if kind[0] == "U" else -size
        numbers = [source.randint(low, size) for _ in range(int(np.prod(shape)))]
        if kind[0] in "FB":
            numbers = [x / 4 for x in numbers]
        out[name] = (kind, shape, packed(kind, numbers))
    return out


def of_weights(kind, tied, tensors, dims, m, evidence, *, label, rank=None, targets="all untied", raw=None):
    """(document, {file name: content})."""
    found = document(kind, None, dims, m, evidence, rank=rank)
    host = {"system": "looped-universal" if tied else "universal", "weights": digest_of(tensors)}
    found["claim"] |= {"host": host, "targets": targets}
    if kind == "linear-test":
        found["claim"]["notion"] = "attention-matching"
    return found, {f"{label}.safetensors": safetensors(tensors) if raw is None else raw}


RECOMPUTE = {"method": "recompute", "prime": 8388593}


def dense_trie(dims, unimodular=None, kind="I8", scale=1):
    """The host `commuting-trie` as a looped host's tensors; dims = (H, L, d). With a seed, in another basis."""
    H, L, d = dims
    Q, K, V, U = identity_host("commuting-trie", H, L, d, 1)
    m = identity_least("commuting-trie", H, L, d, 1)
    left = right = np.eye(m, dtype=object)
    if unimodular is not None:
        source = random.Random(unimodular)
        for _ in range(m):
            a, b = source.sample(range(m), 2)
            step, back = np.eye(m, dtype=object), np.eye(m, dtype=object)
            step[a, b], back[a, b] = 1, -1
            left, right = left.dot(step), back.dot(right)
    parts = {
        "R_Q": np.array([left.dot(dense(Q(1, h), m, d)) for h in range(H)]),
        "R_K": np.array([left.dot(dense(K(1, h), m, d)) for h in range(H)]),
        "R_V": np.array([left.dot(dense(V(1, h), m, m)).dot(right) * scale for h in range(H)]),
        "U": left.dot(dense(U, m, 1)),
    }
    return m, {name: (kind, a.shape, packed(kind, list(a.reshape(-1)))) for name, a in parts.items()}


def commuting_kernel(H, L, d):
    """Vectors that W_all of every tied target with d_in = 1 annihilates: differences of columns with equal letters."""
    seen, out, position = {}, [], 0
    for part in "QKU":
        for w in naive.words(H, L) if part == "U" else by_length(H, 1, L):
            for j in range(1 if part == "U" else d):
                key = (part, tuple(sorted(w)), j) if part == "U" else (part, tuple(sorted(w[:-1])), w[-1], j)
                if key in seen:
                    out.append({seen[key]: 1, position: -1})
                else:
                    seen[key] = position
                position += 1
    return out


def pairs_of(z):
    return [[written(i), written(z[i])] for i in sorted(z)]


def tied_kernel(dims, label, basis=None, prime=2**31 - 1, **options):
    """A certificate of section 11 about a commuting trie; dims = (H, L, d)."""
    H, L, d = dims
    m, tensors = dense_trie(dims, **options)
    basis = commuting_kernel(H, L, d) if basis is None else basis
    evidence = {"basis": [pairs_of(z) for z in basis], "prime": prime}
    rank = dimension(H, L, d, 1, 1) - len(basis)
    return of_weights(
        "tied-kernel", True, tensors, (*dims, 1, 1), m, evidence, label=label, rank=rank, targets="all tied"
    )


def tied_target_evidence(dims, basis, row=0, seed=0):
    """The first vector of the basis with a drawn target's row that is not zero."""
    H, L, d, d_in, _ = dims
    for drawn in range(seed, seed + 50):
        (entries,) = drawn_targets(1, True, H, L, d, d_in, drawn)
        line = target_rows(entries, True, (H, L, d, d_in, d_in), plain_places)()[row]
        for z in basis:
            if sum(line[i] * v for i, v in z.items()):
                return {"method": "tied-target", "row": row, "target": entries, "z": pairs_of(z)}
    raise AssertionError


def tied_target(name, dims, m=None, row=0, seed=0, **drawn):
    """A certificate of section 7 that refutes this construction for tied targets."""
    m = least_m(name, *dims) if m is None else m
    evidence = tied_target_evidence(dims, kernel_basis(matrix_of(name, dims, m, **drawn)), row, seed)
    return changed(document("rank-deficient", name, dims, m, evidence, **drawn), "claim", "targets", "all tied")


def drawn_gauges(layers, H, d_in, d, seed):
    source = random.Random(seed)
    return [[[[source.randint(-3, 3) for _ in range(d)] for _ in range(d_in)] for _ in range(H)] for _ in range(layers)]


def gauged(name, dims, m, gauge, **drawn):
    found = linear(name, dims, m, **drawn)
    H, L, d, d_in, _ = dims
    return added(found, "evidence", "gauges", drawn_gauges(1 if name == "random-tied" else L, H, d_in, d, gauge))


MIXED = {"R_Q": "F32", "R_K": "I8", "R_V": "F16", "U": "F64", "R_Vv": "BF16", "R_Vo": "U8"}
