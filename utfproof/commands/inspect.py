"""`utfproof inspect`: what the attention of a model shows, and which theorems rule out an embedding of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli.options import MaxMemory
from utfproof.cli.outcome import Outcome


def inspect(
    *,
    model: Annotated[
        Path, typer.Argument(help="Weights of a model (.safetensors), or with --module the factory's path.")
    ],
    heads: Annotated[int | None, typer.Option(help="Heads of queries, where tensors do not show them.")] = None,
    module: Annotated[
        str | None, typer.Option(help="package.module:factory, called with MODEL's path; runs that code.")
    ] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Show a model's attention: ranks, dead and shared heads, hosts.

    Ranks of QK and OV circuits are numerical. Norms (their gains too), MLPs and biases are left out: nothing here says that a
    host acts as the model. The least m is that of all targets of the skeleton's sizes, by matching.

    Examples: utfproof inspect model.safetensors --heads 12; utfproof inspect any --module package.module:factory --json
    """
    from utfproof.models.importing import read_file
    from utfproof.models.inspection import COMPOSED, inspect_model
    from utfproof.models.modules import live_tensors, make_module

    if module is None:
        file = read_file(model, max_memory)
        said = file.metadata.get("heads", "")
        heads = heads or (int(said) if said.isdecimal() and int(said) else None)
    else:
        made = make_module(module, model)
        file, held = live_tensors(made), getattr(made, "config", None)
        heads = heads or getattr(held, "num_attention_heads", None)
    found = inspect_model(file, heads)
    shape, records = found["shape"], found["heads"]
    low = [
        f"{h['head']} (QK {h['rank_QK']}, OV {h['rank_OV']})"
        for h in records
        if min(h["rank_QK"], h["rank_OV"]) < h["full"] and not h["dead"]
    ]
    repeats = ("repeats_queries_keys", "repeats_values_outputs")
    same = {f"{h['head']} has matrices of {h[name]}": None for h in records for name in repeats if h[name]}
    scores = [f"{c['kind']} {c['reader']} of {c['writer']}: {c['score']:.2f}" for c in found["composition"]]
    rows: dict[str, Any] = {
        "attention": f"H = {shape['heads']}, L = {shape['layers']}, d = {shape['head_dim']}, width {found['width']}",
        "heads of keys": str(found["kv_heads"]),
        "ranks": f"full ({records[0]['full']}) in all heads" if not low else f"below {records[0]['full']}: {_few(low)}",
        "dead heads": _few([h["head"] for h in records if h["dead"]]),
        "repeated heads": _few([*same]),
        "strongest composition": _few(scores[:COMPOSED], COMPOSED),
        **{f"least m, {name}": f"{m:,}" for name, m in found["least_m"].items()},
        **{entry["what"]: f"{entry['says']} ({entry['theorem']}; {entry['found']})" for entry in found["obstacles"]},
    }
    return Outcome(found, f"inspect {model}", rows)


def _few(words: list[str], most: int = 6) -> str:
    """The first of these words."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more if words else "none"
