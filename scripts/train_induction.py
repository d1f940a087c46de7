"""Train a small attention-only residual transformer on induction and save it as safetensors.

Usage:
    python scripts/train_induction.py --out induction.safetensors
    python scripts/train_induction.py --out induction-tl.safetensors --layout transformer-lens --seed 1 --steps 500

The defaults take well under a minute on one core. The script is ordinary PyTorch and does not import `utfproof`.

Task. Every sequence has a random map f of the vocabulary of its own and reads a f(a) b f(b) c f(c) ...; at a, b, c, ... the
model predicts the next token. Where the same token has stood at such a place before, its successor stands in the context:
attention can find it, by looking for the token whose predecessor is the current one. Accuracy is counted there.

Model. x = token embedding + learned position; in each layer x <- x + MultiheadAttention(x) with a causal mask and biases;
logits = Linear(x) with a bias. No layer norm, no MLP.

File. float32. --layout pytorch: the model's state dict (`embedding.weight`, `pos.weight`, `layers.0.attn.in_proj_weight`, ...,
`unembed.weight`, `unembed.bias`). --layout transformer-lens: the same numbers as `embed.W_E`, `pos_embed.W_pos`,
`blocks.0.attn.W_Q` [H, D, d], ..., `unembed.W_U`, `unembed.b_U`. The metadata gives heads, residual, the task and the accuracy
on held-out sequences.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save as serialize
from torch import Tensor, nn
from torch.nn import functional as F

HELD_OUT = 2048
READING = {
    **{"attention_dir": "causal", "positional_embedding_type": "standard", "use_attn_scale": "true"},
    **dict.fromkeys(("window", "normalization_type", "attn_scores_soft_cap", "output_logits_soft_cap"), "none"),
    "add_zero_attn": "false",
}
"""What outputs depend on and tensors do not show."""


def sample(count: int, vocabulary: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens [count, context + 1], and where the successor of the current token has been seen, bool [count, context]."""
    successor = torch.randint(vocabulary, (count, vocabulary), generator=generator)
    asked = torch.randint(vocabulary, (count, context // 2 + 1), generator=generator)
    tokens = torch.stack([asked, successor.gather(1, asked)], dim=2).flatten(1)[:, : context + 1]
    seen = (asked[:, :, None] == asked[:, None, :]).tril(-1).any(dim=2)
    answerable = torch.stack([seen, torch.zeros_like(seen)], dim=2).flatten(1)[:, :context]
    return tokens, answerable


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        for bias in (self.attn.in_proj_bias, self.attn.out_proj.bias):
            nn.init.normal_(bias, std=0.1)  # PyTorch starts them at zero

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out, _ = self.attn(x, x, x, attn_mask=mask, need_weights=False)
        return x + out


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.pos = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.unembed = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [count, n, vocabulary]."""
        n = tokens.shape[1]
        x = self.embedding(tokens) + self.pos.weight[:n]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        return self.unembed(x)


def train(model: Transformer, args: argparse.Namespace) -> None:
    generator = torch.Generator().manual_seed(args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 50, (args.steps - s) / args.steps))
    for step in range(args.steps):
        tokens, asked = sample(args.batch, args.vocabulary, args.context, generator)
        loss = F.cross_entropy(model(tokens[:, :-1])[asked], tokens[:, 1:][asked])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        schedule.step()
        if (step + 1) % 200 == 0:
            print(f"step {step + 1}/{args.steps}  loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def evaluate(model: Transformer, args: argparse.Namespace) -> float:
    """Accuracy on fresh sequences, at the positions where the answer stands in the context."""
    tokens, asked = sample(HELD_OUT, args.vocabulary, args.context, torch.Generator().manual_seed(args.seed + 2**32))
    right = model(tokens[:, :-1]).argmax(dim=-1) == tokens[:, 1:]
    return float(right[asked].double().mean())


def transformer_lens_names(model: Transformer, heads: int) -> dict[str, Tensor]:
    """The same numbers under TransformerLens' names and axes: [H, D, d], [H, d, D], [H, d]."""
    width = model.pos.weight.shape[1]
    out = {
        "embed.W_E": model.embedding.weight,
        "pos_embed.W_pos": model.pos.weight,
        "unembed.W_U": model.unembed.weight.T,
        "unembed.b_U": model.unembed.bias,
    }
    for number, layer in enumerate(model.layers):
        attn, name = layer.attn, f"blocks.{number}.attn."
        for kind, weight, bias in zip("QKV", attn.in_proj_weight.chunk(3), attn.in_proj_bias.chunk(3), strict=True):
            out[f"{name}W_{kind}"] = weight.reshape(heads, -1, width).transpose(1, 2)
            out[f"{name}b_{kind}"] = bias.reshape(heads, -1)
        out[f"{name}W_O"] = attn.out_proj.weight.T.reshape(heads, -1, width)
        out[f"{name}b_O"] = attn.out_proj.bias
    return out


def save(model: Transformer, accuracy: float, args: argparse.Namespace) -> None:
    tensors = transformer_lens_names(model, args.heads) if args.layout == "transformer-lens" else model.state_dict()
    metadata = {
        "heads": str(args.heads),
        "residual": "true",
        "task": "induction",
        "accuracy": f"{accuracy:.4f}",
    } | READING
    args.out.write_bytes(serialize({k: v.detach().contiguous() for k, v in tensors.items()}, metadata))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train an attention-only residual transformer on induction.")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument("--layout", choices=("pytorch", "transformer-lens"), default="pytorch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate (default 0.003)")
    sizes = {"steps": 500, "batch": 128, "heads": 2, "layers": 2, "width": 24, "vocabulary": 8, "context": 16}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    args = parser.parse_args()
    for name in sizes:
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if args.width % args.heads:
        parser.error("--width must be a multiple of --heads")
    return args


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    model = Transformer(args.vocabulary, args.context, args.width, args.heads, args.layers)
    train(model, args)
    accuracy = evaluate(model, args)
    save(model, accuracy, args)
    print(f"accuracy {accuracy:.4f} on {HELD_OUT} sequences, where the answer stands in the context")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
