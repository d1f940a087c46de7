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
from utfproof.commands import embed_minimize, own_norm, readings
from utfproof.commands.hosts import OWN_NORM, load_host
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.shapes import positive_integer, span
from utfproof.systems import Target, Universal

if TYPE_CHECKING:
    from utfproof.matching import Embedding
    from utfproof.models import Reading

OWN_LAYOUT = "utfproof"
_OF_MODELS = ("scale", "attention", "config", "reference", "module", "inputs", "trials", "tolerance", "tokens")
"""Options that mean nothing for a target of the package's own layout."""


MOST_TOKENS = 10**6
"""Token ids of a part of a model."""


def _allowed(given: Given) -> float:
    """Largest relative difference of outputs."""
    return 1e-8 if given.tolerance is None else given.tolerance


def _model(given: Given) -> Reading:
    """The model of a file, or of the module that --module makes."""
    from utfproof.models import from_model, import_model, make_module, read_config

    config = None if given.config is None else read_config(given.config)
    facts: dict[str, Any] = {"heads": given.heads, "config": config}
    if given.module is None:
        facts |= {name: getattr(given, name) for name in ("attention", "residual", "scale", "reference")}
        return import_model(given.target, given.layout, **facts, max_memory=given.max_memory)
    for name in ("scale", "attention", "reference"):
        if getattr(given, name) is not None:
            raise MalformedInput(f"--{name} says what a live module shows by itself: leave it out with --module")
    if given.tokens is not None:
        facts |= {"tokens": _token_ids(given.tokens), "positions": given.positions, "upto": given.upto}
    return from_model(make_module(given.module, given.target), **facts, seed=given.seed)


def _token_ids(text: str) -> list[int]:
    """Token ids and ranges of them, such as 1,2,5..9."""
    spans = [span(item) for item in text.split(",")]
    if None in spans or sum(last - first + 1 for first, last in filter(None, spans)) > MOST_TOKENS:
        raise MalformedInput(f"--tokens {text[:40]!r}: expected at most {MOST_TOKENS} token ids, such as 1,2,5..9")
    return [token for first, last in filter(None, spans) for token in range(first, last + 1)]


def _sequences(given: Given, model: Reading) -> list[Any]:
    """Tokens to compare on."""
    from utfproof.models import random_sequences, read_sequences

    if given.inputs is None:
        count = 16 if given.trials is None else given.trials
        return random_sequences(model, count, given.seed)
    if given.trials is not None:
        raise MalformedInput("--trials draws random sequences, --inputs gives them: choose one")
    return read_sequences(given.inputs, model, given.max_memory)


def _recipe(given: Given) -> dict[str, Any]:
    """How the host is drawn, and the memory limit."""
    return {"m": given.m, "seed": given.seed, "law": given.law, "dtype": given.dtype, "limit": given.max_memory}


def _digest(given: Given, machine: Universal) -> str | None:
    """Of HOST's content, where it is a file."""
    if not options.is_host_file(given.host):
        return None
    return options.host_digest(given.host, machine.shape.residual, given.max_memory)


def _embed_target(given: Given, model: Target) -> Outcome:
    """A target of the package's own layout."""
    from utfproof.constructions import CONSTRUCTIONS
    from utfproof.matching import embed
    from utfproof.models.embedding import HOST_DIGEST, host_facts
    from utfproof.weights import write_embedding

    machine = load_host(given.host, model.shape, layers=given.layers, **_recipe(given))
    found = embed(machine, model, max_memory=given.max_memory)
    recipe = {**_recipe(given), HOST_DIGEST: _digest(given, machine)}
    write_embedding(given.output, found.E, host_facts(given.host, machine, found, recipe))
    inputs = CONSTRUCTIONS[machine.construction].inputs if machine.construction else ""
    rows = {
        "result": f"the host acts as the target, by {found.notion.value}" + (f", on {inputs}" if inputs else ""),
        "shape": f"{model.shape}, target width {model.width}, m = {machine.m}",
        **_rows(found),
        "embedding": str(given.output),
    }
    return Outcome({**_document(found, machine), "file": str(given.output)}, f"embed {given.host}", rows)


