"""Models from files: the family is recognised by the names of the tensors, and what is said is checked against all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.models.comparison import AGREEMENT, Agreement, extent, measured, read_reference
from utfproof.models.families import families
from utfproof.models.family import Family
from utfproof.models.files import SUFFIXES, read_file
from utfproof.models.model import ImportedModel, attention_kernel, parse_scale
from utfproof.models.reading import read_model
from utfproof.models.tensors import Claims, layer_prefixes, listed, parse_names
from utfproof.weights import TensorFile

ANY_FAMILY = "auto"
SINGLE = 1e-4
"""Outputs that are computed in float32 differ by less."""


def layouts() -> tuple[str, ...]:
    """The names of all families, and `auto`, which finds the one whose names the file has."""
    return (ANY_FAMILY, *families())


def recognise(file: TensorFile, norms: bool = False) -> Family:
    """The one family whose names these tensors have. MalformedInput for none or several, with what is looked for. norms: a
    model with norms is wanted, whose names are no reason to refuse it."""
    found = [family for family in families().values() if has_names(family, file)]
    if len(found) == 1:
        return found[0]
    if found:
        raise file.refuse(f"its names are those of {' and of '.join(f.name for f in found)}; say --layout")
    if not norms:
        Claims(file).refuse_unsuitable()
    known = "; ".join(family.looks for family in families().values())
    raise file.refuse(f"no layout is recognised among {listed(file.tensors, 4) or 'no tensors'}. Known are: {known}")


def has_names(family: Family, file: TensorFile) -> bool:
    """Whether the tensors' names and shapes are those of this family."""
    return bool(layer_prefixes(file.tensors, family)) and (family.recognised is None or family.recognised(file.tensors))


def import_model(
    path: Path | str,
    layout: str = ANY_FAMILY,
    *,
    attention: str | None = None,
    heads: int | None = None,
    residual: bool | None = None,
    names: str | None = None,
    scale: str | None = None,
    config: Mapping[str, Any] | None = None,
    reference: Path | str | None = None,
    norms: bool = False,
    max_memory: int | None = None,
) -> ImportedModel:
    """The model of a file in this layout.

    attention: whom a position sees (softmax, causal, window:W). heads and residual: what a PyTorch state dict does not show.
    names: its roles, as --names. scale: what logits are multiplied by. config: its configuration, every field of which must be
    known. reference: a file of tokens or inputs and the model's own logits, with which the reading must agree. norms: it is one
    with norms, for a host with a norm of its own.
    Raises MalformedInput with the tensor, the field or the first difference.
    """
    if layout not in layouts():
        raise MalformedInput(f"layout {layout!r} is unknown; choose {', '.join(layouts())}")
    roles = parse_names(names)
    said = spoken(attention, heads, residual, scale)
    file = read_file(path, max_memory)
    family = recognise(file, norms) if layout == ANY_FAMILY else families()[layout]
    if layout != ANY_FAMILY and not has_names(family, file):
        _say_what_it_looks_like(file, family)
    model = ImportedModel(read_model(file, family, config, said, roles, norms=norms))
    return model if reference is None else with_reference(model, reference, max_memory)


def spoken(
    attention: str | None, heads: int | None, residual: bool | None, scale: str | None
) -> dict[str, tuple[Any, str]]:
    """Facts that options say."""
    said: dict[str, tuple[Any, str]] = {}
    if attention is not None:
        kernel = attention_kernel(attention)
        said |= {"causal": (kernel.causal, "--attention"), "window": (kernel.window or 0, "--attention")}
    if scale is not None:
        said["scale"] = (parse_scale(scale), "--scale")
    if heads is not None:
        said["heads"] = (heads, "--heads")
    if residual is not None:
        said["stream"] = (residual, "--residual" if residual else "--no-residual")
    return said


def with_reference(model: ImportedModel, path: Path | str, max_memory: int | None = None) -> ImportedModel:
    """The model with the outputs that it was seen to give. MalformedInput where the reading does not give them."""
    references = read_reference(path, model, max_memory)
    given = [x for x, _ in references]
    found = measured(model.reading, given, [(model.original(x), logits) for x, logits in references])
    if not found.within(AGREEMENT):
        raise MalformedInput(
            f"{path}: this reading of the file gives other outputs than the reference, by "
            f"{found.relative_difference:.3g} relative (sequence {found.sequence}){_rounded(model, found)}: "
            f"it was taken as {summary(model)}"
        )
    witness = f"the outputs in {Path(path).name}{extent(model.reading, given)}"
    return replace(model, witness=witness, references=references, agreement=found)


def _rounded(model: ImportedModel, found: Agreement) -> str:
    """What to do where float32 may be all that a reading and its reference differ by."""
    if not found.relative_difference < SINGLE:
        return ""
    rotary = any(layer.rotary is not None for layer in model.reading.attention.layers)
    live = "; a model may compute rotations in float32 even so: --module compares it live" if rotary else ""
    return f", as float32 leaves it: compute the reference in float64 (model.double()){live}"


def summary(model: ImportedModel) -> str:
    """The facts under which a model was read, in one line."""
    return "; ".join(f"{word}: {value}" for word, value in model.reading.assumptions.items())


def refuse_models(path: Path | str, max_memory: int | None = None) -> None:
    """MalformedInput for a file that is no target of the package's own layout and looks like a model, saying of which."""
    path = Path(path)
    if not path.is_file():
        return
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as stored:
                if "W_O" in stored.keys():  # noqa: SIM118 - not a dict
                    return
        except SafetensorError:
            return
    elif not path.name.endswith(SUFFIXES):
        return
    file = read_file(path, max_memory)
    for family in families().values():
        if has_names(family, file):
            raise file.refuse(f"this file looks like {family.title}: say --layout {family.name}, or --layout auto")


def _say_what_it_looks_like(file: TensorFile, family: Family) -> None:
    """MalformedInput for a file of another layout than the one said, naming the one that it has."""
    others = [other for other in families().values() if has_names(other, file)]
    if others:
        raise file.refuse(
            f"--layout {family.name} is for {family.title}; this file looks like {others[0].title}: --layout {others[0].name}"
        )
