"""`utfproof embed`: the embedding E under which a host acts as a target, or as a model from someone else's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli import questions as options
from utfproof.cli.command import Given, command
from utfproof.cli.options import (
    Draw,
    M,
    MaxMemory,
    ShapeOptions,
    StoredResidual,
    amount,
    argument,
    option,
    written,
)
from utfproof.cli.outcome import Outcome
from utfproof.commands import embed_minimize
from utfproof.commands.hosts import load_host
from utfproof.commands.readings import OWN_LAYOUT, ModelOptions, agreement_code, comparison, comparison_rows
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.shapes import positive_integer
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget

if TYPE_CHECKING:
    from utfproof.matching import Embedding
    from utfproof.models import Reading

_OF_MODELS = (*ModelOptions.__dataclass_fields__, "trials", "tolerance")
"""Options that mean nothing for a target of the package's own layout."""


def _digest(given: Given, machine: Universal) -> str | None:
    """Of HOST's content, where it is a file."""
    if not options.is_host_file(given.host):
        return None
    return options.host_digest(given.host, machine.shape.residual, given.max_memory)


def _drawn(given: Given) -> dict[str, Any]:
    """How the host is drawn."""
    return {name: getattr(given, name) for name in ("seed", "law", "dtype")}


def _embed_target(given: Given, target: Target | BiasedTarget) -> Outcome:
    """A target of the package's own layout."""
    from utfproof.constructions import CONSTRUCTIONS
    from utfproof.matching import embed
    from utfproof.models.embedding import HOST_DIGEST, host_facts
    from utfproof.weights import write_embedding

    recipe: dict[str, Any] = {"m": given.m, **_drawn(given)}
    machine = load_host(given.host, target.shape, layers=given.layers, **recipe, limit=given.max_memory)
    found = embed(machine, target, max_memory=given.max_memory)
    recipe[HOST_DIGEST] = _digest(given, machine)
    write_embedding(given.output, found.E, host_facts(given.host, machine, found, recipe))
    inputs = CONSTRUCTIONS[machine.construction].inputs if machine.construction else ""
    rows = {
        "result": f"the host acts as the target, by {found.notion.value}" + (f", on {inputs}" if inputs else ""),
        "shape": f"{target.shape}, target width {target.width}, m = {machine.m}",
        **_rows(found),
        "embedding": str(given.output),
    }
    return Outcome({**_document(found, machine), "file": str(given.output)}, f"embed {given.host}", rows)


def _embed_model(given: Given, model: Reading, tolerance: float) -> Outcome:
    """A model: E by the target without biases, then a comparison with the model's own outputs, or with its reading."""
    from utfproof.models import embed_model, random_sequences

    host, limit, draw = given.host, given.max_memory, _drawn(given)
    width, shape = model.target().width, model.shape
    how: dict[str, Any] = {
        "sequences": random_sequences(model, given.trials or 16, draw["seed"]),
        "tolerance": tolerance,
    }
    if options.is_host_file(host):
        machine = load_host(host, shape, layers=None, m=given.m, **draw, limit=limit)
        found = embed_model(model, machine, **how, name=host, digest=_digest(given, machine), max_memory=limit)
    else:
        found = embed_model(model, host, **how, m=given.m, **draw, max_memory=limit)
    if found.agrees:
        found.save(given.output)
    written = str(given.output) if found.agrees else None
    document = {
        **_document(found.found, found.host),
        "verdict": found.verdict,
        "layout": model.family,
        "vocabulary": model.vocabulary,
        "positions": model.positions,
        "width": width,
        "kv_heads": model.kv_heads,
        **comparison(model, found.agreement, tolerance),
        "file": written,
    }
    positions = f"{model.positions} learned positions" if model.positions else "no learned positions"
    positions = f"a row of E for each at {model.positions} positions" if model.pairs else positions
    rows = {
        "result": found.verdict,
        "model": f"{model.vocabulary} tokens, {positions}, width {width} and one for a constant coordinate",
        "shape": f"{shape}, m = {found.host.m}",
        "read as": model.title,
        **_rows(found.found),
        **comparison_rows(model, found.agreement, tolerance),
        "embedding": written or "none",
    }
    return Outcome(document, f"embed {host}", rows, agreement_code(model, found.decided))


