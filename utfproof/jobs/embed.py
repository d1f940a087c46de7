"""`utfproof embed`: the embedding E under which a host acts as a target, or as a model from someone else's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.jobs import embed_minimize, options, own_norm, readings
from utfproof.jobs.groups import Dimensions, Drawn, Limited, residual_of_weights, shared
from utfproof.jobs.hosts import OWN_NORM, load_host
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option, written
from utfproof.systems import Target, Universal

if TYPE_CHECKING:
    from utfproof.matching import Embedding
    from utfproof.models import Reading

OWN_LAYOUT = "utfproof"
_OF_MODELS = ("scale", "attention", "config", "reference", "module", "inputs", "trials", "tolerance")
"""Options that mean nothing for a target of the package's own layout."""


@dataclass(frozen=True, kw_only=True)
class Embed(Dimensions, Drawn, Limited, Job, order=70):
    """Find E such that the host with E acts as the target, and say by which notion.

    The shape is the target's; shape options are only checked against it (--layers is needed where tied weights do not
    say how often they are used). A construction is never written out, so a sparse host of millions of dimensions will do.
    With --layout the target is a trained model: its reading is compared with its own outputs where --reference or --module
    gives them, and run through the host. Exit 1 when this host cannot carry this target, with rank and residual, or when
    outputs differ by more than the tolerance (no embedding is written then); 4 when nobody says a fact on which outputs depend.
    """

    examples = (
        "Examples: utfproof embed sparse target.safetensors -o E.safetensors; "
        "utfproof embed host.safetensors target.safetensors -o E.safetensors; "
        "utfproof embed sparse model.safetensors --layout transformer-lens -o E.safetensors; "
        "utfproof embed random model.safetensors --layout pytorch --heads 2 --residual -o E.safetensors; "
        "utfproof embed smallest.safetensors target.safetensors --minimize -o E.safetensors"
    )
    host: str = argument(
        ...,
        "HOST.safetensors, or a construction; grouped: the prefix tree with shared key blocks; own-norm: the host "
        "with a norm of its own, for models with norms. With --minimize the file to write the smallest host to.",
    )
    target: Path = argument(..., "TARGET.safetensors: W_Q, W_K, W_V, W_O (W_E, W_U), or see --layout.")
    output: Path = written(..., "Embedding to write (.safetensors).")
    layout: str = option(OWN_LAYOUT, "Names in the target's file: utfproof, or those of a model; auto finds out which.")
    residual: bool | None = residual_of_weights()
    m: int | None = shared("m")
    scale: str | None = option(None, "Models: what logits are multiplied by; 1/sqrt(d) by default.")
    attention: str | None = option(None, "Models: softmax, causal, window:W, joined by '+'; causal by default.")
    config: Path | None = option(None, "Models: the configuration (.json), every field of which must be known.")
    reference: Path | None = option(
        None,
        "Models: `tokens` [batch, n] or `inputs` [batch, n, d_in], and the model's own `logits` [batch, n, d_out].",
    )
    module: str | None = option(None, "Models: package.module:factory, called with TARGET's path; runs that code.")
    inputs: Path | None = option(None, "Models: compare on these sequences, integers `tokens` [sequences, n].")
    trials: int | None = option(None, "Models: random sequences to compare on; 16 by default.", kind="positive")
    tolerance: float | None = option(
        None, "Models: largest relative difference of outputs; 1e-8 by default.", kind="amount"
    )
    plus_constant: bool = option(
        False, "own-norm: a bias after the model's last norm is added to the outputs; the verdict says it."
    )
    minimize: bool = option(False, "Find the least m for this target and write a host of that size (or of --m).")
    certificate: Path | None = written(None, "--minimize: write the evidence that m is least (.json).")
    within: float | None = option(
        None,
        "--minimize, models: the smallest host found whose outputs on the test sequences are proven within this part of "
        "the largest output.",
        kind="amount",
    )

    def run(self) -> Outcome:
        limit = self.limit
        if self.certificate is not None and not self.minimize:
            raise MalformedInput("--certificate is the evidence of --minimize")
        if self.within is not None and not self.minimize:
            raise MalformedInput("--within is about hosts of fewer dimensions: say --minimize")
        if self.host != OWN_NORM or self.minimize:
            options.refuse_given(self, "it is about HOST own-norm", "plus_constant")
        require_writable(self.output, self.certificate)
        if not self.minimize:
            options.refuse_undrawn(self, self.host, "law", "dtype", *(["seed"] if self.layout == OWN_LAYOUT else []))
            options.require_distinct(self.output, self.target, Path(self.host))
        model: Target | Reading
        if self.layout == OWN_LAYOUT and self.module is None:
            from utfproof.models import refuse_models
            from utfproof.weights import read_target

            for name in _OF_MODELS:
                if getattr(self, name) is not None:
                    raise MalformedInput(
                        f"--{name} is about models of another --layout; {self.target} is read as a target"
                    )
            if self.host == OWN_NORM:
                raise MalformedInput("HOST own-norm is for models with norms: say --layout auto, or theirs")
            refuse_models(self.target, limit)
            model = read_target(self.target, layers=self.layers, residual=self.residual, max_memory=limit)
        else:
            model = self._model()
        options.agree_with(model.shape, **self.dimensions)
        if self.minimize:
            sequences = None if isinstance(model, Target) else self.sequences(model)
            return embed_minimize.minimize(
                embed_minimize.Asked(
                    Path(self.host),
                    self.output,
                    self.certificate,
                    self.target,
                    self.m,
                    self.within,
                    self.allowed,
                    limit,
                ),
                model,
                sequences,
            )
        if self.host == OWN_NORM and not isinstance(model, Target):
            options.refuse_given(self, "own-norm is made of the model's bounds", "m", "law", "dtype")
            sequences = self.sequences(model)
            return own_norm.embed(model, self.output, sequences, self.allowed, self.plus_constant, limit)
        if isinstance(model, Target):
            return self._embed_target(model)
        return self._embed_model(model)

    @property
    def allowed(self) -> float:
        """Largest relative difference of outputs."""
        return 1e-8 if self.tolerance is None else self.tolerance

    def _model(self) -> Reading:
        """The model of a file, or of the module that --module makes."""
        from utfproof.models import from_model, import_model, make_module, read_config

        config = None if self.config is None else read_config(self.config)
        given: dict[str, Any] = {"heads": self.heads, "config": config}
        if self.module is None:
            given |= {name: getattr(self, name) for name in ("attention", "residual", "scale", "reference")}
            return import_model(self.target, self.layout, **given, max_memory=self.limit)
        for name in ("scale", "attention", "reference"):
            if getattr(self, name) is not None:
                raise MalformedInput(f"--{name} says what a live module shows by itself: leave it out with --module")
        return from_model(make_module(self.module, self.target), **given, seed=self.seed)

    def sequences(self, model: Reading) -> list[Any]:
        """Tokens to compare on."""
        from utfproof.models import random_sequences, read_sequences

        if self.inputs is None:
            count = 16 if self.trials is None else self.trials
            return random_sequences(model, count, self.seed)
        if self.trials is not None:
            raise MalformedInput("--trials draws random sequences, --inputs gives them: choose one")
        return read_sequences(self.inputs, model, self.limit)

    @property
    def _recipe(self) -> dict[str, Any]:
        """How the host is drawn, and the memory limit."""
        return {"m": self.m, "seed": self.seed, "law": self.law, "dtype": self.dtype, "limit": self.limit}

    def _digest(self, machine: Universal) -> str | None:
        """Of HOST's content, where it is a file."""
        if not options.is_host_file(self.host):
            return None
        return options.host_digest(self.host, machine.shape.residual, self.limit)

    def _embed_target(self, model: Target) -> Outcome:
        """A target of the package's own layout."""
        from utfproof.matching import embed
        from utfproof.models.embedding import HOST_DIGEST, host_facts
        from utfproof.weights import write_embedding

        machine = load_host(self.host, model, layers=self.layers, **self._recipe)
        found = embed(machine, model, max_memory=self.limit)
        recipe = {**self._recipe, HOST_DIGEST: self._digest(machine)}
        write_embedding(self.output, found.E, host_facts(self.host, machine, found, recipe))
        rows = {
            "result": f"the host acts as the target, by {found.notion.value}",
            "shape": f"{model.shape}, target width {model.width}, m = {machine.m}",
            **_rows(found),
            "embedding": str(self.output),
        }
        return Outcome({**_document(found, machine), "file": str(self.output)}, f"embed {self.host}", rows)

    def _embed_model(self, model: Reading) -> Outcome:
        """A model: E by the target without biases, then a comparison with the model's own outputs, or with its reading."""
        from utfproof.models import embed_model
        from utfproof.models.embedding import GROUPED

        host, recipe, limit = self.host, self._recipe, self.limit
        biased = model.target()
        sequences, target = self.sequences(model), biased.augmented()
        stored = host != GROUPED and options.is_host_file(host)
        machine = load_host(host, target, layers=None, **recipe) if stored else host
        drawn = {name: recipe[name] for name in ("seed", "law", "dtype", "m") if not stored}
        digest = None if isinstance(machine, str) else self._digest(machine)
        compared: dict[str, Any] = {"sequences": sequences, "tolerance": self.allowed}
        found = embed_model(model, machine, **drawn, **compared, name=host, digest=digest, max_memory=limit)
        if found.agrees:
            found.save(self.output)
        written = str(self.output) if found.agrees else None
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
            **readings.comparison(model, found.agreement, self.allowed),
            "left_out": list(model.left_out),
            "file": written,
        }
        shared = f"counted once per group: M = {grouped} ({model.kv_heads} heads of keys)"
        positions = f"{model.positions} learned positions" if model.positions else "no learned positions"
        rows = {
            "result": found.verdict,
            "model": f"{model.vocabulary} tokens, {positions}, width {biased.width} and one for a constant coordinate",
            "shape": f"{biased.shape}, m = {found.host.m}",
            "read as": model.title,
            **_rows(solved),
            **({} if grouped is None else {"shared keys": shared}),
            **readings.comparison_rows(model, found.agreement, self.allowed),
            **({"left out": ", ".join(model.left_out)} if model.left_out else {}),
            "embedding": written or "none",
        }
        return Outcome(document, f"embed {host}", rows, readings.agreement_code(model, found.decided))


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
        "shape": options.shape_document(machine.shape, machine.m),
    }


def _rows(found: Embedding) -> dict[str, Any]:
    estimated = "estimated, within a factor 2: at most " if found.condition_estimated else ""
    return {
        "method": found.method,
        **({"rank R_all": f"{found.rank} of M = {found.columns}"} if found.rank is not None else {}),
        **({"condition": f"{estimated}{found.condition:.3g}"} if found.condition is not None else {}),
        **({"misfit": f"{found.misfit:.3g}"} if found.misfit is not None else {}),
    }
