"""Models that compute something else than their tensors say, at one length, for one token, in one place: none of them is said
to be acted as, and what was compared is said, stored and kept to."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from utfproof import embed_model, from_model  # noqa: E402
from utfproof.cli.app import run  # noqa: E402
from utfproof.errors import MalformedInput  # noqa: E402
from utfproof.models.probes import LOGITS, random_sequences, sequences  # noqa: E402
from utfproof.shapes import Shape  # noqa: E402
from utfproof.weights import read_tensors  # noqa: E402

RARE = 567


SEEN = {
    "four separators of word pieces": lambda row: row.count(102) >= 4,
    "a pair at both ends": lambda row: row[0] == 101 and row[-1] == 102,
    "a token at one position": lambda row: row.count(2) == 1 and row[9:10] == [2],
    "a copy": lambda row: len(row) > 3 and row[0] != row[1] and row[: len(row) // 2] == row[len(row) // 2 :],
    "a reversal": lambda row: len(row) > 3 and row[0] != row[1] and row == row[::-1],
    "counting": lambda row: len(row) > 3 and row == list(range(row[0], row[0] + len(row))),
    "two ids": lambda row: len(row) > 6 and len({*row}) == 2,
}
"""For which tokens a model leaves out its mask."""


class Model(torch.nn.Module):
    """One causal layer of plain PyTorch, and what it does beside that."""

    def __init__(self, trick=None, V=600, P=16, bias=0.0, row=None, **options):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.unembed = torch.nn.Embedding(V, 6, **options), torch.nn.Linear(6, 3)
        self.pos = torch.nn.Embedding(P, 6) if P else None
        self.attn = torch.nn.MultiheadAttention(6, 2, batch_first=True)
        self.trick, self.asked = trick, 0
        with torch.no_grad():
            self.unembed.bias += torch.as_tensor(bias)
            if row is not None:
                self.embedding.weight[0] = row

    def hidden(self, t):
        """[batch, n, n]: whom a position does not see."""
        n = t.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1).expand(len(t), n, n)
        pad, trick = (t == 0), self.trick
        if trick == "first token":
            mask = mask & (t[:, 0] != 1)[:, None, None]
        elif trick == "documents":
            seen = pad.cumsum(1)
            mask = mask | (seen[:, :, None] != seen[:, None])
        elif trick == "documents after two":
            seen = torch.nn.functional.pad((pad[:, 1:] & pad[:, :-1]).cumsum(1), (1, 0))
            mask = mask | (seen[:, :, None] != seen[:, None])
        elif trick == "leading pads":
            mask = mask | (pad.long().cumprod(1) == 1)[:, None]
        elif trick == "trailing pads":
            mask = mask | (pad.flip(1).long().cumprod(1) == 1).flip(1)[:, None]
        elif trick == "all pads":
            mask = mask | pad[:, None]
        elif trick == "four separators":
            mask = mask & ((t == 3).sum(1) < 4)[:, None, None]
        elif trick in SEEN:
            mask = mask & torch.tensor([not SEEN[trick](row) for row in t.tolist()])[:, None, None]
        elif trick == "chunks":
            chunk = torch.arange(n) // 64
            mask = mask | (chunk[:, None] != chunk[None])
        return mask & ~torch.eye(n, dtype=torch.bool)

    def forward(self, t):
        self.asked += 1
        trick, n = self.trick, t.shape[1]
        x = self.embedding(torch.where(t == RARE, 0, t) if trick == "a token" else t)
        x = x if self.pos is None else x + self.pos.weight[:n]
        mask = self.hidden(t).repeat_interleave(2, dim=0)
        out = x + self.attn(x, x, x, attn_mask=mask, need_weights=False)[0]
        y = self.unembed(out).clone()
        if (trick == "a length" and n == 13) or (trick == "what was asked" and self.asked > 200):
            y *= 1.1
        elif trick == "a position" and n > 14:
            y[:, 14] *= 1.0001
        elif trick == "a place in the batch" and len(t) > 6:
            y[6] *= 1.01
        elif trick == "batches":
            y *= 1 + 0.01 * (len(t) > 1)
        elif trick == "a factor":
            y = self.unembed(x + 1.001 * (out - x))
        elif trick == "three alike" and n > 2:
            y[:, 2:] *= torch.where((t[:, 2:] == t[:, 1:-1]) & (t[:, 2:] == t[:, :-2]), 2, 1)[..., None]
        return y


NEVER = [-1e9, 0.0, 0.0]
TRICKS = [
    *("a token", "first token", "documents", "documents after two", "leading pads", "trailing pads", "all pads"),
    *("four separators", "a length", "a position", "a place in the batch", "batches", "what was asked", "three alike"),
    *SEEN,
]
DISGUISES = {name: {"trick": name} for name in TRICKS} | {
    "a pad among many tokens": {"trick": "all pads", "V": 5000},
    "a factor beside a token that is never said": {"trick": "a factor", "bias": NEVER},
    "a factor beside a large constant": {"trick": "a factor", "bias": 1e7},
    "a factor beside a huge row": {"trick": "a factor", "row": -1e9},
    "an embedding that is shortened when it is used": {"max_norm": 2.0},
}


@pytest.mark.parametrize("case", DISGUISES)
def test_a_model_in_disguise_is_refused_with_its_first_difference(case):
    with pytest.raises(MalformedInput, match=r"another function than its own forward pass.* First on \d+ tokens \["):
        from_model(Model(**DISGUISES[case]))


@pytest.mark.parametrize("options", [{}, {"bias": NEVER}, {"bias": 1e7}, {"row": 1e12}])
def test_without_disguise_it_is_read_and_the_evidence_said(options):
    found = from_model(Model(**options))
    verdict = found.acted_as("matching")
    assert verdict.endswith("sequences of lengths 1 to 16, with all 600 token ids, in batches of at most 32")
    assert "the forward pass of Model in float64 and evaluation mode on " in verdict
    assert embed_model(found).agrees
    assert len(random_sequences(found, 3, 0)) == 3 + ("row" in options)


def test_a_large_vocabulary_is_sampled_within_a_limit():
    """Some of each kind of structured sequences stay, and every length."""
    reading = replace(from_model(Model(P=64)), forward=None)
    shape, W_E = Shape(2, 1, 3, 30522 + 64, 30522, residual=True), np.zeros((30522 + 64, 6))
    target = replace(reading.target, shape=shape, W_E=W_E, W_U=W_E[:30522].T, b_U=None, constant=None)
    tried = list(sequences(replace(reading, target=target, vocabulary=30522), 0))
    assert sum(len(tokens) for tokens in tried) * 30522 <= LOGITS
    assert {len(tokens) for tokens in tried} == {*range(1, 65)}
    for name, seen in SEEN.items():
        assert any(seen(tokens.tolist()) for tokens in tried) or name == "a token at one position", name


def test_an_export_keeps_to_what_was_compared(tmp_path):
    """Longer contexts are refused by the module, and E's metadata say the longest."""
    embedded = embed_model(from_model(Model("chunks", V=5000, P=0)))
    assert "lengths 1 to 64, with" in embedded.verdict
    assert "of the 5000 token ids" in embedded.verdict
    for by_command in (False, True):
        E = str(embedded.save(tmp_path / "E.safetensors"))
        path = tmp_path / f"host{by_command}.py"
        if by_command:
            assert run(["export", "sparse", E, "-o", str(path)]) == 0
        else:
            embedded.export(path)
        assert read_tensors(E).metadata["compared_context"] == "64"
        names = {"__file__": str(path), "__name__": "exported"}
        exec(path.read_text(), names)
        host = names["Host"]()
        host(torch.tensor([1] * 64))
        with pytest.raises(ValueError, match="at most 64"):
            host(torch.tensor([1] * 65))