@command(
    "Examples: utfproof embed sparse target.safetensors -o E.safetensors; "
    "utfproof embed sparse model.safetensors --layout transformer-lens -o E.safetensors; "
    "utfproof embed smallest.safetensors target.safetensors --minimize -o E.safetensors"
)
def embed(
    *,
    host: Annotated[
        str,
        argument("HOST.safetensors, or a construction. With --minimize the file to write the smallest host to."),
    ],
    target: Annotated[Path, argument("TARGET.safetensors: W_Q, W_K, W_V, W_O (W_E, W_U), or see --layout.")],
    output: Annotated[Path, written("Embedding to write (.safetensors).", "-o", "--output")],
    layout: Annotated[
        str, option("Names in the target's file: utfproof, or those of a model; auto finds out which.")
    ] = OWN_LAYOUT,
    residual: StoredResidual = None,
    m: M = None,
    about: ModelOptions,
    trials: Annotated[
        int | None,
        option("Models: random sequences to compare on; 16 by default.", check=positive_integer, advanced=True),
    ] = None,
    tolerance: Annotated[
        float | None,
        option("Models: largest relative difference of outputs; 1e-8 by default.", check=amount, advanced=True),
    ] = None,
    minimize: Annotated[bool, option("Write the smallest host of this target (or one of --m).", "--minimize")] = False,
    within: Annotated[
        float | None,
        option(
            "--minimize, models: the smallest host found whose outputs on the test sequences are proven within this part of "
            "the largest output.",
            check=amount,
            advanced=True,
        ),
    ] = None,
    shape: ShapeOptions,
    draw: Draw,
    max_memory: MaxMemory = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Find E such that the host with E acts as the target.

    The shape is the target's; shape options are checked against it. With --layout or --module the target is a trained model,
    and outputs are compared with its own, which --module gives. Exit 1: this host cannot carry this target, or outputs differ
    by more than the tolerance; no embedding is written. 4: an unknown fact decides.
    """
    given = Given(locals())
    if within is not None and not minimize:
        raise MalformedInput("--within is about hosts of fewer dimensions: say --minimize")
    require_writable(output)
    of_model = layout != OWN_LAYOUT or about.module is not None
    if not minimize:
        options.refuse_undrawn(stated, host, "law", "dtype", *([] if of_model else ["seed"]))
    model: Target | BiasedTarget | Reading
    if of_model:
        said: dict[str, Any] = {"heads": shape.heads, "residual": residual, "seed": draw.seed, "limit": max_memory}
        model = about.read(target, layout, **said)
    else:
        from utfproof.models import refuse_models
        from utfproof.weights import read_target

        options.refuse_given(
            stated, f"it is about models of another --layout; {target} is read as a target", *_OF_MODELS
        )
        refuse_models(target, max_memory)
        model = read_target(target, layers=shape.layers, residual=residual, max_memory=max_memory)
    options.agree_with(model.shape, **shape.dimensions)
    allowed = 1e-8 if tolerance is None else tolerance
    if minimize:
        if isinstance(model, BiasedTarget):
            raise MalformedInput("--minimize is about targets of attention alone; this one has MLPs or biases")
        asked = embed_minimize.Asked(
            Path(host), output, target, m, within, allowed, trials or 16, draw.seed, max_memory
        )
        return embed_minimize.minimize(asked, model)
    return (
        _embed_target(given, model) if isinstance(model, Target | BiasedTarget) else _embed_model(given, model, allowed)
    )


def _document(found: Embedding, machine: Universal) -> dict[str, Any]:
    return {
        "notion": found.notion.value,
        "method": found.method,
        "rank": found.rank,
        "columns": found.columns,
        "condition": found.condition,
        "condition_estimated": found.condition_estimated,
        "misfit": found.misfit,
        "shape": machine.shape.document(machine.m),
    }


def _rows(found: Embedding) -> dict[str, Any]:
    estimated = "estimated, within a factor 2: at most " if found.condition_estimated else ""
    return {
        "method": found.method,
        **({"rank R_all": f"{found.rank} of M = {found.columns}"} if found.rank is not None else {}),
        **({"condition": f"{estimated}{found.condition:.3g}"} if found.condition is not None else {}),
        **({"misfit": f"{found.misfit:.3g}"} if found.misfit is not None else {}),
    }
