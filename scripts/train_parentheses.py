"""Train a small attention-only transformer on parenthesis balancing and save it as safetensors.

Usage:
    python scripts/train_parentheses.py --out parentheses.safetensors
    python scripts/train_parentheses.py --out p.safetensors --seed 1 --steps 1000 --heads 2 --width 8

The defaults take about a minute on two CPU cores. The script is ordinary PyTorch: it needs torch, numpy and
safetensors, and does not import `utfproof`.

Task. A string of at most 60 parentheses is followed by "?"; the model answers ")" if the string is
balanced and "(" if it is not, at the "?" row. Tokens: 0 pad, 1 "(", 2 ")", 3 "?".

Model. No residual stream, layer norm, MLP, bias or position: x = X W_E for the one-hot tokens X, then in
each layer x <- sum_h softmax(x W_Q (x W_K)^T / sqrt(d) + causal mask) x W_V W_O, and logits = x W_U.

File. W_E [4, D]; W_Q, W_K, W_V [L, H, D, d]; W_O [L, H, d, D]; W_U [D, 4]; all float32. The metadata gives
the system, the scale, the task and the accuracy on held-out strings.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

if "OMP_WAIT_POLICY" not in os.environ:  # read when torch loads; busy waits are slow on a shared machine
    os.environ["OMP_WAIT_POLICY"] = "passive"

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as serialize
from torch import Tensor, nn
from torch.nn import functional as F

PAD, OPEN, CLOSE, QUERY = range(4)
VOCABULARY = 4
HELD_OUT = 4096
WARM_UP = 100
CHUNK = 16
Ints = NDArray[np.int64]


def balanced_strings(pairs: Ints, width: int, rng: np.random.Generator) -> Ints:
    """One random balanced string per entry of `pairs`, padded to `width`, one recursion level at a time."""
    out = np.full((len(pairs), width), PAD)
    row, start, size = np.arange(len(pairs)), np.zeros_like(pairs), pairs
    while len(row):
        wrap = (size == 1) | (rng.random(len(row)) < 0.5)
        out[row[wrap], start[wrap]] = OPEN
        out[row[wrap], (start + 2 * size - 1)[wrap]] = CLOSE
        inner, split = wrap & (size > 1), ~wrap
        left = rng.integers(1, np.maximum(size, 2))[split]  # the pairs left of the place of the split
        row = np.concatenate([row[inner], row[split], row[split]])
        start = np.concatenate([start[inner] + 1, start[split], start[split] + 2 * left])
        size = np.concatenate([size[inner] - 1, left, size[split] - left])
    return out


def mutate(strings: Ints, lengths: Ints, rng: np.random.Generator) -> None:
    """Swap and flip random positions, in place, in about three quarters of the strings."""
    count = len(strings)
    swaps = rng.integers(0, 2, count) * rng.geometric(0.5, count)
    flips = rng.integers(0, 2, count) * rng.geometric(0.5, count) * np.where(rng.random(count) < 2 / 3, 2, 1)
    for k in range(swaps.max(initial=0)):
        p, q = rng.integers(0, lengths), rng.integers(0, lengths)
        i = np.flatnonzero((swaps > k) & (p < q))
        strings[i, p[i]], strings[i, q[i]] = strings[i, q[i]], strings[i, p[i]]
    for k in range(flips.max(initial=0)):
        i, p = np.flatnonzero(flips > k), rng.integers(0, lengths)
        strings[i, p[i]] = OPEN + CLOSE - strings[i, p[i]]


def is_balanced(strings: Ints) -> NDArray[np.bool_]:
    depth = np.cumsum((strings == OPEN).astype(np.int64) - (strings == CLOSE), axis=1)
    return (depth.min(axis=1) >= 0) & (depth[:, -1] == 0)


def sample(count: int, max_pairs: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Token rows (string, "?", padding), the position of "?" and the answer token of `count` strings."""
    width = 2 * max_pairs
    pairs = rng.integers(1, max_pairs + 1, count)
    strings, lengths = balanced_strings(pairs, width, rng), 2 * pairs
    keep = rng.random(count) < 0.5
    mutated, uniform = strings.copy(), rng.random(count) < 1 / 3
    mutate(mutated, lengths, rng)
    strings = np.where(keep[:, None], strings, mutated)
    lengths = np.where(uniform, rng.integers(1, width + 1, count), lengths)
    noise = np.where(np.arange(width) < lengths[:, None], rng.integers(OPEN, CLOSE + 1, strings.shape), PAD)
    strings = np.where(uniform[:, None], noise, strings)
    answer = np.where(is_balanced(strings), CLOSE, OPEN)
    tokens = np.concatenate([strings, np.full((count, 2), PAD)], axis=1)
    tokens[np.arange(count), lengths] = QUERY
    return torch.from_numpy(tokens), torch.from_numpy(lengths), torch.from_numpy(answer)


