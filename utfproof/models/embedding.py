"""A model in a host: E, the comparison with the model's own outputs, and what is written about both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.matching import Embedding, embed
from utfproof.models.attention import write_kernel
from utfproof.models.comparison import AGREEMENT, BEYOND, Agreement, compare, random_sequences
from utfproof.models.exporting import require_own, write_module
from utfproof.models.grouped import embed_grouped, grouped_tree_host
from utfproof.systems import Universal
from utfproof.weights import write_embedding

if TYPE_CHECKING:
    from utfproof.models.model import ImportedModel

GROUPED = "grouped"
"""The prefix tree with shared key blocks, as a host's name."""
HOST_DIGEST = "host_digest"
"""Metadata of an embedding whose host is a file: the digest of its content."""
TRIALS = 16
"""Random sequences to compare on."""


@one_line
@dataclass(frozen=True, eq=False)
class EmbeddedModel:
    """A host with the E under which it was found to act as a model. name: the host's; recipe: what it was drawn with."""

    model: ImportedModel
    host: Universal
    name: str
    E: np.ndarray
    found: Embedding
    agreement: Agreement
    recipe: dict[str, Any]
    tolerance: float = AGREEMENT

    @property
    def agrees(self) -> bool:
        """Whether outputs differ by no more than the tolerance."""
        return self.agreement.within(self.tolerance)

    @property
    def decided(self) -> bool | None:
        """The same, None where an output of the host is beyond float64."""
        return self.agreement.decided(self.tolerance)

    @property
    def verdict(self) -> str:
        """One sentence: what the host acts as, by which notion, on whose word."""
        if self.decided is None:
            return BEYOND
        if not self.agrees:
            return "the outputs differ: no embedding is written"
        return f"the host acts as {self.model.acted_as(self.found.notion.value)}"

    def facts(self) -> dict[str, str]:
        """Metadata of the embedding: what it achieves, the host that it is for, its rows, its attention."""
        return {
            **host_facts(self.name, self.host, self.found, self.recipe),
            **model_facts(self.model),
            **({"kv_heads": str(self.model.kv_heads)} if self.name == GROUPED else {}),
        }

    def save(self, path: Path | str) -> Path:
        """Write E with its metadata. MalformedInput where the outputs differ."""
        self._require_agreement()
        write_embedding(path, self.E, self.facts())
        return Path(path)

    def export(self, path: Path | str) -> Path:
        """Write the host with E as a plain torch.nn.Module in a .py file, tensors beside it. MalformedInput as `save`."""
        self._require_agreement()
        path = Path(path)
        require_own(path, path.with_suffix(".safetensors"))
        model = self.model
        write_module(path, self.host, self.E, model.attention, vocabulary=model.vocabulary, positions=model.positions)
        return path

    def _require_agreement(self) -> None:
        if not self.agrees:
            raise MalformedInput(
                "nothing is written: the host's outputs differ from the model's by "
                f"{self.agreement.relative_difference:.3g} relative"
            )

    def __str__(self) -> str:
        shape, found = self.host.shape, self.agreement
        return (
            f"{self.verdict}\n{self.name}, {shape}, m = {self.host.m}; largest relative difference of outputs "
            f"{found.relative_difference:.3g} on {found.sequences} sequences, {found.positions} positions"
        )


def host_facts(name: str, host: Universal, found: Embedding, recipe: dict[str, Any]) -> dict[str, str]:
    """Metadata of an embedding: what it achieves, and the host that it is for."""
    drawn = name in CONSTRUCTIONS and CONSTRUCTIONS[name].is_random
    return {
        "notion": found.notion.value,
        "host": Path(name).name,
        **({key: str(recipe[key]) for key in ("seed", "law", "dtype")} if drawn else {}),
        **({HOST_DIGEST: recipe[HOST_DIGEST]} if recipe.get(HOST_DIGEST) else {}),
        **shape_facts(host),
    }


def shape_facts(host: Universal) -> dict[str, str]:
    """Metadata: the shape and m of the host that an embedding is for."""
    shape = host.shape
    numbers = {
        "heads": shape.heads,
        "layers": shape.layers,
        "head_dim": shape.head_dim,
        "d_in": shape.d_in,
        "d_out": shape.d_out,
        "residual": shape.residual,
        "m": host.m,
    }
    return {name: str(value).lower() for name, value in numbers.items()}


def model_facts(model: ImportedModel, kernel: Any = None) -> dict[str, str]:
    """Metadata of a model's embedding: what its rows are, whom positions see, and which facts nobody said."""
    facts = {
        "vocabulary": str(model.vocabulary),
        "positions": str(model.positions),
        "attention": write_kernel(model.attention if kernel is None else kernel),
    }
    if model.unknown:
        facts["assumed"] = ", ".join(model.unknown)
    return facts


def embed_model(
    model: ImportedModel,
    host: str | Universal = "sparse",
    *,
    m: int | None = None,
    seed: int = 0,
    law: str = "uniform",
    dtype: str = "float64",
    sequences: Sequence[np.ndarray] | None = None,
    tolerance: float = AGREEMENT,
    name: str | None = None,
    digest: str | None = None,
    max_memory: int | None = None,
) -> EmbeddedModel:
    """E by the model's target, and the host with E compared with the model's outputs on `sequences` (random ones by default).

    host: a construction's name, `grouped`, or a host; digest: of the host's file, where it is one. CannotCarry where the host
    does not carry the target."""
    recipe: dict[str, Any] = {"seed": seed, "law": law, "dtype": dtype}
    target = model.target.augmented()
    if host == GROUPED:
        machine = grouped_tree_host(model.target.shape, model.kv_heads, m)
        require_memory(
            32 * model.target.shape.d_in * machine.m, f"an embedding at {machine.shape}, m = {machine.m},", max_memory
        )
        found = Embedding(embed_grouped(target, model.kv_heads, machine.m), Notion.MATCHING, "shared key blocks")
    else:
        if isinstance(host, str):
            machine = build_host(host, target.shape, m, **recipe, max_memory=max_memory)
        else:
            machine = host
        found = embed(machine, target, max_memory=max_memory)
    if sequences is None:
        sequences = random_sequences(model, TRIALS, seed)
    E = np.asarray(found.E)
    result = compare(model, machine, E, None, sequences)
    label = name or (host if isinstance(host, str) else "host")
    return EmbeddedModel(model, machine, label, E, found, result, {**recipe, HOST_DIGEST: digest}, tolerance)
