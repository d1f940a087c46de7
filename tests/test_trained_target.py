"""A target trained by ordinary PyTorch code outside the package, embedded into fixed hosts."""

from pathlib import Path

import numpy as np
import pytest

from utfproof.attention import parse_kernel
from utfproof.constructions import build_host
from utfproof.emulation.compare import relative_error
from utfproof.matching import embed
from utfproof.weights import read_target

TRAINED = Path(__file__).parent / "data" / "parentheses.safetensors"
"""W_E, W_Q, W_K, W_V, W_O and W_U of a model that was trained in plain PyTorch on strings of at most 60 parentheses."""


@pytest.fixture(scope="module")
def target():
    return read_target(TRAINED)


def sentence(n, seed=0):
    """One-hot tokens of a random parenthesis string of n-1 characters and the query token, [n, 4]."""
    tokens = np.random.default_rng(seed).integers(1, 3, size=n)
    tokens[-1] = 3
    return np.eye(4)[tokens]


def test_the_target_is_read_from_its_file(target):
    assert str(target.shape) == "(H, L, d, d_in) = (4, 2, 24, 4)"
    assert (target.width, target.tied) == (16, False)


@pytest.mark.parametrize("text", ["((()))", "()()(())", "(()", ")(", "())(()", "(" * 15 + ")" * 15])
def test_it_knows_balance(target, text):
    """The trained model, run by this package's forward pass, answers like a stack."""
    depth, balanced = 0, True
    for c in text:
        depth += 1 if c == "(" else -1
        balanced &= depth >= 0
    balanced &= depth == 0
    tokens = [1 if c == "(" else 2 for c in text] + [3]
    logits = target.forward(np.eye(4)[tokens], parse_kernel("scaled+causal", 4, 24))[-1]
    assert (logits[2] > logits[1]) == balanced


@pytest.mark.full
@pytest.mark.parametrize("name", ["sparse", "tied", "random"])
def test_three_hosts_agree_with_it(target, name):
    host = build_host(name, target.shape)
    assert host.m == 1024
    E = embed(host, target).E
    for n in (1, 2, 61, 500):
        for attention in ("scaled", "scaled+causal"):
            kernel = parse_kernel(attention, 4, 24)
            x = sentence(n, seed=n)
            assert relative_error(host.forward(x, E, kernel), target.forward(x, kernel)) < 1e-9