class AttentionLayer(nn.Module):
    def __init__(self, heads: int, width: int, head_dim: int) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(head_dim)
        self.W_Q = nn.Parameter(torch.randn(heads, width, head_dim) / math.sqrt(width))
        self.W_K = nn.Parameter(torch.randn(heads, width, head_dim) / math.sqrt(width))
        self.W_V = nn.Parameter(torch.randn(heads, width, head_dim) / math.sqrt(width))
        self.W_O = nn.Parameter(torch.randn(heads, head_dim, width) / math.sqrt(head_dim))

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Attention of the rows `queries` [B, m, D] to the rows `keys` [B, n, D], with an additive mask."""
        wqk = self.scale * self.W_Q @ self.W_K.mT  # one product per head: cheaper than queries and keys apart
        scores = (queries[:, None] @ wqk) @ keys[:, None].mT
        attention = torch.softmax(scores + mask, dim=-1)
        return (attention @ keys[:, None] @ (self.W_V @ self.W_O)).sum(dim=1)


class Transformer(nn.Module):
    def __init__(self, layers: int, heads: int, width: int, head_dim: int) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.randn(VOCABULARY, width))
        self.layers = nn.ModuleList([AttentionLayer(heads, width, head_dim) for _ in range(layers)])
        self.W_U = nn.Parameter(torch.randn(width, VOCABULARY) / math.sqrt(width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at every row."""
        x = F.one_hot(tokens, VOCABULARY).float() @ self.W_E
        n = tokens.shape[1]
        mask = torch.full((n, n), -torch.inf).triu(1)
        for layer in self.layers:
            x = layer(x, x, mask)
        return x @ self.W_U

    def answer(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Logits at row `position` of each string: equal to `forward` there, and much cheaper.

        Without positions the scores of the first layer depend only on the two tokens, so its keys can be the
        four tokens, weighted by how often each has occurred. The last layer is needed at one row only.
        """
        one_hot = F.one_hot(tokens, VOCABULARY).float()
        first = self.layers[0]
        log_counts = one_hot.cumsum(dim=1).log()
        scores = first.scale * (self.W_E @ first.W_Q) @ (self.W_E @ first.W_K).mT
        attention = torch.softmax(one_hot[:, None] @ scores + log_counts[:, None], dim=-1)
        values = self.W_E @ first.W_V @ first.W_O
        x = attention.transpose(1, 2).flatten(2) @ values.flatten(0, 1)
        n = tokens.shape[1]
        causal = torch.full((n, n), -torch.inf).triu(1)
        for layer in self.layers[1:-1]:
            x = layer(x, x, causal)
        row = x.gather(1, position[:, None, None].expand(-1, 1, x.shape[2]))
        if len(self.layers) > 1:
            mask = torch.zeros(tokens.shape).masked_fill(torch.arange(n) > position[:, None], -torch.inf)
            row = self.layers[-1](row, x, mask[:, None, None])
        return row[:, 0] @ self.W_U


def train(model: Transformer, args: argparse.Namespace) -> None:
    rng = np.random.default_rng([args.seed, 0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP, (args.steps - step) / args.steps)
    )
    began = time.monotonic()
    for step in range(args.steps):
        if step % CHUNK == 0:  # draw many batches at once and give each batch strings of similar length
            tokens, position, answer = sample(CHUNK * args.batch, args.max_pairs, rng)
            batches = np.argsort(position.numpy(), kind="stable").reshape(CHUNK, args.batch)
            batches = rng.permutation(batches, axis=0)
        index = torch.from_numpy(batches[step % CHUNK])
        at = position[index]
        logits = model.answer(tokens[index, : int(at.max()) + 1], at)
        loss = F.cross_entropy(logits, answer[index])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        schedule.step()
        if (step + 1) % 500 == 0:
            seconds = time.monotonic() - began
            print(f"step {step + 1}/{args.steps}  loss {loss.item():.4f}  {seconds:.0f} s", flush=True)


@torch.no_grad()
def evaluate(model: Transformer, args: argparse.Namespace) -> tuple[float, float]:
    """Accuracy of the plain forward pass on fresh strings, and of always giving their majority answer."""
    tokens, position, answer = sample(HELD_OUT, args.max_pairs, np.random.default_rng([args.seed, 1]))
    rows = zip(tokens.split(256), position.split(256), strict=True)
    logits = torch.cat([model(t)[torch.arange(len(t)), p] for t, p in rows])
    accuracy = (logits.argmax(dim=1) == answer).double().mean().item()
    closed = (answer == CLOSE).double().mean().item()
    return accuracy, max(closed, 1 - closed)


def save(model: Transformer, accuracy: float, out: Path) -> None:
    tensors = {"W_E": model.W_E.detach(), "W_U": model.W_U.detach()}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        tensors[name] = torch.stack([getattr(layer, name).detach() for layer in model.layers])
    metadata = {"system": "target", "scale": "1/sqrt(d)", "task": "parenthesis balancing"}
    metadata["accuracy"] = f"{accuracy:.4f}"
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(serialize(tensors, metadata))
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def parse_arguments() -> argparse.Namespace:
    parser = Parser(description="Train an attention-only transformer on parenthesis balancing.")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=5e-3, help="peak learning rate (default 0.005)")
    sizes = {"steps": 2500, "batch": 512, "max-pairs": 30}
    sizes |= {"heads": 4, "layers": 2, "head-dim": 24, "width": 16}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    args = parser.parse_args()
    for name in sizes:
        if getattr(args, name.replace("-", "_")) < 1:
            parser.error(f"--{name} must be at least 1")
    if args.seed < 0 or not 0 < args.lr < math.inf:
        parser.error("--seed must be at least 0 and --lr positive")
    if args.out.is_dir() or not args.out.parent.is_dir():
        parser.error(f"cannot write a file at {args.out}")
    return args


def main() -> int:
    args = parse_arguments()
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    model = Transformer(args.layers, args.heads, args.width, args.head_dim)
    try:
        train(model, args)
        accuracy, baseline = evaluate(model, args)
        save(model, accuracy, args.out)
    except (OSError, RuntimeError) as error:
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    print(f"held-out accuracy {accuracy:.4f} on {HELD_OUT} strings (majority baseline {baseline:.4f})")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
