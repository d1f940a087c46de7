"""nanoGPT: GPT-2's names with nn.Linear, whose weights [out, in] act from the left."""

from __future__ import annotations

from typing import Any

from utfproof.models.families.gpt2 import FIELDS, NAMES, NORMS, SETTLED, rows, stored_as_linear
from utfproof.models.family import EMBEDDED, Family, harmless, sets


def _double(module: Any) -> None:
    """Given targets, a nanoGPT returns the logits of all positions; without them those of the last one, which are taken from
    there, as they are what it is run for."""
    forward = module.forward

    def logits(tokens: Any) -> Any:
        found = forward(tokens, tokens)[0].clone()
        found[:, -1:] = forward(tokens)[0]
        return found

    module.forward = logits


FAMILY = Family(
    name="nanogpt",
    title="nanoGPT",
    layer=rows("(c H d) D", "D (H d)"),
    outer=EMBEDDED,
    outer_names=NAMES,
    marks=(("c_attn.weight", "c_proj.weight"),),
    config={**FIELDS, "block_size": sets("context"), **harmless("dropout", "bias")},
    settled={**SETTLED, "eps": 1e-5, "scale": "1/sqrt(d)", "head_order": "consecutive rows of each third"},
    buffers=(r"attn\.bias$",),
    double=_double,
    norms=NORMS,
    live=lambda module, layers: dict(vars(module.config)),
    recognised=stored_as_linear,
    looks="nanoGPT names (h.0.attn.c_attn.weight)",
)
