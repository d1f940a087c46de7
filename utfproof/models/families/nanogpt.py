"""nanoGPT: GPT-2's names with nn.Linear, whose weights [out, in] act from the left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from utfproof.models.families.gpt2 import CODE, FIELDS, NAMES, NORMS, config_of, rows, stored_as_linear
from utfproof.models.family import EMBEDDED, WORDS, Family, harmless, sets


def _double(module: Any) -> None:
    """Given targets, a nanoGPT returns the logits of all positions; without them those of the last one, which are taken from
    there, as they are what it is run for. One that returns all of them without targets is run as it is."""
    forward = module.forward

    def logits(tokens: Any) -> Any:
        alone = forward(tokens)
        last = alone[0] if isinstance(alone, tuple) and alone else alone
        if getattr(last, "ndim", 0) != 3 or last.shape[1] != 1 or tokens.shape[1] == 1:
            return alone
        found = forward(tokens, tokens)[0].clone()
        found[:, -1:] = last
        return found

    module.forward = logits


HEADS = "consecutive rows of each third"
OWN = ("n_layer", "n_head", "n_embd", "vocab_size", "block_size")
"""Fields of every GPTConfig of nanoGPT; no other architecture of these names has them all."""


def _implied(config: Mapping[str, Any]) -> dict[str, Any]:
    """What nanoGPT's code does. Under the same names others keep the queries, keys and values of each head together."""
    return {**CODE, "scale": "1/sqrt(d)", "head_order": HEADS} if all(name in config for name in OWN) else {}


FAMILY = Family(
    name="nanogpt",
    title="nanoGPT",
    layer=rows("(c H d) D", "D (H d)"),
    outer=EMBEDDED,
    outer_names=NAMES,
    marks=(("c_attn.weight", "c_proj.weight"),),
    config={
        **WORDS,
        **FIELDS,
        "block_size": sets("context"),
        "bias": sets("biased"),
        "head_order": sets("head_order", {HEADS: HEADS}),
        **harmless("dropout"),
    },
    settled={"stream": True, "eps": 1e-5},
    assumed={**CODE, "scale": "1/sqrt(d)", "head_order": HEADS},
    shows_positions=True,
    implies=_implied,
    buffers=(r"attn\.bias$",),
    double=_double,
    norms=NORMS,
    live=config_of,
    recognised=stored_as_linear,
    looks="nanoGPT names (h.0.attn.c_attn.weight)",
)