def _embed_model(given: Given, model: Reading) -> Outcome:
    """A model: E by the target without biases, then a comparison with the model's own outputs, or with its reading."""
    from utfproof.models import embed_model
    from utfproof.models.embedding import GROUPED

    host, recipe, limit = given.host, _recipe(given), given.max_memory
    biased = model.target()
    sequences, target = _sequences(given, model), biased.augmented()
    stored = host != GROUPED and options.is_host_file(host)
    machine = load_host(host, target.shape, layers=None, **recipe) if stored else host
    drawn = {name: recipe[name] for name in ("seed", "law", "dtype", "m") if not stored}
    digest = None if isinstance(machine, str) else _digest(given, machine)
    compared: dict[str, Any] = {"sequences": sequences, "tolerance": _allowed(given)}
    found = embed_model(model, machine, **drawn, **compared, name=host, digest=digest, max_memory=limit)
    if found.agrees:
        found.save(given.output)
    written = str(given.output) if found.agrees else None
    grouped, solved = _grouped(model), found.found
    assert solved is not None
    document = {
        **_document(solved, found.host),
        "verdict": found.verdict,
        "layout": model.family,
        "vocabulary": model.vocabulary,
        "positions": model.positions,
        "width": biased.width,
        "kv_heads": model.kv_heads,
        "grouped_columns": grouped,
        **readings.comparison(model, found.agreement, _allowed(given)),
        "left_out": list(model.left_out),
        "file": written,
    }
    shared = f"counted once per group: M = {grouped} ({model.kv_heads} heads of keys)"
    positions = f"{model.positions} learned positions" if model.positions else "no learned positions"
    positions = f"a row of E for each at {model.positions} positions" if model.pairs else positions
    rows = {
        "result": found.verdict,
        "model": f"{model.vocabulary} tokens, {positions}, width {biased.width} and one for a constant coordinate",
        "shape": f"{biased.shape}, m = {found.host.m}",
        "read as": model.title,
        **_rows(solved),
        **({} if grouped is None else {"shared keys": shared}),
        **readings.comparison_rows(model, found.agreement, _allowed(given)),
        **({"left out": ", ".join(model.left_out)} if model.left_out else {}),
        "embedding": written or "none",
    }
    return Outcome(document, f"embed {host}", rows, readings.agreement_code(model, found.decided))


