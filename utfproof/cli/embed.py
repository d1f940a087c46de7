"""`utfproof embed`: the embedding E under which a host acts as a target, or as a model from someone else's file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.systems import Target, Universal

if TYPE_CHECKING:
    from utfproof.matching import Embedding
    from utfproof.models import Agreement, ImportedModel

EPILOG = (
    "Examples: utfproof embed sparse target.safetensors -o E.safetensors; "
    "utfproof embed host.safetensors target.safetensors -o E.safetensors; "
    "utfproof embed sparse model.safetensors --layout transformer-lens -o E.safetensors; "
    "utfproof embed random model.safetensors --layout pytorch --heads 2 --residual -o E.safetensors; "
    "utfproof embed smallest.safetensors target.safetensors --minimize -o E.safetensors"
)
OWN_LAYOUT = "utfproof"
OWN_NORM = "own-norm"
"""The host with a norm of its own, as HOST."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "embed", command, epilog=EPILOG)


def load_host(
    host: str,
    target: Target,
    *,
    layers: int | None,
    m: int | None,
    seed: int,
    law: str,
    dtype: str,
    limit: int | None,
) -> Universal:
    """The host that a HOST argument means: a file's, or a construction at the target's shape."""
    from utfproof.constructions import build_host
    from utfproof.weights import read_host

    if options.is_host_file(host):
        stream = True if target.shape.residual else None  # a host's own metadata may still say otherwise
        found = read_host(host, layers=layers, d_in=target.shape.d_in, residual=stream, max_memory=limit)
        if m is not None and m != found.m:
            raise MalformedInput(f"--m {m} contradicts {host}, which has m = {found.m}")
        return found
    return build_host(host, target.shape, m, seed=seed, law=law, dtype=dtype, max_memory=limit)


