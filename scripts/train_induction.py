"""Train a small attention-only residual transformer on induction and save its state dict as safetensors.

    python scripts/train_induction.py --out induction.safetensors [--seed 1] [--steps 500]

It takes well under a minute on one core. The script is ordinary PyTorch and does not import `utfproof`; `make(FILE)` gives
the stored model.

Task. Every sequence has a random map f of the vocabulary of its own and reads a f(a) b f(b) c f(c) ...; at a, b, c, ... the
model predicts the next token. Where the same token has stood at such a place before, its successor stands in the context:
attention can find it, by looking for the token whose predecessor is the current one. Accuracy is counted there.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 8, 16, 24, 2, 2
BATCH, HELD_OUT = 128, 2048
METADATA = {
    **{"heads": str(HEADS), "residual": "true", "attention_dir": "causal", "positional_embedding_type": "standard"},
    **dict.fromkeys(("window", "normalization_type", "attn_scores_soft_cap", "output_logits_soft_cap"), "none"),
    **{"use_attn_scale": "true", "add_zero_attn": "false", "task": "induction"},
}
"""What outputs depend on and tensors do not show."""


def sample(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens [count, CONTEXT + 1], and where the successor of the current token has been seen, bool [count, CONTEXT]."""
    successor = torch.randint(VOCABULARY, (count, VOCABULARY), generator=generator)
    asked = torch.randint(VOCABULARY, (count, CONTEXT // 2 + 1), generator=generator)
    tokens = torch.stack([asked, successor.gather(1, asked)], dim=2).flatten(1)[:, : CONTEXT + 1]
    seen = (asked[:, :, None] == asked[:, None, :]).tril(-1).any(dim=2)
    return tokens, torch.stack([seen, torch.zeros_like(seen)], dim=2).flatten(1)[:, :CONTEXT]


class Layer(nn.Module):
    """x + MultiheadAttention(x), causal and with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        for bias in (self.attn.in_proj_bias, self.attn.out_proj.bias):
            nn.init.normal_(bias, std=0.1)  # PyTorch starts them at zero

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return x + self.attn(x, x, x, attn_mask=mask, need_weights=False)[0]


class Transformer(nn.Module):
    """Token embedding + learned position, the layers, and a linear map with a bias; no norm, no MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.pos = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.unembed = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [count, n, VOCABULARY]."""
        return self.unembed(self.layers(self.embedding(tokens) + self.pos.weight[: tokens.shape[1]]))


def make(path: Path | str) -> Transformer:
    """The model of a file that this script wrote."""
    model = Transformer()
    model.load_state_dict(load_file(path))
    return model


def train(model: Transformer, steps: int, seed: int) -> float:
    """Train in place; the accuracy on fresh sequences, where the answer stands in the context."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 50, (steps - step) / steps))
    for _ in range(steps):
        tokens, asked = sample(BATCH, generator)
        loss = F.cross_entropy(model(tokens[:, :-1])[asked], tokens[:, 1:][asked])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        schedule.step()
    tokens, asked = sample(HELD_OUT, torch.Generator().manual_seed(seed + 2**32))
    with torch.no_grad():
        return float((model(tokens[:, :-1]).argmax(dim=-1) == tokens[:, 1:])[asked].double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train an attention-only residual transformer on induction.")
    parser.add_argument("--out", type=Path, required=True, help="the safetensors file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(given.seed)
    model = Transformer()
    accuracy = train(model, given.steps, given.seed)
    given.out.write_bytes(serialize(model.state_dict(), METADATA | {"accuracy": f"{accuracy:.4f}"}))
    print(f"accuracy {accuracy:.4f} on {HELD_OUT} sequences, where the answer stands in the context")
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
