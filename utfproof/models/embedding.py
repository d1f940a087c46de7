"""A model in a host: E, the comparison with the model's own outputs, and what is written about both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.errors import MalformedInput
from utfproof.matching import Embedding, embed
from utfproof.models.attention import Kernel, ModelAttention, write_kernel
from utfproof.models.comparison import AGREEMENT, Agreement, Comparison
from utfproof.models.exporting import write_module
from utfproof.models.probes import random_sequences
from utfproof.models.reading import Reading
from utfproof.systems import Universal
from utfproof.util.arrays import one_line
from utfproof.weights import write_embedding

HOST_DIGEST = "host_digest"
"""Metadata of an embedding whose host is a file: the digest of its content."""
IDS = "token_ids"
"""Metadata of an embedding with a row for every token at every position: the model's own ids of the tokens."""
CONTEXT = "compared_context"
"""Metadata of an embedding: the longest context that was compared."""
TRIALS = 16
"""Random sequences on which a host is compared."""


@one_line
@dataclass(frozen=True, eq=False)
class Embedded:
    """A host with the E under which it was found to act as the model, compared with the model's outputs.

    name: the host's; made_for: metadata of E about the host; embedding: how E was solved for.
    """

    model: Reading
    host: Universal
    name: str
    E: np.ndarray
    agreement: Agreement
    made_for: dict[str, str]
    embedding: Embedding
    tolerance: float = AGREEMENT

    @property
    def kernel(self) -> Kernel:
        """The model's attention, layer by layer of the host."""
        return host_kernel(self.model, self.host)

    @property
    def agrees(self) -> bool:
        """Whether outputs differ by no more than the tolerance."""
        return self.agreement.within(self.tolerance)

    @property
    def verdict(self) -> str:
        """One sentence: what the host acts as, by which notion, on which evidence."""
        if self.agreement.decided(self.tolerance) is None:
            return "undecided: an output of the host is beyond float64, so that nothing can be compared; nothing is written"
        if not self.agrees:
            by = self.agreement.relative_difference
            return f"the outputs differ, by {by:.3g} relative: no embedding is written"
        return f"the host acts as {self.model.acted_as(self.embedding.notion.value)}"

    def save(self, path: Path | str) -> Path:
        """Write E with its metadata. MalformedInput where the outputs differ."""
        self._require_agreement()
        write_embedding(path, self.E, self.made_for | model_facts(self.model, self.kernel))
        return Path(path)

    def export(self, path: Path | str) -> Path:
        """Write the host with E as a plain torch.nn.Module in a .py file, tensors beside it. MalformedInput as `save`, and in
        place of a file that no export wrote."""
        self._require_agreement()
        model = self.model
        sizes: dict[str, Any] = {"vocabulary": model.vocabulary, "positions": model.positions, "ids": model.ids}
        context = None if model.coverage is None else model.coverage.lengths[-1]
        write_module(path, self.host, self.E, self.kernel, **sizes, context=context)
        return Path(path)

    def _require_agreement(self) -> None:
        if not self.agrees:
            raise MalformedInput(self.verdict)

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
    return {name: str(value).lower() for name, value in host.shape.document(host.m).items()}


def model_facts(model: Reading, kernel: Kernel) -> dict[str, str]:
    """Metadata of a model's embedding: its rows, the visible keys, the facts that were assumed, and what was compared."""
    facts = {
        "vocabulary": str(model.vocabulary),
        "positions": str(model.positions),
        "attention": write_kernel(kernel),
    }
    if model.ids is not None:
        facts[IDS] = ",".join(map(str, model.ids))
    if model.unknown:
        facts["assumed"] = ", ".join(model.unknown)
    if model.coverage is not None:
        facts[CONTEXT] = str(model.coverage.lengths[-1])
    return facts


def embed_model(
    model: Reading,
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
) -> Embedded:
    """E by the model's target, and the host with E compared with the model's outputs on `sequences` (random ones by default).

    host: a construction's name, or a host; digest: of the host's file, where it is one. CannotCarry where the host
    does not carry the target.

    >>> import numpy as np
    >>> from utfproof import embed_model, from_parts
    >>> W = np.ones((1, 1, 4, 2))
    >>> model = from_parts(np.eye(3, 4), W, W, W, W.swapaxes(2, 3), np.eye(4, 3))
    >>> embed_model(model, "tied").host.m
    10
    """
    recipe: dict[str, Any] = {"seed": seed, "law": law, "dtype": dtype}
    biased = model.target
    entry = CONSTRUCTIONS.get(host if isinstance(host, str) else host.construction)
    target = biased if entry is not None and entry.models is not None else biased.augmented()
    machine = build_host(host, target.shape, m, **recipe, max_memory=max_memory) if isinstance(host, str) else host
    found = embed(machine, target, max_memory=max_memory)
    tried = random_sequences(model, TRIALS, seed) if sequences is None else sequences
    E = np.asarray(found.E)
    label = name or (host if isinstance(host, str) else "host")
    made_for = host_facts(label, machine, found, {**recipe, HOST_DIGEST: digest})
    agreement = compare(model, machine, E, tried)
    return Embedded(model, machine, label, E, agreement, made_for, found, tolerance)


def host_kernel(model: Reading, host: Universal) -> Kernel:
    """The model's attention in the layers of a host, which may have several in the place of one of the model's."""
    blocks = range(host.shape.layers // model.shape.layers)
    return ModelAttention(tuple(layer for layer in model.attention.layers for _ in blocks)).simplest()


def compare(model: Reading, host: Universal, E: np.ndarray, sequences: Sequence[np.ndarray]) -> Agreement:
    """The host with E on these sequences of tokens against the model's outputs, at all positions, in float64."""
    kernel, comparison = host_kernel(model, host), Comparison(model.target.bias("b_U"))
    for tokens in sequences:
        comparison.add(tokens, host.forward(model.one_hots(tokens), E, kernel), model.outputs(tokens))
    return comparison.result()