def command(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Argument(
            help="HOST.safetensors, or a construction; grouped: the prefix tree with shared key blocks; own-norm: the host "
            "with a norm of its own, for models with norms. With --minimize the file to write the smallest host to."
        ),
    ],
    target: Annotated[Path, typer.Argument(help="TARGET.safetensors: W_Q, W_K, W_V, W_O (W_E, W_U), or see --layout.")],
    output: Annotated[Path, typer.Option("-o", "--output", writable=True, help="Embedding to write (.safetensors).")],
    layout: Annotated[
        str,
        typer.Option(
            "--layout", help="Names in the target's file: utfproof, or those of a model; auto finds out which."
        ),
    ] = OWN_LAYOUT,
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    residual: options.ResidualFile = None,
    m: options.EmbeddingDimension = None,
    names: Annotated[
        str | None,
        typer.Option("--names", help="pytorch: 'embedding=…,pos=…,unembed=…,layers=PREFIX.{}.NAME' where not found."),
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", help="Models: what logits are multiplied by; 1/sqrt(d) by default.")
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option("--attention", help="Models: softmax, causal, window:W, joined by '+'; causal by default."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Models: the configuration (.json), every field of which must be known."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            help="Models: `tokens` [batch, n] or `inputs` [batch, n, d_in], and the model's own `logits` [batch, n, d_out].",
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("--module", help="Models: package.module:factory, called with TARGET's path; runs that code."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", help="Models: compare on these sequences, integers `tokens` [sequences, n]."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", help="Models: random sequences to compare on; 16 by default.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="Models: largest relative difference of outputs; 1e-8 by default."),
    ] = None,
    minimize: Annotated[
        bool,
        typer.Option("--minimize", help="Find the least m for this target and write a host of that size (or of --m)."),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", writable=True, help="--minimize: write the evidence that m is least (.json)."),
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="--minimize: m against the error of outputs, with a proven bound at each m.")
    ] = False,
    seed: options.Seed = 0,
    law: options.LawName = "uniform",
    dtype: options.DtypeName = "float64",
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Find E such that the host with E acts as the target, and say by which notion.

    The shape is the target's; shape options are only checked against it (--layers is needed where tied weights do not
    say how often they are used). A construction is never written out, so a sparse host of millions of dimensions will do.
    With --layout the target is a trained model: its reading is compared with its own outputs where --reference or --module
    gives them, and run through the host. Exit 1 when this host cannot carry this target, with rank and residual, or when
    outputs differ by more than the tolerance (no embedding is written then); 4 when nobody says a fact on which outputs depend.
    """
    limit = options.memory_limit(max_memory)
    if certificate is not None and not minimize:
        raise MalformedInput("--certificate is the evidence of --minimize")
    if curve and not minimize:
        raise MalformedInput("--curve is about hosts of fewer dimensions: say --minimize")
    require_writable(output, certificate)
    if not minimize:
        options.refuse_undrawn(context, host, "law", "dtype", *(["seed"] if layout == OWN_LAYOUT else []))
        options.require_distinct(output, target, Path(host))
    sizes = {"heads": heads, "layers": layers, "head_dim": head_dim, "d_in": d_in, "d_out": d_out}
    recipe = {"m": m, "seed": seed, "law": law, "dtype": dtype, "limit": limit}
    test = ComparisonOptions(names, scale, attention, config, reference, module, inputs, trials, tolerance, seed)
    model: Target | ImportedModel
    if layout == OWN_LAYOUT and module is None:
        from utfproof.models import refuse_models
        from utfproof.weights import read_target

        test.refuse_unused(target)
        if host == OWN_NORM:
            raise MalformedInput("HOST own-norm is for models with norms: say --layout auto, or theirs")
        refuse_models(target, limit)
        model = read_target(target, layers=layers, residual=residual, max_memory=limit)
        options.agree_with(model.shape, **sizes)
    else:
        model = test.read(target, layout, heads, residual, limit, norms=host == OWN_NORM)
        options.agree_with(model.shape, **sizes)
    if minimize:
        from utfproof.cli.embed_minimize import run

        run(Path(host), target, model, output, certificate, m, curve, test, limit, as_json)
    if host == OWN_NORM and not isinstance(model, Target):
        from utfproof.cli import own_norm

        options.refuse_given(context, "own-norm is made of the model's bounds", "m", "law", "dtype")
        own_norm.embed(model, output, test, limit, as_json)
    if isinstance(model, Target):
        _embed_target(host, model, output, layers, recipe, as_json)
    else:
        _embed_model(host, model, output, recipe, test, as_json)


@dataclass(frozen=True)
class ComparisonOptions:
    """How a model is read and compared: the options --names, --scale, --attention, --config, --reference, --module, --inputs,
    --trials, --tolerance, --seed."""

    names: str | None
    scale: str | None
    attention: str | None
    config: Path | None
    reference: Path | None
    module: str | None
    inputs: Path | None
    trials: int | None
    tolerance: float | None
    seed: int

    def refuse_unused(self, target: Path) -> None:
        """MalformedInput for options that mean nothing for a target of the package's own layout."""
        for part in fields(self):
            if part.name != "seed" and getattr(self, part.name) is not None:
                raise MalformedInput(f"--{part.name} is about models of another --layout; {target} is read as a target")

    @property
    def limit(self) -> float:
        """Largest relative difference allowed."""
        if self.tolerance is not None and not self.tolerance > 0:
            raise MalformedInput(f"--tolerance must be positive, got {self.tolerance}")
        return 1e-8 if self.tolerance is None else self.tolerance

    def read(
        self,
        path: Path,
        layout: str,
        heads: int | None,
        residual: bool | None,
        limit: int | None,
        *,
        norms: bool = False,
    ) -> ImportedModel:
        """The model of a file, or of the module that --module makes."""
        from utfproof.models import from_model, import_model, make_module, read_config

        config = None if self.config is None else read_config(self.config)
        if self.module is None:
            return import_model(
                path,
                layout,
                attention=self.attention,
                heads=heads,
                residual=residual,
                names=self.names,
                scale=self.scale,
                config=config,
                reference=self.reference,
                norms=norms,
                max_memory=limit,
            )
        for name in ("names", "scale", "attention", "reference"):
            if getattr(self, name) is not None:
                raise MalformedInput(f"--{name} says what a live module shows by itself: leave it out with --module")
        return from_model(make_module(self.module, path), heads=heads, config=config, norms=norms, seed=self.seed)

    def sequences(self, model: ImportedModel, limit: int | None) -> list[Any]:
        """Tokens to compare on."""
        from utfproof.models import random_sequences, read_sequences
        from utfproof.shapes import positive_integer

        if self.inputs is None:
            count = positive_integer("--trials", 16 if self.trials is None else self.trials)
            return random_sequences(model, count, self.seed)
        if self.trials is not None:
            raise MalformedInput("--trials draws random sequences, --inputs gives them: choose one")
        return read_sequences(self.inputs, model, limit)

    def document(self, model: ImportedModel, agreement: Agreement) -> dict[str, Any]:
        """For --json."""
        return {
            "relative_difference": agreement.relative_difference,
            "tolerance": self.limit,
            "agrees": agreement.within(self.limit),
            "sequences": agreement.sequences,
            "compared_positions": agreement.positions,
            "witness": model.witness,
            "read_as": model.reading.assumptions,
            "unknown": list(model.unknown),
            "not_read": list(model.reading.not_read),
        }

    def rows(self, model: ImportedModel, agreement: Agreement) -> dict[str, str]:
        """For people: every fact under which the model was read, and on whose word; then the comparison."""
        from utfproof.models.family import FACTS

        reading = model.reading
        largest = f"{agreement.relative_difference:.3g} relative (tolerance {self.limit:.3g})"
        unknown = ", ".join(FACTS[name] for name in model.unknown)
        return {
            **reading.assumptions,
            "biases": reading.biases(),
            **({"metadata not read": ", ".join(reading.not_read)} if reading.not_read else {}),
            "compared with": model.witness
            or "its own reading of the file alone: pass --reference, --config or --module",
            **({"unknown": f"{unknown}: outputs depend on it, and nobody says (exit 4)"} if unknown else {}),
            "largest difference": f"{largest}, sequence {agreement.sequence}",
            "compared": f"{agreement.sequences} sequences, {agreement.positions} positions",
        }