@command(
    "Examples: utfproof embed sparse target.safetensors -o E.safetensors; "
    "utfproof embed sparse model.safetensors --layout transformer-lens -o E.safetensors; "
    "utfproof embed smallest.safetensors target.safetensors --minimize -o E.safetensors"
)
def embed(
    *,
    host: Annotated[
        str,
        argument(
            "HOST.safetensors, or a construction; grouped: the prefix tree with shared key blocks; own-norm: the host "
            "with a norm of its own, for models with norms. With --minimize the file to write the smallest host to."
        ),
    ],
    target: Annotated[Path, argument("TARGET.safetensors: W_Q, W_K, W_V, W_O (W_E, W_U), or see --layout.")],
    output: Annotated[Path, written("Embedding to write (.safetensors).", "-o", "--output")],
    layout: Annotated[
        str, option("Names in the target's file: utfproof, or those of a model; auto finds out which.")
    ] = OWN_LAYOUT,
    residual: StoredResidual = None,
    m: M = None,
    scale: Annotated[
        str | None, option("Models: what logits are multiplied by; 1/sqrt(d) by default.", advanced=True)
    ] = None,
    attention: Annotated[
        str | None, option("Models: softmax, causal, window:W, joined by '+'; causal by default.", advanced=True)
    ] = None,
    config: Annotated[Path | None, option("Models: the configuration (.json).", advanced=True)] = None,
    reference: Annotated[
        Path | None,
        option(
            "Models: `tokens` [batch, n] or `inputs` [batch, n, d_in], and the model's own `logits` [batch, n, d_out].",
            advanced=True,
        ),
    ] = None,
    module: Annotated[str | None, option("Models: package.module:factory, called with TARGET's path.")] = None,
    tokens: Annotated[str | None, option("--module: only layer 0's attention, on these ids (1,2,5..9).")] = None,
    positions: Annotated[int | None, option("--tokens: at most so many positions.", check=positive_integer)] = None,
    upto: Annotated[
        str | None, option("--tokens: submodule whose output is meant; the first attention's.", advanced=True)
    ] = None,
    inputs: Annotated[
        Path | None, option("Models: compare on these sequences, integers `tokens` [sequences, n].", advanced=True)
    ] = None,
    trials: Annotated[
        int | None,
        option("Models: random sequences to compare on; 16 by default.", check=positive_integer, advanced=True),
    ] = None,
    tolerance: Annotated[
        float | None,
        option("Models: largest relative difference of outputs; 1e-8 by default.", check=amount, advanced=True),
    ] = None,
    plus_constant: Annotated[
        bool,
        option(
            "own-norm: a bias after the model's last norm is added to the outputs; the verdict says it.",
            "--plus-constant",
            advanced=True,
        ),
    ] = False,
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

    The shape is the target's; shape options are checked against it. With --layout the target is a trained model, and outputs
    are compared with its own, which --reference or --module gives. Exit 1: this host cannot carry this target, or outputs
    differ by more than the tolerance; no embedding is written. 4: an unknown fact decides.
    """
    given = Given(locals())
    limit = max_memory
    if within is not None and not minimize:
        raise MalformedInput("--within is about hosts of fewer dimensions: say --minimize")
    if tokens is None or positions is None or module is None:
        options.refuse_given(
            stated, "a part of a model needs --module, --tokens and --positions", "tokens", "positions", "upto"
        )
    if host != OWN_NORM or minimize:
        options.refuse_given(stated, "it is about HOST own-norm", "plus_constant")
    require_writable(output)
    if not minimize:
        options.refuse_undrawn(stated, host, "law", "dtype", *(["seed"] if layout == OWN_LAYOUT else []))
    model: Target | Reading
    if layout == OWN_LAYOUT and module is None:
        from utfproof.models import refuse_models
        from utfproof.weights import read_target

        for name in _OF_MODELS:
            if getattr(given, name) is not None:
                raise MalformedInput(f"--{name} is about models of another --layout; {target} is read as a target")
        if host == OWN_NORM:
            raise MalformedInput("HOST own-norm is for models with norms: say --layout auto, or theirs")
        refuse_models(target, limit)
        model = read_target(target, layers=shape.layers, residual=residual, max_memory=limit)
    else:
        model = _model(given)
    options.agree_with(model.shape, **given.dimensions)
    if minimize:
        sequences = None if isinstance(model, Target) else _sequences(given, model)
        return embed_minimize.minimize(
            embed_minimize.Asked(
                Path(host),
                output,
                target,
                m,
                within,
                _allowed(given),
                limit,
            ),
            model,
            sequences,
        )
    if host == OWN_NORM and not isinstance(model, Target):
        options.refuse_given(stated, "own-norm is made of the model's bounds", "m", "law", "dtype")
        sequences = _sequences(given, model)
        return own_norm.embed(model, output, sequences, _allowed(given), plus_constant, limit)
    if isinstance(model, Target):
        return _embed_target(given, model)
    return _embed_model(given, model)


def _grouped(model: Reading) -> int | None:
    """Columns of R_all that differ, where heads share keys."""
    from utfproof.models import grouped_matching_dimension

    if model.kv_heads == model.shape.heads:
        return None
    return grouped_matching_dimension(model.shape, model.kv_heads)


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