def _embed_target(
    host: str, model: Target, output: Path, layers: int | None, recipe: dict[str, Any], as_json: bool
) -> None:
    """A target of the package's own layout."""
    from utfproof.matching import embed
    from utfproof.weights import write_embedding

    machine = load_host(host, model, layers=layers, **recipe)
    found = embed(machine, model, max_memory=recipe["limit"])
    write_embedding(output, found.E, _facts(host, machine, found, recipe))
    rows = {
        "result": f"the host acts as the target, by {found.notion.value}",
        "shape": f"{model.shape}, target width {model.width}, m = {machine.m}",
        **_rows(found),
        "embedding": str(output),
    }
    emit({**_document(found, machine), "file": str(output)}, f"embed {host}", rows, as_json=as_json)


def _embed_model(
    host: str, model: ImportedModel, output: Path, recipe: dict[str, Any], test: ComparisonOptions, as_json: bool
) -> None:
    """A model: E by the target without biases, then a comparison with the model's own outputs, or with its reading."""
    from utfproof.models import embed_model
    from utfproof.models.embedding import GROUPED

    limit = recipe["limit"]
    sequences, within = test.sequences(model, limit), test.limit
    target = model.target.augmented()
    stored = host != GROUPED and options.is_host_file(host)
    machine = load_host(host, target, layers=None, **recipe) if stored else host
    drawn = {name: recipe[name] for name in ("seed", "law", "dtype", "m") if not stored}
    found = embed_model(model, machine, **drawn, sequences=sequences, tolerance=within, name=host, max_memory=limit)
    if found.agrees:
        found.save(output)
    grouped = _grouped(model)
    document = {
        **_document(found.found, found.host),
        "verdict": found.verdict,
        "layout": model.layout,
        "vocabulary": model.vocabulary,
        "positions": model.positions,
        "width": model.target.width,
        "kv_heads": model.kv_heads,
        "grouped_columns": grouped,
        **test.document(model, found.agreement),
        "left_out": list(model.bookkeeping),
        "roles": model.roles,
        "file": str(output) if found.agrees else None,
    }
    shared = f"counted once per group: M = {grouped} ({model.kv_heads} heads of keys)"
    positions = f"{model.positions} learned positions" if model.positions else "no learned positions"
    rows = {
        "result": found.verdict,
        "model": f"{model.vocabulary} tokens, {positions}, width {model.target.width} and one for the biases",
        "shape": f"{model.target.shape}, m = {found.host.m}",
        "read as": model.reading.family.title,
        "taken as": "; ".join(f"{k}: {v or 'none'}" for k, v in model.roles.items()),
        **_rows(found.found),
        **({} if grouped is None else {"shared keys": shared}),
        **test.rows(model, found.agreement),
        **({"left out": ", ".join(model.bookkeeping)} if model.bookkeeping else {}),
        "embedding": str(output) if found.agrees else "none",
    }
    emit(document, f"embed {host}", rows, as_json=as_json)
    raise typer.Exit(exit_code(model, found.agrees))


def exit_code(model: ImportedModel, agrees: bool) -> int:
    """1 where outputs differ; 4 where a fact that changes outputs is known to nobody; 0 otherwise."""
    return 1 if not agrees else 4 if model.unknown else 0


def _grouped(model: ImportedModel) -> int | None:
    """Columns of R_all that differ, where heads share keys."""
    from utfproof.models import grouped_matching_dimension

    if model.kv_heads == model.target.shape.heads:
        return None
    return grouped_matching_dimension(model.target.shape, model.kv_heads)


def _facts(host: str, machine: Universal, found: Embedding, recipe: dict[str, Any]) -> dict[str, str]:
    """Metadata of an embedding: what it achieves, and the host that it is for."""
    from utfproof.models.embedding import host_facts

    return host_facts(host, machine, found, recipe)


def _document(found: Embedding, machine: Universal) -> dict[str, Any]:
    return {
        "notion": found.notion.value,
        "method": found.method,
        "rank": found.rank,
        "columns": found.columns,
        "condition": found.condition,
        "condition_estimated": found.condition_estimated,
        "residual": found.residual,
        "shape": options.shape_document(machine.shape, machine.m),
    }


def _rows(found: Embedding) -> dict[str, Any]:
    estimated = "estimated, within a factor 2: at most " if found.condition_estimated else ""
    return {
        "method": found.method,
        **({"rank R_all": f"{found.rank} of M = {found.columns}"} if found.rank is not None else {}),
        **({"condition": f"{estimated}{found.condition:.3g}"} if found.condition is not None else {}),
        **({"residual": f"{found.residual:.3g}"} if found.residual is not None else {}),
    }
